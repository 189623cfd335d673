"""A simulated sweep on the nodes of a Ray cluster, one of which is killed: how often each trial was begun."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from autotuner.run.executor import Executor
from autotuner.run.line import Passed
from autotuner.run.local import LocalExecutor
from autotuner.store import Store
from autotuner.tuning.run.driver import Budget, Driver, Event, Judged
from autotuner.tuning.run.plan import Plan
from autotuner.values import config
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, Say
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault
from tests.helpers import simulated
from tests.helpers.fake_line import FakeLine
from tests.helpers.ray_nodes import Nodes

UNIT = "autotuner_test"
WORK_S = 0.5
"""Of a build, and of a check."""


class NotingLine(FakeLine):
    """Notes the beginning of each build and of each judging in a file, and where it was."""

    def __init__(self, file: Path) -> None:
        super().__init__(simulated.truth)
        self._file = file

    def build(self, variant: Variant, conditions: Conditions) -> Artifact | Fault:
        self._note("build", variant)
        return super().build(variant, conditions)

    def check(self, artifact: Artifact, conditions: Conditions, say: Say, passed: Passed | None = None) -> GateReport:
        if passed is None:
            self._note("judge", artifact.variant)
        return super().check(artifact, conditions, say, passed)

    def _note(self, what: str, variant: Variant) -> None:
        with self._file.open("a", buffering=1) as notes:
            notes.write(f"{what} {variant.digest} {config.cache_dir().name} {time.time()}\n")
        time.sleep(WORK_S)


def _opened(file: Path) -> AbstractContextManager[Executor]:
    return closing(LocalExecutor(partial(NotingLine, file), jobs_per_process=20))


class Swept(NamedTuple):
    """What became of a sweep."""

    judged: int
    failed: int
    """Trials that ended without a judgement."""
    tries: dict[str, Counter[int]]
    """Of builds and of judgings: how many variants were begun so often."""
    again: int
    """Beginnings beyond the first."""
    moved: int
    """Judgings by the nodes that were left, after the other was killed."""
    seconds: float


def start(nodes: Nodes) -> None:
    """Two nodes that judge and build, and one that only builds."""
    nodes.start("one", cpus=1, resources={UNIT: 1})
    nodes.start("two", cpus=1, resources={UNIT: 1})
    nodes.start("three", cpus=1)


def _is_at_it(file: Path, node: str) -> bool:
    """Whether the node, now or within some time, is in the first half of a judging."""
    until = time.monotonic() + 4 * WORK_S
    while time.monotonic() < until:
        begun = [float(at) for what, _, where, at in _notes(file) if (what, where) == ("judge", node)]
        if begun and time.time() - begun[-1] < WORK_S / 2:
            return True
        time.sleep(0.01)
    return False


def _notes(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()]


def swept(nodes: Nodes, store: Store, file: Path, trials: int, kill_at: int) -> Swept:
    """Runs a sweep, and kills the node of the first lane once `kill_at` trials are judged."""
    killed_at = [float("inf")]
    started = time.monotonic()
    from autotuner.run.ray_cluster import RayCluster  # needs ray

    with closing(RayCluster(nodes.address, [UNIT], away_s=2.0)) as cluster:
        victim = cluster.on_lanes(config.cache_dir)[0].name

        def hear(event: Event) -> None:
            late = isinstance(event, Judged) and event.judged >= kill_at
            if late and killed_at[0] == float("inf") and _is_at_it(file, victim):
                nodes.kill(victim)
                killed_at[0] = time.time()

        with closing(cluster.executor(partial(_opened, file), partial(NotingLine, file))) as executor:
            plan = Plan(simulated.space(), simulated.DEVICE, simulated.conditions(), sampler="random")
            driver = Driver(store, executor, plan, hear)
            driver.run(Budget(trials=trials))
        outcomes = dict(store.outcomes(driver.name)).values()
    lines = _notes(file)
    begun = {what: Counter(digest for each, digest, *_ in lines if each == what) for what in ("build", "judge")}
    return Swept(
        judged=len({outcome.variant.digest for outcome in outcomes if outcome.verdict.judges}),
        failed=sum(not outcome.verdict.judges for outcome in outcomes),
        tries={what: Counter(counts.values()) for what, counts in begun.items()},
        again=sum(count - 1 for counts in begun.values() for count in counts.values()),
        moved=sum(what == "judge" and float(at) > killed_at[0] for what, _, _, at in lines),
        seconds=time.monotonic() - started,
    )


def unmet(found: Swept, trials: int, in_flight: int) -> list[str]:
    """What does not hold: each trial is judged, and what the node had in hand was begun once more, and no more often.
    `in_flight`: builds and judgings that a node does at a time."""
    said = []
    if found.judged != trials or found.failed:
        said.append(f"{found.judged} of {trials} trials were judged, {found.failed} were lost")
    if any(tries > 2 for counts in found.tries.values() for tries in counts):
        said.append(f"a trial was begun more than twice: {found.tries}")
    if not 0 < found.again <= in_flight:
        said.append(f"{found.again} builds and judgings were begun again, of {in_flight} that a node does at most")
    if not found.moved:
        said.append("nothing was judged after the node was killed")
    return said
