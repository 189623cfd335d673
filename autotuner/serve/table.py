"""The dispatch table of some studies: what the finals confirmed on each problem, and who serves it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from autotuner.devices import DEVICES
from autotuner.forge.build_inputs import BuildInputs
from autotuner.forge.family import Family
from autotuner.race.confirm import Confirmed
from autotuner.spaces.space import SpaceFile
from autotuner.store import FinalsRecord, Store, StudyRecord, ValidationRecord, queries
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.serving import LOSS, Assigned, confirmed_on_each, proven_of_finals, servers
from autotuner.tuning.finals.validation import Lengths, LengthSeries, Trying, confirmed_at, lines_of, to_try
from autotuner.tuning.trial_report import GateSummary
from autotuner.tuning.workbench import toolchain_for
from autotuner.values.errors import AutotunerError, InputError
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.ratio import UNCONFIRMED
from autotuner.values.table import DispatchTable, LeftOut, Proven, Range, Ratio, TableEntry, TableVariant, Validated
from autotuner.values.variant import Value, digest_of


class _Studied(NamedTuple):
    """A study, and who may serve its problems, by artifact."""

    record: StudyRecord
    numbers: dict[str, int]
    """Of their trials."""
    ratios: dict[str, Sequence[Confirmed | None]]
    """What each takes on each problem: ln(t_variant / t_baseline)."""
    chosen: str
    """The artifact that is best over all problems."""
    confirmed: bool
    """By finals."""
    baselines: Sequence[str]
    environment: dict[str, str]


def table_of(store: Store, studies: Sequence[str], loss: float = LOSS, estimates: bool = False) -> DispatchTable:
    """The table over all problems of the studies. With `estimates`, a study without finals counts by the figures of its
    search, and the table says so.

    Raises InputError where the studies do not go together, or one has nothing confirmed.
    """
    found = [_studied(store, name, estimates) for name in studies]
    _require_one_device([each.record for each in found])
    variants: dict[str, TableVariant] = {}
    entries: dict[Problem, TableEntry] = {}
    ranges: list[Range] = []
    left_out: list[LeftOut] = []
    for each in found:
        for entry in _entries(each, loss):
            if entry.problem in entries:
                raise InputError(f"{entry.problem} is in several of the studies; name one of them")
            entries[entry.problem] = entry
            if entry.use is not None and entry.use not in variants:
                variants[entry.use] = _variant(store, each.record, each.numbers[entry.use])
        problems = each.record.problems
        used = dict.fromkeys(use for problem in problems if (use := entries[problem].use) is not None)
        ratios = {use: each.ratios[use] for use in used}
        between, tried = ranges_of(problems, ratios, queries.validations(store, each.record.name))
        ranges += between
        left_out += tried
    first = found[0].record
    return DispatchTable(
        op=first.problems[0].op,
        device=first.device.backend,
        proven_on=_proven_on(first),
        environment=found[0].environment,
        allowed_loss=loss,
        estimates=estimates,
        variants=tuple(variants.values()),
        entries=tuple(entries.values()),
        ranges=tuple(ranges),
        left_out=tuple(left_out),
    )


def to_validate(
    store: Store, study: str, lengths: Lengths | None = None, vary: Sequence[str] = (), loss: float = LOSS
) -> tuple[Trying, ...]:
    """The variants that a study's table has, and lengths without a part in tuning that they could serve.

    Raises InputError where there are none, or the study has no finals.
    """
    if standings.finals(store, study) is None:
        raise InputError(f"{study} has no finals: run `autotuner finals {study}` first")
    studied = _studied(store, study, estimates=False)
    uses = [entry.use for entry in _entries(studied, loss)]
    numbers = [None if use is None else studied.numbers[use] for use in uses]
    return to_try(studied.record.problems, numbers, lengths, vary)


def _proven_on(record: StudyRecord) -> dict[str, Value | bool]:
    """The facts of the device that say where the variants are as good."""
    names = DEVICES[record.device.backend].proven_by
    missing = [name for name in names if name not in record.device.facts]
    if missing:
        raise InputError(
            f"{record.name} does not say the device's {missing[0]}: an earlier version tuned it; tune again"
        )
    return {name: record.device.facts[name] for name in names}


def digest_of_table(table: DispatchTable) -> str:
    """What a damaged file is told by."""
    return digest_of(table.model_dump(mode="json"))


def _require_one_device(records: Sequence[StudyRecord]) -> None:
    first = records[0]
    for other in records[1:]:
        if (first.device.backend, first.device.name) != (other.device.backend, other.device.name):
            names = f"{first.name} is of {first.device.name}, {other.name} of {other.device.name}"
            raise InputError(f"a table is of one model of device: {names}")
        if first.problems[0].op != other.problems[0].op:
            raise InputError(f"a table is of one op: {first.name} and {other.name} are not")


def _studied(store: Store, name: str, estimates: bool) -> _Studied:
    record, finals = queries.study(store, name), standings.finals(store, name)
    best = standings.best(store, name)
    raced = best.raced if finals is not None and best is not None else None
    if finals is not None and raced is not None and proven_of_finals(finals):
        return _Studied(record, *_finalists(finals), raced, True, finals.baselines, finals.environment)
    if not estimates:
        lacks = "no finals" if raced is None else "nothing that went through the longest soak"
        raise InputError(f"{name} has {lacks}: run `autotuner finals {name}`, or take `autotuner export --estimates`")
    if best is None or best.outcome.artifact is None or best.outcome.measurement is None:
        raise InputError(f"{name} has no variant measured to the end yet; `autotuner status` shows why")
    digest, timings = best.outcome.artifact.digest, best.outcome.measurement.timings
    guessed = [
        Confirmed(digest=digest, log_ratio=each.log_ratio, processes=1, tied=False, alike=False) for each in timings
    ]
    numbers, baselines = {digest: best.record.number}, [each.baseline for each in timings]
    return _Studied(record, numbers, {digest: guessed}, digest, False, baselines, best.record.session.environment)


def _finalists(finals: FinalsRecord) -> tuple[dict[str, int], dict[str, Sequence[Confirmed | None]]]:
    """Those that have been through the longest soak. One that was built differently for the finals is another artifact
    than the one that the search has judged."""
    proven = proven_of_finals(finals)
    numbers = {
        each.digest: each.number for each in finals.finalists if each.digest == each.searched and each.digest in proven
    }
    # Who is not proven counts all the same: how sure each is of its place depends on all.
    return numbers, confirmed_on_each(finals, finals.heats, numbers)


def _entries(studied: _Studied, loss: float) -> list[TableEntry]:
    chosen = servers(studied.ratios, studied.chosen, studied.record.objective, loss)
    chosen = chosen or [Assigned(None, 0.0)] * len(studied.record.problems)
    return [_entry(studied, place, choice, loss) for place, choice in enumerate(chosen)]


def _entry(studied: _Studied, place: int, choice: Assigned, loss: float) -> TableEntry:
    problem, baseline = studied.record.problems[place], studied.baselines[place]
    lost = math.expm1(choice.loss)
    if choice.use is None:
        why = f"no variant is shown to be faster than the baseline {baseline}"
        if lost > 0:
            why = f"a variant is faster by {100 * lost:.1f} %, less than the table may lose"
        return TableEntry(problem=problem, use=None, why=why, loss=lost, baseline=baseline)
    ratio = studied.ratios[choice.use][place]
    assert ratio is not None
    why = "the problem's own best" if lost == 0 else f"within {100 * loss:g} % of the problem's own best"
    why = why if studied.confirmed else f"{why}, {UNCONFIRMED}"
    return TableEntry(problem=problem, use=choice.use, why=why, speedup=ratio_of(ratio), loss=lost, baseline=baseline)


def _variant(store: Store, record: StudyRecord, number: int) -> TableVariant:
    outcome = standings.proven(store, queries.trial(store, record.name, number))
    artifact, gate = outcome.artifact, outcome.gate
    if artifact is None or gate is None or not gate.passed:
        raise InputError(f"trial {number} of {record.name} is no measured pass of the gate: export a standing one")
    inputs = inputs_of(record, artifact)
    return TableVariant.taken_from(
        artifact,
        study=record.name,
        trial=number,
        artifact=artifact.digest,
        program=artifact.program_hash,
        sources={} if inputs is None else inputs.sources,
        fixed=record.problems[0].fixed_in(artifact.macros),
        proven=proven_of(gate),
    )


def inputs_of(record: StudyRecord, artifact: Artifact) -> BuildInputs | None:
    """What an artifact was built from; None where that, or the compiler, is no longer as it was."""
    with suppress(AutotunerError, OSError):
        file = SpaceFile.stored(record.space_document)
        family = Family.find(file.family, near=Path(file.path).resolve().parent)
        inputs = BuildInputs.of(family, artifact.variant, record.problems[0], toolchain_for(record.device))
        return inputs if inputs.digest == artifact.digest else None
    return None


# Between tuned lengths ------------------------------------------------------------------------------------------------

# Known lengths of a variant on a line (tuning/finals/validation.py) are those on which it was timed. Between two
# neighbours of these it may serve where it was faster than the baseline on both, and one of them was not tuned.


class Shown(NamedTuple):
    """A variant at a length that it was timed on."""

    length: int
    ratio: Confirmed | None
    """None: it failed there."""
    record: ValidationRecord | None = None
    """None: it was tuned."""
    place: int = 0
    """Of the problem among those of the record."""


Last = Mapping[tuple[str, Problem], tuple[ValidationRecord, int]]
"""By artifact and problem the last validation, and the place of the problem in it."""


def ranges_of(
    problems: Sequence[Problem], finals: Mapping[str, Sequence[Confirmed | None]], records: Sequence[ValidationRecord]
) -> tuple[list[Range], list[LeftOut]]:
    """What the table says beside its entries: by what the finals showed of its variants on each problem, and the last
    validation of each length."""
    last: Last = {
        (record.digest, problem): (record, place)
        for record in records
        if record.digest in finals
        for place, problem in enumerate(record.problems)
    }
    left_out = [
        LeftOut(problem=problem, use=use, why=why)
        for (use, problem), (record, place) in last.items()
        if (why := _why_not(record, place)) is not None
    ]
    ranges: list[Range] = []
    for line in dict.fromkeys(line for record in records for line in lines_of(problems, record.vary)):
        known = {use: _known(line, use, shown, last) for use, shown in finals.items()}
        ranges += _on_line(line, known)
    return ranges, left_out


def _known(line: LengthSeries, use: str, finals: Sequence[Confirmed | None], last: Last) -> list[Shown]:
    """What is known of a variant on a line, by length."""
    found = [Shown(length, ratio) for length, place in line.tuned if (ratio := finals[place]) is not None]
    for (digest, problem), (record, place) in last.items():
        length = line.length_of(problem)
        if digest == use and length is not None:
            found.append(Shown(length, _ratio(record, place), record, place))
    return sorted(found, key=lambda each: each.length)


def _on_line(line: LengthSeries, known: Mapping[str, list[Shown]]) -> Iterator[Range]:
    """From each known length to the next one the variant that was fastest on both, of those that were faster than the
    baseline on both; neighbours with the same variant are one range."""
    points = sorted({each.length for shown in known.values() for each in shown})
    joined: list[tuple[str, list[int]]] = []
    for low, high in pairwise(points):
        costs = {use: cost for use, shown in known.items() if (cost := _cost(shown, low, high)) is not None}
        if not costs:
            continue
        use = min(costs, key=lambda each: costs[each])
        if joined and joined[-1][0] == use and joined[-1][1][-1] == low:
            joined[-1][1].append(high)
        else:
            joined.append((use, [low, high]))
    for use, lengths in joined:
        yield _range(line, use, known[use], lengths[0], lengths[-1])


def _cost(shown: Sequence[Shown], low: int, high: int) -> float | None:
    """The mean log-ratio on the nearest known lengths around an interval; None where the variant is not to serve it."""
    ends = [each for each in shown if each.length <= low][-1:] + [each for each in shown if each.length >= high][:1]
    faster = [each.ratio.log_ratio.mid for each in ends if each.ratio is not None and each.ratio.log_ratio.high < 0]
    return sum(faster) / 2 if len(faster) == 2 and any(each.record is not None for each in ends) else None


def _range(line: LengthSeries, use: str, shown: Sequence[Shown], low: int, high: int) -> Range:
    """With all lengths on which it was tried, from the nearest known one below to the nearest above."""
    first = max(each.length for each in shown if each.length <= low)
    last = min(each.length for each in shown if each.length >= high)
    within = [
        (each.record, each.place, each.ratio)
        for each in shown
        if first <= each.length <= last and each.record is not None and each.ratio is not None
    ]
    record = max((record for record, _, _ in within), key=lambda each: each.id)
    assert record.gate is not None  # what was timed has passed it
    return Range(
        use=use,
        like=line.at(low),
        low=line.at(low).shape,
        high=line.at(high).shape,
        together=line.vary if len(line.vary) > 1 else (),
        proven=proven_of(record.gate),
        validated=tuple(
            Validated(problem=of.problems[place], baseline=of.baselines[place], speedup=ratio_of(ratio))
            for of, place, ratio in within
        ),
    )


def ratio_of(found: Confirmed) -> Ratio:
    """What a table says of a confirmed ratio: t_baseline / t_variant, without its infinite ends."""
    return Ratio(**dict(found.log_ratio.speedup), processes=found.processes)


def proven_of(gate: GateReport) -> Proven:
    """What a table says of a gate report: some of its figures, without infinite ones."""
    return Proven.model_validate_json(GateSummary.of(gate).model_dump_json(include={*Proven.model_fields}))


def _ratio(record: ValidationRecord, place: int) -> Confirmed | None:
    return None if record.fault is not None else confirmed_at(record.heats, record.digest, place)


def _why_not(record: ValidationRecord, place: int) -> str | None:
    """Why the variant does not serve a length that it was tried on; None where it may."""
    if record.fault is not None:
        return f"a variant was tried and failed: {record.fault.code}, {record.fault.detail}"
    found, baseline = _ratio(record, place), record.baselines[place]
    if found is not None and found.log_ratio.high < 0:
        return None
    said = "" if found is None else f": {found.log_ratio.speedup.mid:.3f}x"
    return f"a variant was tried and not shown to be faster than the baseline {baseline}{said}"
