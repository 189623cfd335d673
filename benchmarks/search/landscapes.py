"""Landscapes: every valid point of a space, judged on this device and kept as a recorded space. docs/method/replay.md.

  python -m benchmarks.search.landscapes measure SPACE.toml OUT.json.gz [--store PATH] [--devices all] [--minutes N]
  python -m benchmarks.search.landscapes part SPACE.toml OUT.json.gz --store PATH
  python -m benchmarks.search.landscapes summary FILE ...
  python -m benchmarks.search.landscapes hub FOLDER FILE ...
  python -m benchmarks.search.landscapes floors [FOLDER] [--seeds 60] [--fixed-seeds 8] [--jobs 2]

measure   goes on with what the store holds; writes OUT once all points are there, else the exit code is 3
part      the landscape of a smaller space, all of whose points a `measure` that did not end has judged
summary   what landscapes are, in a table
hub       landscapes, or studies by `export --format t4`, as the AutoTuning Association's hub and Kernel Tuner have them
floors    how well `evolution` must score on each landscape of a folder, for `make proof PART=floors`
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median, stdev
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from autotuner.race.tie import tie_band
from autotuner.run.executor import Executor
from autotuner.run.jobs import AnyJob, JudgeJob, Result
from autotuner.spaces.space import Space, SpaceFile
from autotuner.store import Store, queries
from autotuner.tuning import t4
from autotuner.tuning.run.driver import Budget, Driver, Event, Judged
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.errors import AutotunerError, InputError, SpaceError
from autotuner.values.outcome import Device, Measurement, Outcome
from autotuner.values.ratio import speedup_of
from autotuner.values.variant import digest_of
from autotuner.values.verdict import Verdict
from benchmarks import holds
from benchmarks.provenance import RESULTS, command_line, provenance
from benchmarks.search import hub
from benchmarks.search.landscape_pages import NEAR, named, summary
from benchmarks.search.replay import SPACES, Case, run_all
from benchmarks.search.replay_run import replay
from benchmarks.search.replay_score import Axis, Trace, Yardstick
from benchmarks.search.replay_spaces import Landscape, LandscapePoint, Recorded, read, t4_of
from benchmarks.throughput.sweep_watch import Around, rounded

LANDSCAPES = RESULTS / "landscapes"
FLOORS = "floors.json"
"""Beside the landscapes that it is for."""

MIN_BLOCKS = 24
"""A race here has twice as many blocks at least as one of a sweep: the search is studied within 2 % of the best."""

INCOMPLETE = 3
STOPPED = 130

AXIS: Axis = "evaluations"
FIXED_SEEDS = 8
"""The seeds, from 0 on, with which CI searches each landscape, if the floors do not say another number."""
ALPHA = 1e-3
"""How likely a sampler that is as good as that of the floors falls below one of them."""
DRAWS = 20_000


# Measuring ----------------------------------------------------------------------------------------------------------


class EqualRaces(Around):
    """An executor under which each variant races against the baseline alone, so that none is given up.

    A race against an incumbent ends early for whatever is slower, which leaves an estimate from few blocks that was
    taken because it looked slow. Here all races end by the rules for precision.

    What comes out within NEAR of the best so far is judged a second time, with the soak (G6) that a sweep gives to what
    it promotes. The second time counts: it was not chosen for being low. So whatever is within NEAR of the best in the
    end has passed the soak.
    """

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self._best = math.inf
        self._first: dict[int, tuple[JudgeJob, int]] = {}
        """Of those that are judged for the first time, by the job's number: the job, and its lane."""
        self._told: dict[int, int] = {}
        """By the number of a second job the one that the driver knows."""

    def submit(self, job: AnyJob, lane: int = 0) -> int:
        if not isinstance(job, JudgeJob):
            return self._executor.submit(job, lane)
        alone = job.model_copy(update={"incumbent": None, "soak": "never"})
        number = self._executor.submit(alone, lane)
        self._first[number] = (alone, lane)
        return number

    def wait(self, timeout: float | None = None) -> tuple[int, Result] | None:
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            done = self._executor.wait(None if timeout is None else max(0.0, until - time.monotonic()))
            if done is None:
                return None
            number, result = done
            objective = result.objective if isinstance(result, Outcome) else math.inf
            first = self._first.pop(number, None)
            if first is None or objective > self._best + math.log1p(NEAR) or not math.isfinite(objective):
                self._best = min(self._best, objective)
                return self._told.pop(number, number), result
            job, lane = first
            self._told[self._executor.submit(job.model_copy(update={"soak": "promoted"}), lane)] = number


class Ear:
    """Shows how far a sweep is."""

    def __init__(self, points: int) -> None:
        self._points = points

    def __call__(self, event: Event) -> None:
        if isinstance(event, Judged) and event.judged % 20 == 0:
            best = "none" if event.best is None else f"{speedup_of(event.best):.3f}x SDPA"
            print(f"{event.judged}/{self._points} judged, best {best}", file=sys.stderr, flush=True)


def measure(store: Store, driver: Driver, space: Space, device: Device, out: Path, command: str, minutes: float) -> int:
    """Judges what the store does not have yet, for `minutes`; the exit code.

    The driver's executor is an EqualRaces and its sampler `exhaustive`. Writes the landscape once every point is
    judged. Raises AutotunerError when the sweep cannot go on; nothing is lost then.
    """
    driver.run(Budget(trials=len(space), seconds=60 * minutes))
    outcomes = judged(store, driver.name, space)
    missing = len(space) - len(outcomes)
    if missing:
        print(f"{missing} of {len(space)} points are missing: run the same command again.{_lost(store, driver.name)}")
        return INCOMPLETE
    tie = tie_band(queries.aa_heats(store, driver.name), space.file.objective)
    found = landscape(outcomes, space, device, command, tie)
    found.write(out)
    print(summary(named([out])))
    return 0


def judged(store: Store, study: str, space: Space) -> list[Outcome]:
    """The outcome of each point that has one, in the order of the space; what was lost on the way is none."""
    outcomes = dict(store.outcomes(study)).values()
    found = {space.index_of(each.variant.point): each for each in outcomes if each.verdict.judges}
    return [found[place] for place in range(len(space)) if place in found]


def _lost(store: Store, study: str) -> str:
    """What to know where a point was lost: the driver gives it up after some tries, and goes on giving it up."""
    lost = sum(not each.verdict.judges for each in dict(store.outcomes(study)).values())
    if not lost:
        return ""
    return f" {lost} times one was lost to a fault of ours; if their number stays the same, begin with another --store."


def landscape(outcomes: Sequence[Outcome], space: Space, device: Device, command: str, tie: float) -> Landscape:
    """The landscape of these outcomes, one a point. Raises InputError where none of them has a latency."""
    measured = [each.measurement for each in outcomes if each.measurement and each.verdict != Verdict.DEDUPLICATED]
    if not measured:
        raise InputError(f"{space.name}: no point has a latency here; `autotuner status` shows why")
    baseline_us = float(f"{median(map(_baseline_us, measured)):.6g}")
    return Landscape(
        command=command,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        space=carried(space.file, Path(space.file.path).name),
        device=device,
        compiler=next(each.artifact.compiler for each in outcomes if each.artifact is not None),
        baseline_us=baseline_us,
        tie=tie,
        points=tuple(LandscapePoint.of(each, baseline_us) for each in outcomes),
    )


def carried(file: SpaceFile, name: str) -> SpaceFile:
    """A space file as a landscape keeps it: complete, with no path of the machine it was on."""
    return file.model_copy(update={"path": name})


def with_derived(measured: Landscape, file: SpaceFile) -> Landscape:
    """The landscape with what the file derives and expects, which changes nothing of what was measured, and with the
    facts of its device that there have been since. Raises InputError where the points or anything else differ."""
    device = measured.device
    if "multiprocessors" in device.environment:
        facts = {**device.facts, "MULTIPROCESSORS": int(device.environment["multiprocessors"])}
        device = device.model_copy(update={"facts": facts})
    if not same_space(measured.space, file, device):
        raise InputError(f"{file.path}: not the space that was measured, but for what it derives: measure it")
    return measured.model_copy(update={"space": carried(file, measured.space.path), "device": device})


def same_space(one: SpaceFile, other: SpaceFile, device: Device) -> bool:
    """Whether two files have the same parameters and the same points on a device, however they say it."""
    try:
        return Space.enumerate(one, device.facts).digest == Space.enumerate(other, device.facts).digest
    except SpaceError:
        return False


def _baseline_us(measurement: Measurement) -> float:
    """What the baseline took beside a variant; over several problems the geometric mean."""
    return math.exp(fmean(math.log(median(timing.baseline_us)) for timing in measurement.timings))


def space_of(options: argparse.Namespace) -> SpaceFile:
    """The space that is meant: of a file, for its problem or another one, or of a landscape."""
    if options.space.endswith(".json.gz"):
        return Landscape.read(Path(options.space)).space
    return load_space(options.space, problems=options.problem)


def hub_files(path: Path) -> dict[str, bytes]:
    """A landscape, or what `export --format t4` has written of a study, in the layout of the hub. Raises InputError."""
    if path.name.endswith(t4.SUFFIX) and (study := t4.read(path)[1]) is not None:
        file = SpaceFile.stored(study.space_document)
        return hub.files(study.name, file, study.device, json.loads(path.read_text()))
    recorded = read(path)
    return hub.files(recorded.name, recorded.space.file, Landscape.read(path).device, t4_of(recorded))


def measure_here(options: argparse.Namespace) -> int:
    """The step `measure`."""
    if not options.out.resolve().parent.is_dir():
        raise InputError(f"{options.out}: its folder does not exist; make it, or choose another")
    here = Workbench(space_of(options), devices=options.devices)
    here.conditions = here.conditions.model_copy(update={"min_blocks": MIN_BLOCKS})
    # not the study that a sweep of this space has: its races end by other rules
    here.built_from = digest_of([here.built_from, "landscape", MIN_BLOCKS, NEAR])
    with (
        closing(Store.open(options.store or config.store_url())) as store,
        closing(EqualRaces(here.executor())) as executor,
    ):
        driver = Driver(store, executor, here.plan("exhaustive"), Ear(len(here.space)))
        return measure(store, driver, here.space, here.device, options.out, command_line(), options.minutes)


def part_of(options: argparse.Namespace) -> int:
    """The step `part`. Raises InputError where a point was not judged."""
    with closing(Store.open(options.store, create=False)) as store:
        study = queries.resolve_study(store, None)
        device = queries.study(store, study).device
        space = Space.enumerate(load_space(options.space), device.facts)
        outcomes, tie = judged(store, study, space), tie_band(queries.aa_heats(store, study), space.file.objective)
    if len(outcomes) < len(space):
        raise InputError(f"{study} has {len(outcomes)} of {len(space)} points of {space.name}: measure it")
    landscape(outcomes, space, device, command_line(), tie).write(options.out)
    return 0


# Floors -------------------------------------------------------------------------------------------------------------


class Scores(NamedTuple):
    """Of single searches, by their seeds."""

    each: list[float]

    def quantile(self, share: float, count: int) -> float:
        """Of the mean of `count` such searches, by a bootstrap."""
        drawn = np.random.default_rng(0).choice(self.each, (DRAWS, count)).mean(axis=1)
        return float(np.quantile(drawn, share))

    def document(self) -> dict[str, float]:
        """For the JSON."""
        return {"mean": fmean(self.each), "deviation": stdev(self.each)}


def scored(yardstick: Yardstick, traces: Sequence[Trace]) -> Scores:
    """Each search by itself."""
    return Scores([yardstick.score([trace], AXIS)[0].p for trace in traces])


def floor(name: str, evolution: Scores, random: Scores, count: int) -> float:
    """What the mean score of `count` searches by `evolution` reaches but for a chance of ALPHA.

    Raises InputError where random search may reach it too: a floor that says nothing.
    """
    least, chance = evolution.quantile(ALPHA, count), random.quantile(1 - ALPHA, count)
    if least <= chance:
        raise InputError(
            f"{name}: the mean of {count} searches may be {least:.3f} by evolution, {chance:.3f} by random search: they"
            " are not told apart; give more --fixed-seeds"
        )
    return least


def floors(folder: Path, seeds: int, jobs: int = 1, fixed: int = FIXED_SEEDS) -> dict[str, Any]:
    """The document of FLOORS. Raises InputError as `floor` does, and when there is no landscape."""
    paths = sorted(folder.glob("*.json.gz"))
    if not paths:
        raise InputError(f"{folder}: no landscape (*.json.gz) there; `measure` makes one")
    if not 2 <= fixed <= seeds:
        raise InputError(f"--seeds {seeds}: expected no fewer than --fixed-seeds {fixed}, and two of these at least")
    spaces = [read(path) for path in paths]
    SPACES[:] = [(each, Yardstick(each.ms, each.cost)) for each in spaces]
    cases = [Case(place, sampler, 1) for place in range(len(paths)) for sampler in ("evolution", "random")]
    found: dict[tuple[int, str], Scores] = {}
    for case, done in run_all(cases, seeds, charge=False, jobs=jobs):
        found[case.space, case.sampler] = scored(SPACES[case.space][1], done.traces)
    return {
        **provenance(),
        "jobs": jobs,
        "axis": AXIS,
        "seeds": seeds,
        "fixed_seeds": fixed,
        "alpha": ALPHA,
        "landscapes": {
            spaces[place].name: _entry(path, found[place, "evolution"], found[place, "random"], fixed)
            for place, path in enumerate(paths)
        },
    }


def _entry(path: Path, evolution: Scores, random: Scores, fixed: int) -> dict[str, Any]:
    return {
        "sha256": content_of(path),
        "floor": floor(path.name, evolution, random, fixed),
        "fixed": fmean(evolution.each[:fixed]),
        "evolution": evolution.document(),
        "random": {**random.document(), "may_reach": random.quantile(1 - ALPHA, fixed)},
    }


def content_of(path: Path) -> str:
    """What a floor is for: another measurement needs another floor."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def searched(recorded: Recorded, sampler: str, seeds: int, store: Store) -> Scores:
    """What single searches with the seeds from 0 on score; the same on every machine. Each is a study in `store`."""
    yardstick = Yardstick(recorded.ms, recorded.cost)
    return scored(yardstick, [replay(recorded, yardstick, sampler, n, store, charge=False) for n in range(seeds)])


def held(path: Path) -> dict[str, Any]:
    """What the fixed searches on a kept landscape score, beside the floor that it has in FLOORS."""
    floors = json.loads((LANDSCAPES / FLOORS).read_text())
    recorded = read(path)
    entry, found = floors["landscapes"][recorded.name], {}
    for sampler in ("evolution", "random"):
        with tempfile.TemporaryDirectory() as folder, closing(Store.open(f"{folder}/studies.db")) as store:
            found[sampler] = fmean(searched(recorded, sampler, floors["fixed_seeds"], store).each)
    anew = entry["sha256"] != content_of(path)
    return {"name": recorded.name, "floor": entry["floor"], "measured_anew": anew, **found}


def not_held(found: dict[str, Any]) -> list[str]:
    """What must hold of a landscape and does not."""
    name, floor = found["name"], found["floor"]
    wrong = [f"{name} was measured anew: run the step `floors`"] if found["measured_anew"] else []
    wrong += [f"{name}: evolution scores {found['evolution']:.3f}, below {floor:.3f}"] * (found["evolution"] < floor)
    wrong += [f"{name}: random search scores {found['random']:.3f}, not below {floor:.3f}"] * (found["random"] >= floor)
    return wrong


def hold(out: Path | None) -> int:
    """The step `hold`: every kept landscape."""
    found = [held(path) for path in sorted(LANDSCAPES.glob("*.json.gz"))]
    print(json.dumps(found, indent=1))
    if out is not None:
        out.write_text(json.dumps(rounded({**provenance(), "landscapes": found}), indent=1) + "\n")
    holds.require([each for landscape in found for each in not_held(landscape)])
    return 0


# The command --------------------------------------------------------------------------------------------------------


def arguments(line: Sequence[str] | None = None) -> argparse.Namespace:
    """From the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("measure", help="judge every valid point of a space, or go on with it")
    step.add_argument("space", help="a space file, the name of one that is shipped, or a landscape to measure again")
    step.add_argument("out", type=Path, help="the landscape; gzipped if the name ends in .gz")
    step.add_argument("--store", help="what was judged so far: path or URL; as for `autotuner tune` if left out")
    step.add_argument("--devices", help="GPUs of one model: cuda:0,cuda:1 or all")
    step.add_argument("--minutes", type=float, default=math.inf, help="start no more variants after this time")
    step.add_argument("--problem", action="append", default=[], help="in the place of the file's own")
    step = steps.add_parser("part", help="of what was judged so far the landscape of a smaller space")
    step.add_argument("space", help="the space file")
    step.add_argument("out", type=Path)
    step.add_argument("--store", required=True, help="of a `measure`")
    step = steps.add_parser("summary", help="what landscapes are, in a table")
    step.add_argument("files", type=Path, nargs="+")
    step = steps.add_parser("derive", help="give a landscape what its space file derives and expects by now")
    step.add_argument("space", help="the space file")
    step.add_argument("landscape", type=Path)
    step.add_argument("--problem", action="append", default=[], help="in the place of the file's own")
    step = steps.add_parser(
        "hub", help="landscapes, or studies as T4, in the layout of the AutoTuning Association's hub"
    )
    step.add_argument("folder", type=Path)
    step.add_argument("files", type=Path, nargs="+")
    step = steps.add_parser("floors", help=f"write {FLOORS} beside the landscapes of a folder")
    step.add_argument("folder", type=Path, nargs="?", default=LANDSCAPES)
    step.add_argument("--seeds", type=int, default=60, help="searches by each sampler on each landscape")
    step.add_argument("--fixed-seeds", type=int, default=FIXED_SEEDS, help="searches of each landscape in CI")
    step.add_argument("--jobs", type=int, default=2, help="processes")
    step = steps.add_parser("hold", help="exit code 1 where evolution does not reach the floor of a kept landscape")
    step.add_argument("--json", type=Path, metavar="PATH")
    return parser.parse_args(line)


def perform(options: argparse.Namespace) -> int:
    """The step that was asked for; the exit code."""
    if options.step == "measure":
        return measure_here(options)
    if options.step == "part":
        return part_of(options)
    if options.step == "hold":
        return hold(options.json)
    if options.step == "derive":
        with_derived(Landscape.read(options.landscape), space_of(options)).write(options.landscape)
    elif options.step == "hub":
        for path in options.files:
            hub.write(options.folder, hub_files(path))
    elif options.step == "summary":
        print(summary(named(options.files)))
    else:
        document = rounded(floors(options.folder, options.seeds, options.jobs, options.fixed_seeds))
        (options.folder / FLOORS).write_text(json.dumps(document, indent=1) + "\n")
        print(json.dumps(document["landscapes"], indent=1))
    return 0


def main() -> None:
    """Exit code 2 for what the user can mend, 3 for what is incomplete or our fault, 130 when stopped."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        sys.exit(perform(arguments()))
    except AutotunerError as error:
        print(f"landscapes: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else INCOMPLETE)
    except KeyboardInterrupt:
        print("landscapes: stopped; nothing is lost: the same command goes on where this one was", file=sys.stderr)
        sys.exit(STOPPED)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
