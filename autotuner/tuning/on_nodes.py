"""What the nodes of a cluster are asked: functions of this module are pickled by name and called there.

Each node has an installation of its own. Before anything is judged it is seen to be the same as the driver's.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autotuner.devices import DEVICES, Chosen, Wishes, device_names
from autotuner.forge.family import Family
from autotuner.run.executor import Executor
from autotuner.run.line import GatedLine, LineFactory
from autotuner.spaces.space import SpaceFile
from autotuner.values.errors import InputError
from autotuner.values.outcome import Device

if TYPE_CHECKING:
    from autotuner.run.ray_cluster import RayCluster
    from autotuner.tuning.workbench import Workbench

PATIENCE_S = 600.0
"""Seconds that a node waits for an autotuner of its own machine that has the device."""


def names_of(kind: str) -> tuple[str, ...]:
    """Under which names the store knows the devices of that kind on this machine that this process sees."""
    return device_names(kind, DEVICES[kind].choose(Wishes()))


def names(cluster: RayCluster, kind: str) -> tuple[str, ...]:
    """A name for each lane of a cluster. Of several nodes on one machine the later ones have a number."""
    found: list[str] = []
    for (name, *_), number in zip(cluster.on_lanes(partial(names_of, kind)), range(cluster.lanes), strict=True):
        found.append(f"{name}.{number}" if name in found else name)
    return tuple(found)


def chosen(cluster: RayCluster, choose: Callable[[], Chosen]) -> Chosen:
    """The devices of a cluster, as those of one machine; each node is asked `choose`. Raises InputError where they are
    not of one model."""
    found = cluster.on_lanes(partial(_choose, choose))
    models = {device.name: host for host, device in found}
    if len(models) > 1:
        there = ", ".join(f"{name} on {host}" for name, host in sorted(models.items()))
        raise InputError(f"a study is of one model of device, and the cluster has {there}; give each a cluster")
    return Chosen(found[0][1], tuple(f"{host}/{number}" for number, (host, _) in enumerate(found)))


def _choose(choose: Callable[[], Chosen]) -> tuple[str, Device]:
    return socket.gethostname(), choose().device


def executor(cluster: RayCluster, make: Callable[[], Workbench], driver: Workbench) -> Executor:
    """Jobs on the nodes of a cluster, on a workbench that each node has from `make`, for the driver's."""
    line = partial(_line, driver.space.file, driver.device)
    return cluster.executor(partial(_lane, make, driver.built_from), line)


@contextmanager
def _lane(make: Callable[[], Workbench], built_from: str) -> Iterator[Executor]:
    """The processes of this node. Raises InputError where it is not the machine that the study is about."""
    here = make()
    if here.built_from != built_from:
        raise InputError(
            f"{socket.gethostname()} has other sources, another compiler or another PyTorch than the worker's machine: "
            "install the same on every node"
        )
    with here.held(PATIENCE_S, lambda _: None), closing(here.executor()) as found:
        yield found


def _line(file: SpaceFile, device: Device) -> GatedLine:
    """Builds on this node, which need not have such a device."""
    family = Family.find(file.family, near=Path(file.path).resolve().parent)
    return LineFactory(device, DEVICES[device.backend].toolchain(device), family)()
