"""The built variants of a table: found in the cache, or built on request, and launched on torch's tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from autotuner.devices import DEVICES, Wishes
from autotuner.devices.kind import Serving
from autotuner.forge.build import build as build_variant
from autotuner.forge.build import built, cached_builds
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops.forward import Launch
from autotuner.ops.tensors import Tensors
from autotuner.values.errors import InputError
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.table import Table, TableVariant
from autotuner.values.verdict import Fault


class Ready:
    """A variant, loaded."""

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
        self._waits = waits
        self._workspace: torch.Tensor | None = None

    def launcher(self, problem: Problem, inputs: Tensors, outputs: Tensors) -> Launch:
        """What launches one forward on tensors that lie as these do. Raises as `LoadedVariant.launcher` does."""
        size = self._variant.workspace_bytes(problem)
        launch = self._variant.launcher(problem, inputs, outputs, size, str(self.of.variant))
        return partial(self._with_workspace, launch, size, inputs[0].device) if size else launch

    def _with_workspace(
        self, launch: Launch, size: int, device: torch.device, addresses: tuple[int, ...], stream: int
    ) -> bool:
        """With a workspace of torch's allocator. Where a launch has not ended when it returns, that is on torch's
        current stream, which may use it again for what is launched after this. Else one serves all, as launches take
        turns."""
        workspace = self._workspace if self._waits else None
        if workspace is None or workspace.numel() < size:
            workspace = torch.empty(size, dtype=torch.uint8, device=device)
            if self._waits:
                self._workspace = workspace
        return launch((*addresses, workspace.data_ptr()), stream)


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
    """A build that this version can launch."""
    for folder in cached_builds(digest):
        found = built(folder)
        if found is not None and found.digest == digest and LoadedVariant(found).has_launcher:
            return found
    return None


def _refused(of: TableVariant) -> Artifact:
    raise InputError(
        f"trial {of.trial} of {of.study} is not built here by this version: load(..., build=True) builds it, or copy"
        " the cache"
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
