"""Where the gate runs an artifact: the seam between its checks and a kind of device."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from autotuner.ops.sdpa.problem import Problem

Tensors = tuple[Tensor, Tensor, Tensor]
"""Q, K and V."""


class Traces(NamedTuple):
    """What a launch did to memory that is not its own to write."""

    changed: tuple[bool, ...]
    """For each input: its bits are no longer what they were."""
    damage: str | None
    """Which guard band was written, in words."""


ZEROS = 14
"""The turn of `Bench.disturb` after which the workspace, and shared memory on CUDA, hold zeros."""


class Bench(Protocol):
    """Runs one artifact; every tensor lies in guarded memory of its own."""

    def place(self, tensor: Tensor, shift: int = 0) -> Tensor:
        """A guarded copy whose address is `shift` bytes past a multiple of 64."""

    def launch(self, problem: Problem, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> int:
        """One forward with freshly poisoned workspace, to its end; the variant's status.

        Raises ValueError on unfit tensors, MemoryError when the variant asks for more workspace than there may be,
        TimeoutError when the launch does not end.
        """

    def disturb(self, turn: int) -> None:
        """Changes what precedes the next launch: its predecessor, the workspace's contents, where threads may run."""

    def traces(self, before: Sequence[Tensor], placed: Sequence[Tensor]) -> Traces:
        """Compares placed tensors with what they were before, and the guard bands; lets go of all placed tensors."""

    def traffic(self) -> contextlib.AbstractContextManager[None]:
        """Keeps the memory system busy while it is open."""


@runtime_checkable
class StreamBench(Bench, Protocol):
    """A bench on a device with streams."""

    def delayed(self, problem: Problem, tensors: Tensors) -> tuple[int, Tensor]:
        """The status, and the output as a stream sees it whose inputs arrive late: launched on a side stream behind a
        delay and the copy of the real inputs, and copied at once. Raises as `launch` does."""

    def replayed(self, problem: Problem, tensors: Tensors, later: Tensors) -> tuple[int, Tensor]:
        """The status and the output of a replay: captured with `tensors`, replayed with these replaced by `later` and
        O poisoned. Raises as `launch` does.

        Raises ValueError also when the launch cannot be captured, or captures no kernel.
        """
