"""Made-up studies, written by the store's own functions: what the pages are measured with and drawn from.

    python -m benchmarks.service.made_up STORE [--trials 10000] [--seed 0]

The points are those of a shipped space. Times follow its parameters, with noise; rejects gather at some values.
The documents have the size of real ones (some 28 kB a trial), since that is what a page has to read past.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import sqlite3
import statistics
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autotuner.devices.cuda.architecture import architecture
from autotuner.gate.check import Subject
from autotuner.gate.gate import required
from autotuner.race.confirm import confirm
from autotuner.spaces.space import Space
from autotuner.store import Finalist, FinalsResult, Lineup, Proof, Store
from autotuner.tuning.run.plan import Plan
from autotuner.tuning.workbench import load_space
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import CaseErrors, CaseResult, CheckResult, GateReport
from autotuner.values.outcome import (
    Artifact,
    BackendTiming,
    Calibration,
    Device,
    Heat,
    Measurement,
    Outcome,
    Stop,
    Timing,
)
from autotuner.values.problem import Problem
from autotuner.values.ratio import LogRatio
from autotuner.values.variant import Variant, digest_of
from autotuner.values.verdict import Fault, Verdict

SPACE = "sdpa_cuda"
PROBLEMS = ("(1,8,512,64) float16", "(4,8,1024,64) float16", "(1,16,4096,64) float16", "(8,8,197,64) float16")
BASELINE = "flash"
CASES = 6
"""Cases of each check of a made-up gate: they give its document the size of a real one."""
BLOCKS = 12
BUILDERS = 3
"""Those of a made-up run."""
WAITS_S = 3.0
"""Seconds at most between the end of a made-up build and its judging."""
REJECTS = {
    "G2.T1": ("G2.quick", Verdict.INCORRECT, "max error 0.041 where 0.004 is allowed", "Q3 2x3x509x509 randn"),
    "build.failed": (None, Verdict.BUILD_FAILED, "ptxas: uses too much shared data (0x1c000 bytes, 0x18c00 max)", None),
    "G3.repeat": ("G3.repeat", Verdict.NONDETERMINISTIC, "launch 12 gave other bits than the first", None),
    "process.signal": (None, Verdict.CRASHED, "the process died of signal 11", None),
}


class MadeUp:
    """One made-up study."""

    def __init__(self, seed: int = 0, name: str = "NVIDIA H100 (made up)", problems: Sequence[str] = PROBLEMS) -> None:
        self.random = random.Random(seed)
        facts = {**architecture("sm_90").facts(), "CUBLAS": False, "TRITON": False}
        self.space = Space.enumerate(load_space(SPACE, problems=problems), facts)
        self.problems = self.space.file.problems
        self.device = Device(backend="cuda", name=name, facts=facts, environment={"torch": "2.13.0"})
        conditions = Conditions(problems=self.problems, seeds=(1, 2, 3, 4))
        self.record = Plan(self.space, self.device, conditions, seed=seed).record
        self._weights = {
            (name, value): self.random.gauss(0, 0.09)
            for name in self.space.parameters
            for value in self.space.values[name]
        }
        self._bad = self.random.sample([key for key in self._weights if key[0] != "IMPL"], 3)
        self._floor, self._offset = 0.0, 0.0
        drawn = self.random.sample(range(len(self.space)), min(3000, len(self.space)))
        self._offset = -0.25 - min(self._slowness(self.space.point(each)) for each in drawn)

    def calibration(self) -> Calibration:
        timings = tuple(
            BackendTiming(backend=backend, problem=problem, median_us=self.baseline_us(problem) * factor)
            for problem in self.problems
            for backend, factor in ((BASELINE, 1.0), ("math", 2.9))
        )
        return Calibration(baselines=(BASELINE,) * len(self.problems), timings=timings, references=())

    @staticmethod
    def baseline_us(problem: Problem) -> float:
        return 6 + problem.flops / 3.2e8

    def outcomes(self, trials: int) -> Iterator[Outcome]:
        """A search that learns: later points are the better of a few drawn ones."""
        # In the same order in every study, so that two of them have variants in common.
        points = deque(random.Random(0).sample(range(len(self.space)), min(3 * trials, len(self.space))))
        for number in range(min(trials, len(points))):
            tries = [points.popleft() for _ in range(min(1 + 2 * number // trials, len(points)))]
            index = min(tries, key=lambda each: self._slowness(self.space.point(each)))
            yield self._outcome(Variant.of(self.space.file.family, "cuda", self.space.point(index)))

    def _slowness(self, point: dict[str, int | str]) -> float:
        return sum(self._weights[name, value] for name, value in point.items()) + self._offset

    def _outcome(self, variant: Variant) -> Outcome:
        seconds = {"build": 2 + self.random.random(), "check": 1 + self.random.random(), "measure": 0.4}
        where = [place for place, (name, value) in enumerate(self._bad) if variant.point.get(name) == value]
        if where and self.random.random() < 0.85:
            return self._rejected(variant, list(REJECTS)[where[0]], seconds)
        if self.random.random() < 0.01:
            return self._rejected(variant, "process.signal", seconds)
        log = self._slowness(variant.point) + self.random.gauss(0, 0.01)
        hopeless = log > self._floor + 0.3
        self._floor = min(self._floor, log)
        return Outcome(
            variant=variant,
            verdict=Verdict.RACED_OUT if hopeless else Verdict.MEASURED,
            artifact=self.artifact(variant),
            gate=self._gate(variant, None),
            measurement=self._measurement(log, hopeless),
            seconds=seconds,
        )

    def _rejected(self, variant: Variant, code: str, seconds: dict[str, float]) -> Outcome:
        check, verdict, detail, case = REJECTS[code]
        fault = Fault(verdict=verdict, code=code, detail=detail, case=case)
        if code == "build.failed":
            return Outcome(variant=variant, verdict=verdict, fault=fault, seconds={"build": seconds["build"]})
        del seconds["measure"]
        gate, built = self._gate(variant, fault, check), self.artifact(variant)
        return Outcome(variant=variant, verdict=verdict, artifact=built, gate=gate, fault=fault, seconds=seconds)

    def artifact(self, variant: Variant) -> Artifact:
        digest = digest_of(["made up", variant.digest])
        return Artifact(
            variant=variant,
            digest=digest,
            name=f"{variant.family}_{variant.impl}_{digest[:16]}",
            path="",
            library_sha256=digest_of(["library", digest]),
            program_hash=digest_of(["program", digest]),
            macros={name: str(value) for name, value in {**variant.point, **self.problems[0].compiled}.items()},
            compiler="nvcc 13.0",
            flags=("-O3", "-arch=sm_90"),
            architecture="sm_90",
            resources={
                "registers": 96 + 8 * self.random.randrange(16),
                "shared_bytes": 4096 * self.random.randrange(54),
            },
            build_seconds=2.1,
        )

    def _gate(self, variant: Variant, fault: Fault | None, failed: str | None = None) -> GateReport:
        codes = required(Subject(self.problems[0], streams=False, bounded=False))
        ran = codes[: codes.index(failed) + 1] if failed is not None else codes if fault is None else codes[:1]
        checks = tuple(self._check(code, fault if code == failed else None) for code in ran)
        return GateReport(
            artifact=digest_of(["made up", variant.digest]), required=tuple(codes), checks=checks, fault=fault
        )

    def _check(self, code: str, fault: Fault | None) -> CheckResult:
        cases = [self._case(f"Q{place} 2x3x{100 + place}x{200 + place} randn", 0.4) for place in range(CASES)]
        if fault is not None and fault.case is not None:
            cases[-1] = self._case(fault.case, 10.3)
        return CheckResult(
            code=code, status="pass" if fault is None else "fail", seconds=0.05, launches=CASES, cases=tuple(cases)
        )

    def _case(self, name: str, worst: float) -> CaseResult:
        error = worst * (0.7 + 0.3 * self.random.random())
        errors = CaseErrors(
            nonfinite=0,
            max_abs=error * 0.004,
            max_abs_tol=0.004,
            row_rel=error * 0.002,
            row_rel_tol=0.003,
            slice_rel=error * 0.001,
            slice_rel_tol=0.002,
            bias=1e-5,
            worst_index=(0, 1, 17, 33),
            worst_value=0.31,
            worst_reference=0.31 + error * 0.004,
            first_bad_row=(0, 1, 17) if worst > 1 else None,
            bad_rows=0.02 if worst > 1 else 0.0,
            peer_ratio=1.1,
        )
        return CaseResult(case=name, seed_index=0, errors=errors)

    def _measurement(self, log: float, hopeless: bool) -> Measurement:
        timings = tuple(self._timing(problem, log + self.random.gauss(0, 0.05), hopeless) for problem in self.problems)
        objective = statistics.fmean(each.log_ratio.mid for each in timings)
        stopped = Stop.HOPELESS if hopeless else Stop.PRECISE
        return Measurement(timings=timings, objective=objective, cache="cold", stopped=stopped)

    def _timing(self, problem: Problem, log: float, hopeless: bool) -> Timing:
        base, blocks = self.baseline_us(problem), 4 if hopeless else BLOCKS
        logs = [log + self.random.gauss(0, 0.006) for _ in range(blocks)]
        bases = [base * math.exp(self.random.gauss(0, 0.004)) for _ in range(blocks)]
        middle = statistics.median(logs)
        return Timing(
            problem=problem,
            baseline=BASELINE,
            variant_us=tuple(us * math.exp(each) for us, each in zip(bases, logs, strict=True)),
            baseline_us=tuple(bases),
            log_ratio=LogRatio(low=middle - 0.006, mid=middle, high=middle + 0.006),
            calls=(20, 20),
        )

    def heat(self, entrants: Sequence[tuple[str, float]], blocks: int = 24) -> Heat:
        """Races of artifacts at these log-ratios, in a process of its own."""

        def times(us: float, log: float) -> tuple[float, ...]:
            process = self.random.gauss(0, 0.002)
            return tuple(us * math.exp(log + process + self.random.gauss(0, 0.004)) for _ in range(blocks))

        bases = [self.baseline_us(problem) for problem in self.problems]
        return Heat(
            entrants=tuple(digest for digest, _ in entrants),
            baselines=(BASELINE,) * len(bases),
            us=tuple(tuple(times(us, log) for us in bases) for _, log in entrants),
            baseline_us=tuple(times(us, 0.0) for us in bases),
        )


def write(
    store: Store,
    trials: int,
    seed: int = 0,
    finals: bool = True,
    name: str = "NVIDIA H100 (made up)",
    problems: Sequence[str] = PROBLEMS,
) -> str:
    """Writes a made-up study with that number of trials; its name."""
    made = MadeUp(seed, name, problems)
    study = made.record.name
    store.ensure_study(made.record)
    session = store.start_session(study, made.calibration(), made.device.environment, lane=0, builders=BUILDERS)
    measured: list[tuple[float, int, Outcome]] = []
    for number, outcome in enumerate(made.outcomes(trials)):
        store.record(study, session, number, outcome)
        if outcome.verdict == Verdict.MEASURED:
            measured.append((outcome.objective, number, outcome))
    best = sorted(measured, key=lambda each: each[:2])[:6]
    for _ in range(3 if best else 0):
        digest = made.artifact(best[0][2].variant).digest
        store.record_heat(study, "aa", made.heat([(digest, best[0][0]), (digest, best[0][0])]), session_id=session)
    if finals and len(best) > 2:
        _hold_finals(store, made, best)
    store.finish_session(session)
    return study


def spread_times(path: Path, study: str) -> None:
    """Sets the times of a made-up study apart as a device would: what was written in seconds took hours. With SQL of
    its own, since no function of the store changes what was recorded."""
    with closing(sqlite3.connect(path)) as connection, connection:
        (key,) = connection.execute("SELECT id FROM at_study WHERE name = ?", (study,)).fetchone()
        began = datetime.now(UTC) - timedelta(hours=9)
        at, draw, free = 20.0, random.Random(key), [0.0] * BUILDERS
        for trial, outcome in connection.execute(
            "SELECT id, outcome FROM at_trial WHERE study_id = ? ORDER BY number", (key,)
        ).fetchall():
            seconds = json.loads(outcome)["seconds"]
            built = max(heapq.heappop(free), at - seconds["build"] - WAITS_S * draw.random()) + seconds["build"]
            heapq.heappush(free, built)
            judging = seconds.get("check", 0.0) + seconds.get("measure", 0.0)
            at = max(at, built) + judging + 0.15 * draw.random()
            moments = (_written(began + timedelta(seconds=each)) for each in (at, built - seconds["build"]))
            connection.execute("UPDATE at_trial SET recorded_at = ?, build_began = ? WHERE id = ?", (*moments, trial))
        ended = _written(began + timedelta(seconds=at + 95))
        connection.execute(
            "UPDATE at_session SET started_at = ?, finished_at = ? WHERE study_id = ?", (_written(began), ended, key)
        )
        connection.execute(
            "UPDATE at_finals SET started_at = ?, finished_at = ? WHERE study_id = ?", (ended, ended, key)
        )
        connection.execute("UPDATE at_study SET created_at = ? WHERE id = ?", (_written(began), key))
        connection.execute("UPDATE at_heat SET recorded_at = ? WHERE study_id = ?", (ended, key))


def _written(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}"


def _hold_finals(store: Store, made: MadeUp, best: Sequence[tuple[float, int, Outcome]]) -> None:
    entrants = [(made.artifact(outcome.variant).digest, log) for log, _, outcome in best]
    finalists = tuple(
        Finalist(number=number, variant=outcome.variant, digest=digest, searched=digest, estimate=log)
        for (log, number, outcome), (digest, _) in zip(best, entrants, strict=True)
    )
    lineup = Lineup(finalists=finalists, baselines=(BASELINE,) * len(made.problems), tie=0.005, aa_races=3)
    key = store.start_finals(made.record.name, lineup, made.device.environment)
    # The best of many looks better than it is: in the finals each loses some of what it seemed to have.
    heats = [
        made.heat([(digest, log + 0.012 + 0.002 * place)])
        for _ in range(5)
        for place, (digest, log) in enumerate(entrants)
    ]
    for heat in heats:
        store.record_heat(made.record.name, "finals", heat, finals_id=key)
    standing = confirm(heats, lineup.tie, lineup.objective)
    many = CheckResult(code="G6.many", status="pass", seconds=4.0, launches=181_000)
    proof = Proof(number=finalists[0].number, digest=finalists[0].digest, checks=(many,))
    store.finish_finals(key, FinalsResult(**dict(standing), proofs=(proof,)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.made_up", description=__doc__)
    parser.add_argument("store", help="path of the store to write to")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = datetime.now(UTC)
    with Store.open(options.store) as store:
        name = write(store, options.trials, options.seed)
    spread_times(Path(options.store), name)
    print(f"{name}: {options.trials} trials in {(datetime.now(UTC) - started).total_seconds():.0f} s")


if __name__ == "__main__":
    main()
