"""The built variants of a table: found in the cache, or built on request, and launched on torch's tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import torch

from autotuner.build.build import build as build_variant
from autotuner.build.build import built, cached_builds
from autotuner.build.family import Family
from autotuner.build.loaded_variant import LoadedVariant
from autotuner.build.status import DEVICE_ERROR
from autotuner.devices import DEVICES, Wishes
from autotuner.devices.kind import Serving
from autotuner.ops.tensors import Tensors
from autotuner.values.errors import InputError
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.table import Table, TableVariant
from autotuner.values.verdict import Fault

ALIGNMENT = 16
"""Bytes to which the address of each tensor must be aligned."""


class Ready:
    """A variant, loaded. One call at a time, as the ABI asks (kernels/abi/variant.h); a second thread waits."""

    def __init__(self, of: TableVariant, artifact: Artifact) -> None:
        """Raises InputError where the library is not what the table names."""
        if artifact.program_hash != of.program:
            raise InputError(
                f"trial {of.trial} of {of.study} was built differently here: another program than the one that was"
                " proven; tune again on this machine"
            )
        self.of = of
        self._variant = LoadedVariant(artifact)
        said = self._variant.identity()
        if (said.build_id, said.macros) != (artifact.digest, artifact.macros):
            raise InputError(f"{artifact.path} is not the build that its folder names; remove it from the cache")
        self._lock = threading.Lock()

    def workspace_bytes(self, problem: Problem) -> int:
        """Bytes of workspace that one call needs."""
        return self._variant.workspace_bytes(problem)

    def launch(self, problem: Problem, inputs: Tensors, outputs: Tensors, workspace_bytes: int, stream: int) -> int:
        """One forward into the outputs; the variant's status. The workspace is of torch's allocator, on its current
        stream, which may use it again for what is launched after this."""
        workspace = (
            torch.empty(workspace_bytes, dtype=torch.uint8, device=inputs[0].device) if workspace_bytes else None
        )
        address = workspace.data_ptr() if workspace is not None else 0
        with self._lock:
            return self._variant.run(problem, inputs, outputs, address, workspace_bytes, stream)


def aligned(tensors: Tensors) -> bool:
    """Whether the addresses are such as a variant takes."""
    return all(each.data_ptr() % ALIGNMENT == 0 for each in tensors)


def broken(status: int) -> bool:
    """Whether a status says that the device is in trouble, so that nothing else may be tried."""
    return status >= DEVICE_ERROR


def serving(table: Table) -> Serving:
    """How calls are served on the table's kind of device. Raises InputError where they are not."""
    try:
        kind = DEVICES[table.device]
    except KeyError as error:
        raise InputError(f"the table is for a kind of device that is not here: {error.args[0]}") from None
    if kind.serving is None:
        raise InputError(f"calls on {table.device} cannot be served: its record has no part `serving`")
    return kind.serving()


def ready(table: Table, near: Path, build: bool) -> dict[str, Ready]:
    """The variants of the table by artifact. Without `build` they are taken from the cache.

    Raises InputError where one is not there, cannot be built or became another program, and what a build raises.
    """
    make = _builder(table, near) if build else _refused
    return {each.artifact: Ready(each, _cached(each.artifact) or make(each)) for each in table.variants}


def _cached(digest: str) -> Artifact | None:
    for folder in cached_builds(digest):
        found = built(folder)
        if found is not None and found.digest == digest:
            return found
    return None


def _refused(of: TableVariant) -> Artifact:
    raise InputError(
        f"trial {of.trial} of {of.study} is not built here: load(..., build=True) builds it, or copy the cache"
    )


def _builder(table: Table, near: Path) -> Callable[[TableVariant], Artifact]:
    """What builds a variant of the table from today's sources, for the device that is here."""
    kind = DEVICES[table.device]

    def make(of: TableVariant) -> Artifact:
        toolchain = kind.toolchain(kind.choose(Wishes()).device)
        family = Family.find(of.variant.family, near=near)
        problem = next(each.problem for each in table.entries if each.use == of.artifact)
        made = build_variant(family, of.variant, problem, toolchain)
        if isinstance(made, Fault):
            raise InputError(f"trial {of.trial} of {of.study} cannot be built here: {made.detail}")
        return made

    return make
