"""Sweeps on a machine that something disturbs, on and off, beside the same sweep on a quiet one.

    python -m benchmarks.timing.disturbed cpu|cuda [--space NAME] [--points 24] [--on 20] [--off 20]
        [--json docs/results/disturbed.json] [--hold]

The same points of a shipped space are judged four times, finals included: quiet; quiet once more, in another store;
disturbed, in the first store, which remembers what the baseline takes; and disturbed from the first moment in an empty
store, which remembers nothing. On a CPU the disturbance is a busy loop on every CPU, on a GPU another process's matrix
products. Nothing else may run here.

What must hold of both disturbed sweeps: their winner is the quiet ones' within the tie band, no figure in the store is
off by more than 10 %, and they take at most three times the first quiet one's time. A figure on which the quiet sweeps
do not agree by themselves within 10 % has no truth, and is counted instead.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from autotuner.store import MeasuredTrial, Store, queries
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.finals import Finals
from autotuner.tuning.finals.retrials import Retrials
from autotuner.tuning.run.calm import Calm, Caution, Protest
from autotuner.tuning.run.driver import Budget, Event
from autotuner.tuning.run.plan import Start
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.errors import InfrastructureError, InputError
from autotuner.values.variant import Value
from autotuner.values.versions import version_of
from benchmarks import holds
from benchmarks.provenance import command_line
from benchmarks.timing.disturbance import disturbed

SPACES = {"cpu": "sdpa_cpu", "cuda": "sdpa_cuda"}
OFF_BY, LONGER = 0.10, 3.0
"""By how much a figure may be off, relative, and how many times longer a disturbed sweep may take."""

Point = dict[str, Value]


class Sweep(NamedTuple):
    """A sweep and what came of it."""

    name: str
    seconds: float
    waited_s: float
    judged: int
    disturbed: int
    """Measurements that were not believed."""
    left: int
    """Variants that no calm moment was found for."""
    protested: bool
    winner: str | None
    """Digest of the variant that is best."""
    tie: float
    confirmed: Mapping[str, float]
    """ln(t_variant / t_baseline) of each finalist, by its variant's digest."""
    estimates: Mapping[str, MeasuredTrial]
    """Whatever the search has measured, by its variant's digest."""


def sweep(workbench: Workbench, store: Store, name: str, points: list[Point], caution: Caution) -> Sweep:
    """Judges these points, in a study of that name, and holds the finals."""
    waited, protests = [0.0], [False]

    def listen(event: Event) -> None:
        if isinstance(event, Calm | Protest):
            waited[0] += event.waited_s
            protests[0] = protests[0] or isinstance(event, Protest)

    own, workbench.built_from = workbench.built_from, f"{workbench.built_from} {name}"
    started = time.monotonic()
    try:
        with closing(workbench.executor()) as executor:
            driver = workbench.driver(store, executor, "random", listen=listen, start=Start(first=points))
            driver.run(Budget(trials=len(points)), caution)
            confirmed = finals_of(workbench, store, driver.name, executor)
    finally:
        workbench.built_from = own
    seconds = time.monotonic() - started
    summary, best = standings.summary(store, driver.name), standings.best(store, driver.name)
    measured = queries.measured(store, driver.name)
    return Sweep(
        name,
        round(seconds, 1),
        round(waited[0], 1),
        summary.judged,
        sum(count for verdict, count in summary.by_verdict.items() if verdict == "disturbed"),
        len(summary.disturbed),
        protests[0],
        None if best is None else best.entry.variant.digest,
        summary.finals.tie if summary.finals is not None else 0.005,
        confirmed,
        {trial.variant.digest: trial for trial in measured},
    )


def finals_of(workbench: Workbench, store: Store, study: str, executor: Any) -> dict[str, float]:
    """What finals confirm of each finalist; nothing where they cannot be held."""
    environment = workbench.device.environment
    try:
        trials = Retrials(store, study, workbench.conditions, executor, environment)
        found = Finals(trials, workbench.default_digest).run()
    except (InfrastructureError, InputError) as error:
        print(f"finals: {error}", flush=True)
        return {}
    finalists, standing = found.by_digest, found.standing
    assert standing is not None
    return {finalists[each.digest].variant.digest: each.log_ratio.mid for each in standing.finalists}


def chosen(workbench: Workbench, count: int) -> list[Point]:
    """The default point and others, always the same."""
    space = workbench.space
    others = random.Random(0).sample([i for i in range(len(space)) if i != space.default_index], count - 1)
    return [dict(space.point(index)) for index in (space.default_index, *others)]


class Truth(NamedTuple):
    """What two quiet sweeps agree on."""

    quiet: Sweep
    estimates: Mapping[str, float]
    """ln(t_variant / t_baseline) by the variant's digest, the mean of both."""
    apart: Sequence[str]
    """Digests of those on which they do not agree."""
    confirmed: Mapping[str, float]
    """As `estimates`, of those that were finalists in either."""
    winners: Mapping[str, float]
    """The same of who won in either."""
    tie: float

    @classmethod
    def of(cls, quiet: Sweep, again: Sweep) -> Truth:
        pairs = {
            each: (trial.log_ratio.mid, again.estimates[each].log_ratio.mid)
            for each, trial in quiet.estimates.items()
            if each in again.estimates
        }
        found = {each: fmean(pair) for each, pair in pairs.items() if abs(math.expm1(pair[0] - pair[1])) <= OFF_BY}
        both = [sweep.confirmed for sweep in (quiet, again)]
        confirmed = {each: fmean(one[each] for one in both if each in one) for each in {**both[0], **both[1]}}
        winners = {each: confirmed[each] for each in (quiet.winner, again.winner) if each and each in confirmed}
        apart = [each for each in pairs if each not in found]
        return cls(quiet, found, apart, confirmed, winners, max(quiet.tie, again.tie))


def compared(truth: Truth, other: Sweep) -> dict[str, Any]:
    """The disturbed sweep in figures, beside the quiet ones."""
    both = [(trial, other.estimates[each]) for each, trial in truth.quiet.estimates.items() if each in other.estimates]
    known = [(here, there) for here, there in both if here.variant.digest in truth.estimates]
    errors = [abs(math.expm1(there.log_ratio.mid - truth.estimates[here.variant.digest])) for here, there in known]
    best = min(truth.winners.values(), default=math.nan)
    own = truth.confirmed.get(other.winner or "", math.inf)
    # Not finite: it was no finalist.
    behind = 0.0 if other.winner in truth.winners else math.expm1(own - best)
    return {
        "times_longer": other.seconds / truth.quiet.seconds,
        "largest_error": max(errors, default=None),
        "off": [
            {"parameters": here.variant.parameters, truth.quiet.name: figures(here), other.name: figures(there)}
            for error, (here, there) in zip(errors, known, strict=True)
            if error > OFF_BY
        ],
        "compared": len(known),
        "without_truth": len(both) - len(known),
        "winner_behind": behind if math.isfinite(behind) else None,
    }


def figures(trial: MeasuredTrial) -> dict[str, Any]:
    """What a sweep found of a variant. `slower`: t_variant / t_baseline, with its interval where it has one."""
    known = math.isfinite(trial.log_ratio.low) and math.isfinite(trial.log_ratio.high)
    interval = {"low": math.exp(trial.log_ratio.low), "high": math.exp(trial.log_ratio.high)} if known else {}
    took = {"us": trial.median_us, "baseline_us": trial.baseline_us, "raced_out": trial.censored}
    return {"slower": math.exp(trial.log_ratio.mid), **interval, **took}


def unmet(truth: Truth, others: list[Sweep]) -> list[str]:
    """What does not hold."""
    said = [] if truth.confirmed else ["the quiet sweeps have no finals"]
    for other in others:
        found = compared(truth, other)
        tie = max(truth.tie, other.tie)
        if found["winner_behind"] is None or found["winner_behind"] > tie:
            said.append(
                f"{other.name}: its winner is behind the quiet one's by {found['winner_behind']}, a tie is {tie}"
            )
        off = found["largest_error"]
        if off is None or off > OFF_BY:
            said.append(f"{other.name}: the largest error of a figure is {off}, and may be {OFF_BY}")
        if other.judged < truth.quiet.judged or other.left or other.protested:
            unsure = f"{other.left} found no calm moment" + (", and it protested" if other.protested else "")
            said.append(f"{other.name}: it judged {other.judged} of {truth.quiet.judged}, {unsure}")
        if found["times_longer"] > LONGER:
            said.append(f"{other.name}: it took {found['times_longer']:.1f} times as long")
    return said


def row(found: Sweep) -> dict[str, Any]:
    """A sweep as it is kept, without its many figures."""
    return {key: value for key, value in found._asdict().items() if key not in ("confirmed", "estimates")}


SWEEPS = (
    ("quiet", "one", False),
    ("quiet, again", "other", False),
    ("disturbed", "one", True),
    ("disturbed, first run", "two", True),
)
"""Their names, the stores that they are in, and whether something disturbs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("device", choices=tuple(SPACES))
    parser.add_argument("--space", help="another shipped space, or a file")
    parser.add_argument("--points", type=int, default=24)
    parser.add_argument("--on", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--off", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--patience", type=float, default=config.PATIENCE_MINUTES, metavar="MINUTES", help="of a wait")
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    options = parser.parse_args()
    workbench = Workbench(load_space(options.space or SPACES[options.device]))
    points = chosen(workbench, options.points)
    caution = Caution(patience_s=60 * options.patience)
    found: list[Sweep] = []
    with tempfile.TemporaryDirectory(prefix="autotuner-disturbed-") as folder:
        for name, file, noisy in SWEEPS:
            noise = disturbed(options.device, options.on, options.off) if noisy else nullcontext()
            with noise, Store.open(f"{folder}/{file}.db") as store:
                found.append(sweep(workbench, store, name, points, caution))
            print(json.dumps(row(found[-1])), flush=True)
    quiet, again, *others = found
    truth = Truth.of(quiet, again)
    apart = [
        {"parameters": quiet.estimates[each].variant.parameters}
        | {sweep.name: figures(sweep.estimates[each]) for sweep in found if each in sweep.estimates}
        for each in truth.apart
    ]
    document = {
        "command": command_line(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": workbench.device.name,
        "torch": version_of("torch"),
        "space": workbench.space.name,
        "points": options.points,
        "on_s": options.on,
        "off_s": options.off,
        "rows": [*map(row, (quiet, again)), *(row(each) | compared(truth, each) for each in others)],
        "quiet_ones_apart": apart,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.hold:
        holds.require(unmet(truth, others))


if __name__ == "__main__":
    main()
