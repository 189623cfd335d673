"""An outcome in words: what a variant achieved, or which check turned it down, where, by how much and perhaps why. And
the table of what serves which problem."""

import math
import re
import statistics

from autotuner.ops import Op, op_of
from autotuner.race.plausible import moves_bytes
from autotuner.store import Store, TrialRecord, queries
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.standings import Best, FinalsSummary
from autotuner.tuning.trial_report import GateSummary, TrialReport, trial_report
from autotuner.values import codes
from autotuner.values.gate_report import CaseErrors, CaseResult, error_in_tolerances
from autotuner.values.outcome import Artifact, Measurement, Outcome, Stop, Timing
from autotuner.values.ratio import BIASED, UNCONFIRMED, Speedup, quoted
from autotuner.values.table import DispatchTable
from autotuner.values.verdict import Fault, Verdict
from autotuner.views.causes import likely_cause, meanings
from autotuner.views.words import counted, numbers_words

_SHAPE = re.compile(r"\b(\d+(?:x\d+)*)(?: (\w+))?$")
"""Sizes and distribution at the end of the name of a case."""
_STDERR_LINES = 12
"""Last lines of its standard error that are shown."""
_STOPS = {
    Stop.PRECISE: "its interval was narrow enough",
    Stop.STEADY: "more blocks would not have told more: the noise did not change any more",
    Stop.SLOWER: "it was shown to be slower than what it raced against; the figures are estimates from few blocks",
    Stop.HOPELESS: "it was clearly slower from the first blocks on; the figures are estimates from those",
    Stop.PROMOTED: "it was faster than what it raced against, by more than a tie, and took its place",
    Stop.LIMIT: "it had its largest number of blocks",
    Stop.LATE: "it took too long",
}

_HELD = {"cold": "as where memory has its tensors", "warm": "as where the caches still have its tensors"}
"""What the states of the caches are like."""


def outcome_words(outcome: Outcome, op: Op) -> list[str]:
    """The outcome for a person, a sentence or two a line; the first line is the verdict."""
    if outcome.verdict.has_latency and outcome.measurement is not None:
        return _achieved(outcome, outcome.measurement)
    return _rejected(outcome, op)


def report_of(store: Store, study: str, number: int) -> TrialReport:
    """The report on a recorded trial, for programs. Raises StoreError: no such trial."""
    record, of = queries.trial(store, study, number), queries.study(store, study)
    device = of.device.model_copy(update={"environment": record.session.environment})
    return trial_report(standings.proven(store, record), of.problems, device, record.session.calibration)


def trial_words(store: Store, record: TrialRecord) -> list[str]:
    """A recorded trial for a person: that it was revoked, what finals confirmed, and its outcome. Raises StoreError."""
    found = [f"REVOKED: {record.revoked_reason}"] if record.revoked_at is not None else []
    confirmed = standings.every_confirmed(store, record.study).get(record.number)
    if confirmed is not None:
        said = f"{confirmed.mid:.3f} times as fast as the baseline ({_ends(confirmed)})"
        found.append(f"Confirmed by the last finals: {said}.")
    op = op_of(queries.study(store, record.study).problems[0])
    return [*found, *outcome_words(standings.proven(store, record), op)]


def best_words(best: Best) -> list[str]:
    """The trial to use for a person: what the finals confirmed, where there were some, and what the search found."""
    confirmed, finals, entry = best.confirmed, best.finals, best.entry
    if confirmed is None or finals is None or entry.difference is None:
        return [
            f"The fastest of the search so far. {BIASED}",
            *outcome_words(best.outcome, _op(best)),
            *reservations(best),
        ]
    where = f"finals {finals.id} of {finals.finished_at:%Y-%m-%d}: {finals.processes} processes x"
    where += f" {finals.blocks} blocks"
    lines = [f"Confirmed: {confirmed.mid:.3f} times as fast as the baseline ({_ends(confirmed)}; {where})."]
    lines.append(place_words(best, finals))
    if confirmed.low <= 1 and len(best.record.session.calibration.baselines) == 1:
        lines[-1] += " An export has the baseline serve in its place."
    if best.proof is not None and best.gate is not None:
        lines.append(proof_words(GateSummary.of(best.gate)))
    lines += reservations(best)
    first, *rest = outcome_words(best.outcome, _op(best))
    biased = f"Search estimate, biased: {first}; {entry.difference:+z.1%} off what was confirmed."
    return [*lines, biased, *rest]


def place_words(best: Best, finals: FinalsSummary) -> str:
    """How the one to use stands to the other finalists."""
    if best.entry.crowned:
        return "Crowned: faster than every other finalist and the baseline, by more than a tie."
    if others := _tied_with(best):
        return f"Tied with trial {others}: {_why(best, finals)}. Nobody is crowned."
    if best.proof is None and best.confirmed is not None and best.confirmed.low > 1:
        return "It leads, and has not been through the longest soak. Nobody is crowned."
    return "It leads, not shown to be faster than the baseline and all others by more than a tie. Nobody is crowned."


def _tied_with(best: Best) -> str:
    return numbers_words([number for number in best.tied if number != best.entry.number])


def chosen_because(best: Best) -> str:
    """Why this trial is the one that is exported, and not another one, in a clause."""
    confirmed, finals, speedup = best.confirmed, best.finals, best.entry.speedup
    baseline = _over(best)
    if confirmed is None or finals is None:
        is_told = speedup.low > 1 or speedup.high < 1
        found = quoted(speedup.mid, False, baseline) if is_told else f"not told apart from {baseline} here"
        return f"the fastest of the search, {found} ({_ends(speedup)})"
    found = f"{confirmed.mid:.3f}x {baseline} confirmed"
    if best.entry.crowned:
        return f"crowned, {found}"
    if others := _tied_with(best):
        return f"{found}, tied with trial {others}; {_why(best, finals)}"
    return f"{found}, the first of the finals, but nobody is crowned"


def reservations(best: Best) -> list[str]:
    """Why its speedup may be another one: which baseline is the fastest was not seen, or the caches hold something else
    than when it was tuned."""
    return [*best.record.session.calibration.doubts, *_cache_words(best)]


def _cache_words(best: Best) -> list[str]:
    """What the one to use is worth where the caches hold something else than when it was tuned; nothing where that
    hardly matters."""
    measured, ceilings = best.outcome.measurement, best.record.session.calibration.ceilings
    assert measured is not None  # it was measured
    if ceilings is None or not any(moves_bytes(timing.problem, ceilings) for timing in measured.timings):
        return []
    other, baseline = best.proof.other_cache if best.proof is not None else None, _over(best)
    if other is None:
        untried = next(each for each in _HELD if each != measured.cache)
        return [f"Timed {measured.cache} alone: {untried}, {_HELD[untried]}, another may be faster (docs/my-shape.md)."]
    loses = f": {baseline} is faster there" if other.speedup.mid < 1 else ""
    found = f"{other.speedup.mid:.3f}x {baseline} ({_ends(other.speedup)}){loses}"
    return [f"Timed {other.cache}, {_HELD[other.cache]}, it is {found}; docs/my-shape.md says which holds for you."]


def _why(best: Best, finals: FinalsSummary) -> str:
    """Why it is the one to use."""
    if len(finals.alike) > 1:
        return "of those that are as fast as the fastest it is the preferred one"
    least = "" if finals.resolution is None else f" below a difference of about {finals.resolution:.1%}"
    return f"the finals cannot tell them apart{least}, and it is the fastest"


def proof_words(summary: GateSummary) -> str:
    """How often the one to use was launched, what could still be missed, and whether its memory was checked."""
    line = f"Launched {summary.many_launches:,} times on the tuned problems, all with the same bits"
    if summary.could_miss is not None:
        line += f": an error in fewer than one of {1 / summary.could_miss:,.0f} launches could still be missed"
    return f"{line}. Memory check: {summary.memory}."


def _over(best: Best) -> str:
    return _op(best).over(best.record.session.calibration.baselines)


def _op(best: Best) -> Op:
    assert best.outcome.measurement is not None  # it was measured
    return op_of(best.outcome.measurement.timings[0].problem)


def gate_words(outcome: Outcome, op: Op) -> list[str]:
    """What the gate alone found, for a person, and what a forward took in the few blocks after it."""
    if outcome.fault is not None and outcome.fault.code == codes.INCOMPLETE:
        return [f"built: {outcome.variant}", f"No verdict: {outcome.fault.detail}."]
    if outcome.fault is not None or outcome.gate is None:
        return _rejected(outcome, op)
    timings = outcome.measurement.timings if outcome.measurement is not None else ()
    passed = [f"passed: {outcome.variant}", *(_timing_line(timing) for timing in timings)]
    return [*passed, gate_line(GateSummary.of(outcome.gate))]


def _achieved(outcome: Outcome, measurement: Measurement) -> list[str]:
    lines = [
        f"{outcome.verdict.words}: {measurement.speedup:.3f} times as fast as the baseline, {UNCONFIRMED}",
        f"Variant: {outcome.variant}",
        *(_timing_line(timing) for timing in measurement.timings),
    ]
    if measurement.incumbent is not None and measurement.gain is not None:
        gain = measurement.gain.speedup
        against = f"Raced against artifact {measurement.incumbent[:12]}, the best until then"
        lines.append(f"{against}: {gain.mid:.4f} times as fast ({_ends(gain)}).")
    lines.append(f"The race ended because {_STOPS[measurement.stopped]}.")
    if measurement.discarded:
        lines.append(f"Blocks discarded, because the device throttled: {measurement.discarded}.")
    if outcome.verdict == Verdict.DEDUPLICATED:
        lines.append(f"The same program as artifact {(outcome.original or '?')[:12]}, which was measured in its place.")
    if outcome.gate is not None:
        lines.append(gate_line(GateSummary.of(outcome.gate)))
    return lines


def _ends(found: Speedup) -> str:
    if not found.bounded:
        return "too few blocks for an interval"
    return f"{found.level:.0%} interval {found.low:.3f} to {found.high:.3f}"


def _timing_line(timing: Timing) -> str:
    found = timing.log_ratio.speedup
    us, baseline_us = (statistics.median(each or (math.nan,)) for each in (timing.variant_us, timing.baseline_us))
    times = f"{us:.2f} us a forward against {baseline_us:.2f} us"
    speedup = f"{quoted(found.mid, False)} ({_ends(found)}, {len(timing.variant_us)} blocks)"
    return f"{timing.problem}: {times} of {timing.baseline}; {speedup}"


def gate_line(summary: GateSummary) -> str:
    """What the gate found, in a sentence."""
    line = f"Gate: {len(summary.passed)} checks passed, {summary.cases} outputs compared with the float64 reference"
    if summary.worst_ratio is not None:
        line += f", the worst error {summary.worst_ratio:.2f} of its tolerance"
    if summary.peer_ratio is not None:
        line += f", errors {summary.peer_ratio:.2f} times those of the baseline that stands beside it in the median"
    if summary.looser:
        line += f"; the family's kernel.toml loosens the gate: {'; '.join(summary.looser)}"
    if summary.unavailable:
        line += f"; could not run here: {', '.join(summary.unavailable)}"
    return line + "."


def _rejected(outcome: Outcome, op: Op) -> list[str]:
    fault = outcome.fault or (outcome.gate.fault if outcome.gate is not None else None)
    lines = [outcome.verdict.words if fault is None else f"{outcome.verdict.words}: {fault.code}"]
    if outcome.verdict == Verdict.DISTURBED:
        lines.append("This says nothing about the variant: it is tried again.")
    elif not outcome.verdict.judges:
        lines.append("This says nothing about the variant: the machinery around it failed, and it is tried again.")
    lines.append(f"Variant: {outcome.variant}")
    if fault is not None:
        meaning = meanings(op).get(fault.code)
        if meaning is not None:
            lines.append(f"Check {fault.code} asserts: {meaning.asserts}.")
        if fault.case is not None:
            lines.append(f"Case: {_case_in_words(fault.case, outcome.artifact, op)}")
        lines.append(f"Found: {fault.detail}")
        lines += _sanitized(outcome, fault)
        if outcome.measurement is not None:  # of a disturbed race: it counts for nothing
            lines += ["Not believed:", *(f"  {_timing_line(timing)}" for timing in outcome.measurement.timings)]
        found = _failing_case(outcome, fault.case)
        if found is not None:
            lines += _errors_in_words(found.errors, op)
        cause = likely_cause(outcome, fault, found, op)
        if cause:
            lines.append(f"Likely cause: {cause}.")
    tail = [line for line in outcome.stderr_tail.strip().splitlines() if line.strip()]
    if tail:
        lines += ["Last lines of its standard error:", *(f"  {line}" for line in tail[-_STDERR_LINES:])]
    return lines


def _sanitized(outcome: Outcome, fault: Fault) -> list[str]:
    """What the sanitizers found of a variant that another check had turned down."""
    found = {each.code: each for each in (outcome.gate.checks if outcome.gate is not None else ())}
    later = [found[code] for code in (codes.MEMORY, codes.RACE) if code in found and code != fault.code]
    said = {"pass": "found nothing", "unavailable": "could not run"}
    return [f"{each.code}: {': '.join(filter(None, [said.get(each.status), each.note]))}" for each in later]


def _case_in_words(case: str, artifact: Artifact | None, op: Op) -> str:
    found = _SHAPE.search(case)
    shape = tuple(int(size) for size in found[1].split("x")) if found is not None else ()
    if found is None or not op.problem.takes(shape):
        return case
    words = f"{case}: {op.words.case(shape, artifact.macros if artifact is not None else {})}"
    distribution = found[2]
    if distribution in op.words.distributions:
        words += f"; inputs {distribution}: {op.words.distributions[distribution]}"
    return words


def _failing_case(outcome: Outcome, name: str | None) -> CaseResult | None:
    """The result that broke the tolerance: the last one of that name, because the first failure stopped the gate."""
    if outcome.gate is None:
        return None
    results = [each for check in outcome.gate.checks if check.status == "fail" for each in check.cases]
    broken = [each for each in results if each.errors.failed_rule is not None and name in (None, each.case)]
    return broken[-1] if broken else None


def _errors_in_words(errors: CaseErrors, op: Op) -> list[str]:
    lines = []
    if errors.nonfinite:
        lines.append(f"Not finite: {errors.nonfinite} elements (NaN or infinity).")
    if errors.first_bad_row is not None:
        lines.append(
            f"First bad row: {op.place(errors.first_bad_row)}; {errors.bad_rows:.1%} of rows are out of tolerance."
        )
    where = op.place(errors.worst_index)
    lines.append(
        f"Worst element: {where}: {errors.worst_value:.7g} where the reference has {errors.worst_reference:.7g}."
    )
    said = ("absolute error", "error relative to its row", "error norm relative to its slice")
    for name, (rule, (error, tolerance)) in zip(said, errors.rules.items(), strict=True):
        times = f"{error_in_tolerances(error, tolerance):.3g} times"
        lines.append(f"Largest {name} ({rule}): {error:.3g}, tolerance {tolerance:.3g} ({times}).")
    return lines


# What serves which problem --------------------------------------------------------------------------------------------


def table_words(table: DispatchTable) -> str:
    """One line for each problem."""
    trials = {each.artifact: f"trial {each.trial} of {each.study}" for each in table.variants}
    count = len(table.variants)
    problems = counted(len(table.entries), "problem")
    served = f"serves {problems} with {counted(count, 'variant')}"
    lines = [f"The table {served if count else f'leaves {problems} to the baseline'}:"]
    for entry in table.entries:
        if entry.use is None or entry.speedup is None:
            lines.append(f"  {entry.problem}: the baseline {entry.baseline}, {entry.why}")
        else:
            lines.append(f"  {entry.problem}: {trials[entry.use]}, {entry.speedup.mid:.3f}x, {entry.why}")
    return "\n".join([*lines, *_ranges(table)])


def ranges_words(table: DispatchTable) -> str:
    """What it serves between the tuned problems, and what was tried and is not served."""
    lines = _ranges(table) or ["  no length but the tuned ones"]
    left_out = [f"  not {each.problem}: {each.why}" for each in table.left_out]
    return "\n".join(["An export of this study serves beside the tuned problems:", *lines, *left_out])


def _ranges(table: DispatchTable) -> list[str]:
    trials = {each.artifact: f"trial {each.trial} of {each.study}" for each in table.variants}
    found: list[str] = []
    for each in table.ranges:
        low, high = (each.like.sized(shape) for shape in (each.low, each.high))
        worst = min(one.speedup.mid for one in each.validated)
        timed = f"{worst:.3f}x at least on {counted(len(each.validated), 'length')} not tuned"
        found.append(f"  {low} to {high}: {trials[each.use]}, {timed}")
    return found


def none_passed(study: str, judged: int) -> str:
    """What is said in place of variants, where of those judged none has passed the gate."""
    if not judged:
        return f"{study}: no variant was judged yet; `autotuner tune` goes on."
    why = "`autotuner status` counts why, `autotuner trials` lists them"
    return f"{study}: of {judged} judged variants none has passed the gate yet; {why}."
