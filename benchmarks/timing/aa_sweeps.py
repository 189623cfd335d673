"""Sweeps in which nobody can win: every candidate, the default and the baseline are one binary.

    python -m benchmarks.timing.aa_sweeps cpu|cuda [--sweeps 20] [--trials 16] [--minutes N] [--finals-minutes N]
        [--seed N] [--resume] [--json docs/results/aa_sweeps_DEVICE.json]

Each sweep is a real one (driver, executor, races, promotion, A/A races, finals) over the points of a shipped space, but
every point is built as a copy of the space's default variant, under an identity of its own, and the baseline's arm is
another load of it. The true ratio is 1 everywhere: nobody may be crowned, and the confirmed intervals should cover 1.
The gate judges that binary once; its report stands for the copies. On a CPU both sides have one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from autotuner.devices import DEVICES
from autotuner.gate.cases import Case
from autotuner.ops import op_of
from autotuner.race.arms import Arm, Audited, Track, Tracks, VariantArm
from autotuner.run.executor import Executor
from autotuner.run.line import Line, LineFactory, Passed
from autotuner.run.local import LocalExecutor
from autotuner.store import FinalsRecord, Store
from autotuner.tuning.finals.finals import Finals
from autotuner.tuning.finals.retrials import SECONDS, Retrials
from autotuner.tuning.run.driver import Budget, Driver, Event, TieFound
from autotuner.tuning.run.plan import Plan
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, BackendTiming, Calibration, Measurement, Say, Stop
from autotuner.values.variant import Variant, digest_of
from autotuner.values.verdict import Fault
from autotuner.values.versions import version_of
from benchmarks import holds
from benchmarks.provenance import command_line

SPACES = {"cpu": "sdpa_cpu", "cuda": "sdpa_cuda"}
CALM_SAMPLES = 15


class OneBinary:
    """A real line that builds every variant as a copy of one."""

    imports = False

    def __init__(self, inner: Line, one: Variant, copies: str) -> None:
        self._inner, self._one, self._copies = inner, one, Path(copies)

    def calibrate(self, conditions: Conditions, say: Say) -> Calibration:
        name = op_of(conditions.compiled_for).tensors().PEER  # a name that the gate knows; its arm is the binary's
        timings = tuple(
            BackendTiming(backend=name, problem=track.problem, median_us=1e6 * calm(track.baseline(name)))
            for track in self.tracks(conditions)
        )
        return Calibration(baselines=(name,) * len(timings), timings=timings, references=())

    def build(self, variant: Variant, conditions: Conditions) -> Artifact | Fault:
        made = self._inner.build(self._one, conditions)
        if isinstance(made, Fault):
            return made
        digest = digest_of([made.digest, variant.digest])
        folder = self._copies / digest
        folder.mkdir(exist_ok=True)
        path = shutil.copy(made.path, folder)
        return made.model_copy(update={"variant": variant, "digest": digest, "program_hash": digest, "path": path})

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        kept = self._copies / f"report-{passed.level if passed is not None else 'first'}.json"
        if not kept.exists():
            one = self._original(conditions)
            before = passed and passed._replace(report=passed.report.model_copy(update={"artifact": one.digest}))
            kept.write_text(self._inner.check(one, conditions, say, before).model_dump_json())
        found = GateReport.model_validate_json(kept.read_bytes()).model_copy(update={"artifact": artifact.digest})
        for each in found.checks:  # a pass counts only where its check was begun
            say(each.code)
        return found

    def compile_first(self, conditions: Conditions, artifacts: Sequence[Artifact], say: Say) -> None:
        self._inner.compile_first(conditions, artifacts, say)

    def references(self, conditions: Conditions, artifact: Artifact | None) -> list[tuple[Case, int]]:
        return self._inner.references(conditions, artifact)

    def tracks(self, conditions: Conditions) -> Tracks:
        one = self._original(conditions)
        return [OneTrack(track, one) for track in self._inner.tracks(conditions)]

    def _original(self, conditions: Conditions) -> Artifact:
        made = self._inner.build(self._one, conditions)
        assert isinstance(made, Artifact), made
        return made


class OneTrack:
    """A track whose baseline is the binary, too."""

    def __init__(self, inner: Track, one: Artifact) -> None:
        self._inner, self._one = inner, one
        self.problem, self.gap, self.settles_s = inner.problem, inner.gap, inner.settles_s
        inner.baseline = self.baseline  # type: ignore[assignment]  # which its audits ask for

    def another(self) -> OneTrack | None:
        inner = self._inner.another()
        return None if inner is None else OneTrack(inner, self._one)

    def baseline(self, backend: str) -> Arm:
        return self._inner.variant(self._one)

    def variant(self, artifact: Artifact, again: bool = False) -> VariantArm:
        return self._inner.variant(artifact, again)

    def audit(self, artifact: Artifact, baseline: str) -> Audited:
        return self._inner.audit(artifact, baseline)

    def throttled(self) -> str | None:
        return self._inner.throttled()

    def shared(self) -> str | None:
        return self._inner.shared()


def calm(arm: Arm) -> float:
    return statistics.median(arm() for _ in range(CALM_SAMPLES))


def make(factory: LineFactory, one: Variant, copies: str) -> OneBinary:
    return OneBinary(factory(), one, copies)


def executor_of(workbench: Workbench, copies: str) -> LocalExecutor:
    """The session's own processes, but of lines that build copies of the default variant."""
    kind, lanes = DEVICES[workbench.device.backend], workbench.chosen.lanes
    factory = LineFactory(workbench.device, workbench.toolchain, workbench.family)
    return LocalExecutor(
        partial(make, factory, workbench.variant(workbench.space.default_index), copies),
        preload=(kind.module,),
        builders=kind.builders(len(lanes)),
        overlap=kind.overlap,
        jobs_per_process=kind.jobs_per_process,
        devices=lanes,
    )


def sweep(
    workbench: Workbench, store: Store, executor: Executor, trials: int, finals_s: float, seed: int
) -> dict[str, Any]:
    """One sweep and its finals."""
    ties: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, TieFound):
            ties.append(event.tie)

    plan = Plan(
        workbench.space, workbench.device, workbench.conditions, sampler="random", seed=seed, built_from=f"aa {seed}"
    )
    driver = Driver(store, executor, plan, listen)
    driver.run(Budget(trials=trials))
    environment = workbench.device.environment
    again = Retrials(store, driver.name, workbench.conditions, executor, environment, seconds=finals_s)
    finals = Finals(again, workbench.default_digest).run()
    measured = [o.measurement for o in dict(store.outcomes(driver.name)).values() if o.measurement is not None]
    return {"seed": seed, **searched(measured, ties), **confirmed(finals)}


def searched(measured: list[Measurement], ties: list[float]) -> dict[str, Any]:
    """What the search believed."""
    return {
        "judged": len(measured),
        "promoted": sum(each.stopped == Stop.PROMOTED for each in measured),
        "raced_out": sum(each.censored for each in measured),
        "best_estimate": min(each.objective for each in measured),
        "tie": max(ties, default=None),
    }


def confirmed(finals: FinalsRecord) -> dict[str, Any]:
    """What the finals say."""
    standing = finals.standing
    assert standing is not None
    ratios = {each.digest: each.log_ratio for each in standing.finalists}
    leader = ratios[standing.leader or ""]
    return {
        "crowned": standing.crowned,
        "finalists": len(ratios),
        "tied": sum(each.tied for each in standing.finalists),
        "leader": [leader.low, leader.mid, leader.high],
        "covered": sum(each.low <= 0 <= each.high for each in ratios.values()),
        "finals_tie": standing.tie,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    finalists = sum(row["finalists"] for row in rows)
    return {
        "sweeps": len(rows),
        "crowned": sum(row["crowned"] for row in rows),
        "candidates": sum(row["judged"] for row in rows),
        "promoted_wrongly": sum(row["promoted"] for row in rows),
        "lost_equal_arms": sum(row["raced_out"] for row in rows),
        "covered": sum(row["covered"] for row in rows) / finalists,
        "finalists": finalists,
        "largest_leader": max(abs(row["leader"][1]) for row in rows),
        "largest_estimate": max(abs(row["best_estimate"]) for row in rows),
    }


def merged(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One document of several."""
    rows = sorted((row for document in documents for row in document["rows"]), key=lambda row: row["seed"])
    return {**documents[-1], "summary": summary(rows), "rows": rows}


def unmet(document: dict[str, Any]) -> list[str]:
    """What does not hold of it."""
    crowned = document["summary"]["crowned"]
    return [f"{crowned} sweeps crowned somebody"] if crowned else []


def earlier(kept: Path | None, device: str, trials: int) -> list[dict[str, Any]]:
    """The sweeps of a file that was written on the same model of device with as many trials each."""
    if kept is None or not kept.exists():
        sys.exit("aa_sweeps: --resume goes on with a file: name it with --json")
    document = json.loads(kept.read_text())
    if (document["device"], document.get("trials")) != (device, trials):
        sys.exit(
            f"aa_sweeps: {kept} is of {document['device']}, {document.get('trials')} trials a sweep; start a new file"
        )
    found: list[dict[str, Any]] = document["rows"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", choices=tuple(SPACES))
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further sweep after this time")
    parser.add_argument("--finals-minutes", type=float, default=SECONDS / 60, help="of each sweep, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first sweep")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--resume", action="store_true", help="go on after the sweeps that the file of --json has")
    holds.add_option(parser)
    options = parser.parse_args()
    workbench = Workbench(load_space(SPACES[options.device], 1 if options.device == "cpu" else None))
    rows = earlier(options.json, workbench.device.name, options.trials) if options.resume else []
    until = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="autotuner-aa-") as folder, contextlib.ExitStack() as stack:
        store = stack.enter_context(Store.open(f"{folder}/studies.db"))
        executor = stack.enter_context(closing(executor_of(workbench, folder)))
        for number in range(len(rows), options.sweeps):
            if time.monotonic() > until:
                break
            finals_s, seed = 60 * options.finals_minutes, options.seed + number
            rows.append(sweep(workbench, store, executor, options.trials, finals_s, seed))
            print(f"sweep {number}: {rows[-1]}", flush=True)
            document = {
                "command": command_line(),
                "when": datetime.now(UTC).isoformat(timespec="seconds"),
                "device": workbench.device.name,
                "torch": version_of("torch"),
                "trials": options.trials,
                "space": workbench.space.name,
                "summary": summary(rows),
                "rows": rows,
            }
            if options.json is not None:
                options.json.write_text(json.dumps(document, indent=1) + "\n")
    holds.measured([str(number) for number in range(len(rows))], "sweep")
    print(json.dumps(summary(rows), indent=1))
    if options.hold:
        holds.require(unmet({"summary": summary(rows)}))


if __name__ == "__main__":
    main()
