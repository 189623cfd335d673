"""The built variants of a table: found in the cache, or built on request, and launched on torch's tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from autotuner.build.build import build as build_variant
from autotuner.build.build import built, cached_builds
from autotuner.build.family import Family
from autotuner.build.loaded_variant import LoadedVariant
from autotuner.build.status import DEVICE_ERROR
from autotuner.devices import DEVICES, Wishes
from autotuner.devices.kind import Serving
from autotuner.ops.forward import Launch
from autotuner.ops.tensors import Tensors
from autotuner.values.errors import InputError
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.table import Table, TableVariant
from autotuner.values.verdict import Fault

Run = Callable[[tuple[int, ...], int, int, int], int]
"""Of addresses, those of the workspace and its bytes, and a stream: one forward."""

_LOCKS: dict[str, threading.Lock] = {}
"""Of the libraries that were loaded, by their paths."""


class Ready:
    """A variant, loaded. One call at a time, as the ABI asks (kernels/abi/variant.h); a second thread waits."""

    def __init__(self, of: TableVariant, artifact: Artifact, waits: bool) -> None:
        """`waits`: as `Serving.waits`. Raises InputError where the library is not what the table names."""
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
        # The loader gives one image to all that load one path, so that they take turns together.
        self._lock, self._waits = _LOCKS.setdefault(artifact.path, threading.Lock()), waits
        self._workspace: torch.Tensor | None = None

    def launcher(self, problem: Problem, inputs: Tensors, outputs: Tensors) -> Launch:
        """What launches one forward on tensors that lie as these do. It takes no address that is not aligned, and
        raises RuntimeError where the variant broke the device. Raises as `LoadedVariant.described` does."""
        run, lock = self._variant.described(problem, inputs, outputs), self._lock
        size = self._variant.workspace_bytes(problem)
        run_with = partial(self._run_with, run, size, inputs[0].device) if size else None

        def launch(addresses: tuple[int, ...], stream: int) -> bool:
            try:
                if run_with is not None:
                    status = run_with(addresses, stream)
                else:
                    with lock:
                        status = run(addresses, 0, 0, stream)
            except ValueError:  # an address is not aligned
                return False
            if status >= DEVICE_ERROR:  # nothing else may be tried
                raise RuntimeError(f"the variant {self.of.variant} ended with the device's error {status}")
            return status == 0

        return launch

    def _run_with(self, run: Run, size: int, device: torch.device, addresses: tuple[int, ...], stream: int) -> int:
        """With a workspace of torch's allocator. Where a launch has not ended when it returns, that is on torch's
        current stream, which may use it again for what is launched after this."""
        if not self._waits:
            workspace = torch.empty(size, dtype=torch.uint8, device=device)
            with self._lock:
                return run(addresses, workspace.data_ptr(), size, stream)
        with self._lock:
            if self._workspace is None or self._workspace.numel() < size:
                self._workspace = torch.empty(size, dtype=torch.uint8, device=device)
            return run(addresses, self._workspace.data_ptr(), size, stream)


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
    make, waits = _builder(table, near) if build else _refused, serving(table).waits
    return {each.artifact: Ready(each, _cached(each.artifact) or make(each), waits) for each in table.variants}


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
