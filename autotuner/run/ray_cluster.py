"""A Ray cluster as a worker sees it: an actor for each device of a kind, and CPUs on which variants are built.

This module and the two beside it (`ray_executor`, `ray_lane`) are all that imports Ray. They are imported where a user
names a cluster, and nowhere else.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from autotuner.run.executor import Executor
from autotuner.run.line import MakeLine
from autotuner.run.ray_executor import AWAY_S, RayExecutor
from autotuner.run.ray_lane import DeviceActor, OpenLane
from autotuner.values.errors import AutotunerError, InfrastructureError, InputError

T = TypeVar("T")

GPU = "GPU"
"""Ray's name of it; Ray shows the process that has one no other."""
START_S = 180.0
"""Seconds in which every actor has to be there."""
ANSWER_S = 10.0
"""Seconds in which the address of a cluster has to answer at all."""
CALL_S = 120.0
"""Seconds that a question to all actors may take."""


class RayCluster:
    """Actors for the devices of a cluster, for as long as this process lives."""

    def __init__(self, address: str, units: Sequence[str], away_s: float = AWAY_S) -> None:
        """`address`: such as auto, or 10.0.0.1:6379. `units`: what the cluster calls a device, one for each kind that
        may be served; the first that it has is. `away_s`: seconds after which the jobs of an actor that stays away go
        to others.

        Raises InputError where there is no cluster, no device of that kind in it, or no CPU to build on.
        """
        self._away_s = away_s
        _connect(address)
        try:
            there = ray.cluster_resources()
            self.unit = next((unit for unit in units if there.get(unit, 0) >= 1), units[0])
            """What it calls a device of the kind that is served."""
            self.lanes, cpus = int(there.get(self.unit, 0)), int(there.get("CPU", 0))
            on_gpu = self.unit == GPU
            self._builders = cpus - self.lanes if on_gpu else cpus
            _require(self.lanes, self._builders, self.unit, address)
            # the thread that launches on a GPU needs a CPU of its own
            wants = {"num_gpus": 1, "num_cpus": 1} if on_gpu else {"num_cpus": 0, "resources": {self.unit: 1}}
            actor = ray.remote(max_restarts=-1, max_task_retries=0, **wants)(DeviceActor)
            self._actors = [actor.remote() for _ in range(self.lanes)]
            self.on_lanes(os.getpid, START_S)
        except BaseException:
            self.close()
            raise

    def on_lanes(self, function: Callable[[], T], seconds: float = CALL_S) -> list[T]:
        """What a function that can be pickled says on the node of each actor. Raises what it raises there on purpose,
        and InfrastructureError where a node does not answer."""
        try:
            answers: list[T] = ray.get([actor.call.remote(function) for actor in self._actors], timeout=seconds)
            return answers
        except GetTimeoutError:
            raise InfrastructureError(f"the cluster has not answered for {seconds:.0f} s; `ray status`") from None
        except RayError as error:
            if isinstance(error, RayTaskError) and isinstance(error.cause, AutotunerError):
                raise error.cause from None
            raise InfrastructureError(f"the cluster: {' '.join(str(error).split())}") from None

    def executor(self, open_lane: OpenLane, make_line: MakeLine) -> Executor:
        """Jobs on the cluster. `open_lane` makes an actor's own executor on its node, `make_line` what builds."""
        return RayExecutor(self._actors, open_lane, make_line, self._builders, self._away_s)

    def close(self) -> None:
        """Leaves the cluster; the actors end."""
        ray.shutdown()


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    with _same_signals():
        try:
            if port.isdecimal():  # Ray itself goes on trying for minutes
                socket.create_connection((host, int(port)), ANSWER_S).close()
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
        except (OSError, ValueError, OverflowError, RuntimeError, RayError) as error:
            why = " ".join(str(error).split())
            raise InputError(
                f"--ray {address}: {why}; start a node on this machine: `ray start --address HEAD:6379`"
            ) from None


@contextmanager
def _same_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself: a worker has to hear it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _require(lanes: int, builders: int, unit: str, address: str) -> None:
    if lanes < 1:
        how = "--num-gpus 1" if unit == GPU else f"""--resources '{{"{unit}": 1}}'"""
        raise InputError(f"--ray {address}: no node offers {unit}; start one with `ray start ... {how}`")
    if builders < 1:
        raise InputError(f"--ray {address}: no CPU is left to build on; start a node with `ray start ... --num-cpus 4`")
