"""A Ray cluster of several nodes on this machine, each with a cache of its own, and what its nodes are asked in tests.

A node is a raylet with its processes: to kill it is to kill all of them, as when a machine loses its power.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from autotuner.run.executor import Executor
from autotuner.run.fork_server import descendants_of
from autotuner.run.local import LocalExecutor
from autotuner.values import config
from tests.conformance.executors import play
from tests.helpers.processes import wait_for

RAY = (sys.executable, "-m", "ray.scripts.scripts")


class Nodes:
    """The nodes of a cluster, by the name that they were started with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._scratch = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets lie there: a short name

    def cache(self, name: str) -> Path:
        """Where the node keeps its builds."""
        return self._folder / name

    def start(
        self, name: str, cpus: int = 0, resources: Mapping[str, int] | None = None, gpus: Sequence[str] = ()
    ) -> None:
        """Starts a node and waits until it is there; the first one is the head."""
        there = ["--address", self.address]
        if not self._nodes:
            port = self.address.rpartition(":")[2]
            there = ["--head", "--port", port, "--include-dashboard", "false", "--temp-dir", self._scratch]
        offers = ["--num-cpus", str(cpus), "--num-gpus", str(len(gpus)), "--resources", json.dumps(resources or {})]
        more = ["--node-ip-address", "127.0.0.1", "--object-store-memory", str(100 << 20), "--block"]
        around = {**os.environ, config.CACHE: str(self.cache(name)), "RAY_USAGE_STATS_ENABLED": "0"}
        around |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
        log = self._folder / f"{name}.log"
        with log.open("wb") as said:
            command = [*RAY, "start", *there, *offers, *more]
            self._nodes[name] = subprocess.Popen(command, env=around, stdout=said, stderr=said)
        wait_for(lambda: b"Ray runtime started" in log.read_bytes())

    def kill(self, name: str) -> None:
        """Kills a node with all that runs on it."""
        node = self._nodes.pop(name)
        for pid in (*descendants_of(node.pid), node.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.wait()

    def end(self) -> None:
        """Ends all of them."""
        for name in reversed(list(self._nodes)):
            self.kill(name)
        shutil.rmtree(self._scratch, ignore_errors=True)


@contextmanager
def running(folder: Path) -> Iterator[Nodes]:
    """A cluster whose first node offers nothing."""
    nodes = Nodes(folder)
    try:
        nodes.start("head")
        yield nodes
    finally:
        nodes.end()


def plays() -> AbstractContextManager[Executor]:
    """What makes the executor of a node whose backend is `play()`."""
    return closing(LocalExecutor(play))
