"""Jobs on the nodes of a Ray cluster of this machine: the contract of executors, and nodes that die."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is an extra: pip install 'kernel-autotuner[ray]'")

from autotuner.run.executor import Executor
from autotuner.run.ray_cluster import RayCluster
from autotuner.values import config
from autotuner.values.verdict import Verdict
from tests.conformance.executors import Contract, judge_job, notes, play
from tests.helpers import ray_nodes
from tests.helpers.command_line import autotuner, one_line
from tests.helpers.ends import outcome
from tests.helpers.processes import wait_for
from tests.helpers.ray_nodes import Nodes

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

UNIT = "autotuner_test"
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two nodes with a device each, and one that builds."""
    with ray_nodes.running(tmp_path_factory.mktemp("nodes")) as found:
        found.start("one", resources={UNIT: 1})
        found.start("two", resources={UNIT: 1})
        found.start("builder", cpus=2)
        yield found


@pytest.fixture(scope="module")
def cluster(nodes: Nodes) -> Iterator[RayCluster]:
    with closing(RayCluster(nodes.address, [UNIT], away_s=1.0)) as found:
        yield found


class TestRayExecutor(Contract):
    @pytest.fixture(autouse=True)
    def _cluster(self, cluster: RayCluster) -> None:
        self._made_on = cluster

    def make(self) -> Executor:
        return self._made_on.executor(ray_nodes.plays, play)


def test_what_is_no_cluster_or_offers_no_device_is_refused_with_the_remedy(tmp_path: Path, nodes: Nodes) -> None:
    """In processes of their own: one has one connection to Ray."""
    one_line(autotuner(tmp_path, "worker", "--ray", "127.0.0.1:1"), "127.0.0.1:1", "ray start --address HEAD:6379")
    serves = autotuner(tmp_path, "worker", "--ray", nodes.address, "--devices", "cpu")
    one_line(serves, "no node offers autotuner_cpu", "ray start")


def test_each_lane_is_a_process_on_a_node_of_its_own(cluster: RayCluster, nodes: Nodes) -> None:
    assert len(set(cluster.on_lanes(os.getpid))) == 2
    caches = cluster.on_lanes(config.cache_dir)
    assert sorted(caches) == sorted(nodes.cache(name) for name in ("one", "two"))


def test_a_node_that_is_killed_costs_the_job_it_did_one_more_try(
    cluster: RayCluster, nodes: Nodes, tmp_path: Path
) -> None:
    """What waited for the same node, and what runs elsewhere, is done once."""
    node = cluster.on_lanes(config.cache_dir)[0].name
    with closing(cluster.executor(ray_nodes.plays, play)) as executor:
        jobs = {}
        for name, lane in (("a0", 0), ("a1", 0), ("b0", 1), ("b1", 1)):
            jobs[executor.submit(judge_job("works", FOLDER=str(tmp_path), NAME=name, MS=3000), lane)] = name
        wait_for(lambda: {note.name for note in notes(tmp_path, "begin")} == {"a0", "b0"})
        nodes.kill(node)
        while jobs:
            done = executor.wait(120)
            assert outcome(done).verdict == Verdict.MEASURED
            assert done is not None
            jobs.pop(done[0])
        tries = {(note.name, note.pid) for note in notes(tmp_path, "begin")}
        begun = [name for name, _ in tries]
        assert {name: begun.count(name) for name in ("a0", "a1", "b0", "b1")} == {"a0": 2, "a1": 1, "b0": 1, "b1": 1}
