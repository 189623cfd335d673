"""Where the gate runs an artifact: the seam between its checks and a kind of device."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from autotuner.forge.loaded_variant import DeviceErrors
from autotuner.ops import op_of
from autotuner.values.errors import InfrastructureError
from autotuner.values.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

    from autotuner.ops.tensors import Tensors


DEVICE_BYTES = "bytes of the device"
"""What a process holds of it cannot be told apart: it is what all programs hold."""


class Traces(NamedTuple):
    """What a launch did to memory that is not its own to write."""

    changed: tuple[bool, ...]
    """For each input: its bits are no longer what they were."""
    damage: str | None
    """Which guard band was written, in words."""


class Neighbours(NamedTuple):
    """What runs between two launches that are compared: it leaves its traces in memory."""

    foreign: Problem
    """For a baseline's kernels."""
    own: Problem | None
    """For the variant itself; None when it serves one pair of lengths alone."""


class Repeats(NamedTuple):
    """Launches on one input, one after another."""

    status: int
    """The variant's or the device's; others than 0 end them."""
    launches: int
    unlike: int | None
    """Which of them, from 0, was the first with other bits than it should have; None when there was none."""


def run_foreign(problem: Problem, torch_device: str, inputs: Tensors) -> None:
    """A baseline's kernels on these inputs: of the one that the op names for it, or of another one where that does not
    take the problem, or has no memory there. Raises RuntimeError or InfrastructureError where none does."""
    tensors = op_of(problem).tensors()
    named = tensors.BETWEEN[torch_device]
    known = tensors.BASELINES.items()
    others = (name for name, each in known if torch_device in each.devices and not each.made_for_each)
    refused: RuntimeError | InfrastructureError | None = None
    for name in (named, *others):
        try:
            with warnings.catch_warnings(action="ignore"):  # torch says at length why a kernel does not take it
                tensors.BASELINES[name].answer(problem, inputs)
        except (RuntimeError, InfrastructureError) as error:
            refused = refused or error
        else:
            return
    raise refused or RuntimeError(f"no baseline for {torch_device}")


ZEROS = 44
"""The turn of `Bench.disturb` after which the workspace, and shared memory on CUDA, hold zeros, and threads run where
they always do."""


class Bench(Protocol):
    """Runs one artifact; every tensor lies in guarded memory of its own."""

    errors: DeviceErrors

    def place(self, tensor: Tensor, shift: int = 0) -> Tensor:
        """A guarded copy whose address is `shift` bytes past a multiple of 64."""

    def far(self, tensor: Tensor, dim: int) -> Tensor:
        """A copy that is far apart along that dimension, so that offsets do not fit in 32 bits; without guards, in
        memory of its own. Raises DeviceFullError where there is none, and Unavailable where that is not proven."""

    def launch(self, problem: Problem, inputs: Tensors, outputs: Tensors) -> int:
        """One forward with freshly poisoned workspace, to its end; the variant's status.

        Raises ValueError on unfit tensors, MemoryError when the variant asks for more workspace than there may be,
        TimeoutError when the launch does not end.
        """

    def disturb(self, turn: int) -> str:
        """Changes what precedes the next launch: its predecessor, the workspace's contents, where threads may run. What
        a reader would not expect of the launch, in words."""

    def repeated(self, problem: Problem, inputs: Tensors, outputs: Tensors, right: Tensors, count: int) -> Repeats:
        """`count` launches on placed tensors. Outputs are poisoned before each launch, and compared bit by bit with
        `right` after it, on the device; the host may wait for the last one only. Raises as `launch` does."""

    def traces(self, before: Sequence[Tensor], placed: Sequence[Tensor]) -> Traces:
        """Compares placed tensors with what they were before, and the guard bands; lets go of all placed tensors."""

    def held(self) -> Mapping[str, int]:
        """How many bytes and open files the process holds now, on the device too, by what they are in words."""

    def traffic(self) -> contextlib.AbstractContextManager[None]:
        """Keeps the memory system busy while it is open."""


@runtime_checkable
class StreamBench(Bench, Protocol):
    """A bench on a device with streams."""

    def delayed(self, problem: Problem, inputs: Tensors) -> tuple[int, Tensors]:
        """The status, and the outputs as a stream sees them whose inputs arrive late: launched on a side stream behind
        a delay and the copy of the real inputs, and copied at once. Raises as `launch` does."""

    def replayed(self, problem: Problem, inputs: Tensors, later: Tensors) -> tuple[int, tuple[Tensors, ...]]:
        """The status, and the outputs of each of some replays: captured with `inputs`, replayed with these replaced by
        `later` and the outputs poisoned. Raises as `launch` does.

        Raises ValueError also when the launch cannot be captured, or captures no kernel.
        """
