"""Timing on CUDA: the sides of a race as replays of a graph, or as single launches between events."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import Tensor

from autotuner.backends.arena import ALIGNMENT, BAND, PATTERN, Band, Segment, damage
from autotuner.errors import InfrastructureError
from autotuner.extension import Extension, status_text
from autotuner.gate.recheck import Timed
from autotuner.gate.tolerance import Truth
from autotuner.problem import Problem

GRAPH_S = 0.001
"""A replay is at least this long, to dwarf the resolution of events and the launch of the graph itself."""

SINGLE_S = 0.0005
"""From here on single launches between events are timed."""

WARM_S = 0.02
"""So long an arm runs untimed before its first sample: clocks rise, code and graph are loaded."""

Forward = Callable[[int], None]
"""Launches one forward on the input set of that number, on the current stream."""


class InputSets:
    """Copies of one problem's tensors at different addresses, each between bands that hold a pattern. `cold`: together
    more than the second-level cache holds, so that a set has left it when its turn comes again; `warm`: one set.

    A set is a row of one allocation: | band | Q | band | K | band | V | band | O | band |
    """

    def __init__(self, problem: Problem, expected: Truth, cache: str, cache_bytes: int) -> None:
        self.cold = cache == "cold"
        count = math.ceil(5 * cache_bytes / problem.bytes) + 1 if self.cold else 1
        self.problem = problem
        self._expected = [tensor.contiguous().view(torch.int16).flatten() for tensor in expected[:3]]
        device, like = expected.q.device, (*expected[:3], expected.q)
        self._spans = _spans([tensor.numel() * tensor.element_size() for tensor in like])
        period = -(-(self._spans[-1][1] + BAND) // ALIGNMENT) * ALIGNMENT
        self._memory = torch.full((count, period // 2), PATTERN, dtype=torch.int16, device=device)
        sets = [[self._tensor(row, place, each) for place, each in enumerate(like)] for row in range(count)]
        self.inputs = [tuple(tensors[:3]) for tensors in sets]
        self.outputs = [tensors[3] for tensors in sets]
        for place, words in enumerate(self._expected):
            self._words(place).copy_(words)
        self.flush = torch.empty(2 * cache_bytes, dtype=torch.uint8, device=device)

    def __len__(self) -> int:
        return len(self.inputs)

    def _words(self, place: int) -> Tensor:
        """Q (0), K, V or O (3) of every set, as words; (sets, words)."""
        start, stop = self._spans[place]
        return self._memory[:, start // 2 : stop // 2]

    def _tensor(self, row: int, place: int, like: Tensor) -> Tensor:
        return self._words(place)[row].view(like.dtype).view(like.shape)

    def poison(self) -> None:
        """Fills every output with NaN."""
        self._words(3).fill_(PATTERN)

    def bands(self) -> list[Band]:
        """What lies around the tensors of each set."""
        edges = [0, *(edge for span in self._spans for edge in span), 2 * self._memory.shape[1]]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [(start > 0, self._memory[:, start // 2 : stop // 2]) for start, stop in pairs]

    def strays(self, last: int, used: Iterable[int]) -> str | None:
        """Which timed buffer is not what it must be: an input that changed, an output unlike that of the set `last`."""
        rows = torch.tensor(sorted(used), device=self._memory.device)
        inputs = [(self._words(place) != words).any() for place, words in enumerate(self._expected)]
        outputs = (self._words(3)[rows] != self._words(3)[last]).any()
        *changed, unlike = torch.stack([*inputs, outputs]).tolist()
        for name, flag in zip("QKV", changed, strict=True):
            if flag:
                return f"{name} of a timed set changed while it was timed"
        return "two timed launches on equal inputs gave different bits" if unlike else None


def _spans(sizes: list[int]) -> list[tuple[int, int]]:
    """First and last byte of each tensor of a set, with at least a band before each."""
    spans: list[tuple[int, int]] = []
    for size in sizes:
        start = -(-((spans[-1][1] if spans else 0) + BAND) // ALIGNMENT) * ALIGNMENT
        spans.append((start, start + size))
    return spans


class Arm(Protocol):
    """One side of the race. Calling it takes a sample: seconds of one forward."""

    calls: int

    def __call__(self) -> float: ...


def _elapsed(work: Callable[[], None]) -> float:
    """Seconds between two events around the work."""
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    work()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after)) / 1e3


class GraphArm:
    """Replays of a graph of forwards, each on the next input set."""

    def __init__(self, forward: Forward, sets: InputSets, seconds: float) -> None:
        least = max(1, math.ceil(GRAPH_S / seconds))
        self.calls = max(len(sets), least) if sets.cold else least
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for call in range(self.calls):
                forward(call % len(sets))
        self.last = (self.calls - 1) % len(sets)
        self.used = set(range(min(self.calls, len(sets))))
        for _ in range(math.ceil(WARM_S / (seconds * self.calls))):
            self._graph.replay()

    def __call__(self) -> float:
        return _elapsed(self._graph.replay) / self.calls

    def replay(self) -> None:
        """One untimed replay."""
        self._graph.replay()


class EventArm:
    """Single launches between events; the second-level cache is flushed before each when it is to be cold."""

    def __init__(self, forward: Forward, sets: InputSets) -> None:
        self._forward, self._sets = forward, sets
        self.calls, self.last, self.used = 1, 0, {0}

    def __call__(self) -> float:
        self.last = (self.last + 1) % len(self._sets)
        self.used.add(self.last)
        if self._sets.cold:
            self._sets.flush.zero_()
        return _elapsed(self.replay)

    def replay(self) -> None:
        """One untimed forward on the set of the last sample."""
        self._forward(self.last)


def make_arm(forward: Forward, sets: InputSets) -> GraphArm | EventArm:
    """The arm that suits the forward's duration. Raises RuntimeError when a short forward cannot be captured."""
    forward(0)
    torch.cuda.synchronize()
    once = torch.cuda.CUDAGraph()
    with torch.cuda.graph(once):  # a forward of many kernels would be timed at the speed of their launches
        forward(0)
    seconds = min(_elapsed(once.replay) for _ in range(3))
    return EventArm(forward, sets) if seconds >= SINGLE_S else GraphArm(forward, sets, seconds)


class LaunchError(Exception):
    """A variant refused a launch, or cannot be captured, on the problem that is timed."""


class VariantArm:
    """The arm of a built variant, with a guarded workspace of its own."""

    def __init__(self, extension: Extension, sets: InputSets) -> None:
        """Raises LaunchError when the variant cannot be launched or captured."""
        self._sets, problem = sets, sets.problem
        wanted = extension.workspace_bytes(problem)
        self._workspace = Segment.around(wanted, sets.flush.device)
        words = self._workspace.take(wanted)
        assert words is not None
        workspace = words.data_ptr()
        addresses = [(q.data_ptr(), k.data_ptr(), v.data_ptr()) for q, k, v in sets.inputs]
        outputs = [o.data_ptr() for o in sets.outputs]

        def forward(index: int) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            status = extension.run(problem, addresses[index], outputs[index], workspace, wanted, stream)
            if status:
                raise LaunchError(f"the variant returned status {status} ({status_text(status)})")

        sets.poison()
        try:
            self._arm = make_arm(forward, sets)
        except torch.AcceleratorError:
            raise
        except RuntimeError as error:
            raise LaunchError(str(error)) from None
        self.calls = self._arm.calls

    def __call__(self) -> float:
        return self._arm()

    def timed(self) -> Timed:
        """What the race left behind, for G7."""
        arm, sets = self._arm, self._sets
        found = damage([*sets.bands(), *self._workspace.bands()])
        strays = sets.strays(arm.last, arm.used)
        return Timed(sets.inputs[arm.last], sets.outputs[arm.last], found, strays, arm.replay)


def require_working_device() -> None:
    """The canary: allocates, runs a known kernel and verifies it. Raises InfrastructureError when that fails."""
    try:
        if not torch.cuda.is_available():
            raise InfrastructureError("torch sees no CUDA device; is a driver installed, and torch built for CUDA?")
        count = 1 << 20
        found = int(torch.arange(count, device="cuda", dtype=torch.int64).sum())
    except RuntimeError as error:
        raise InfrastructureError(f"the CUDA device does not work: {str(error).splitlines()[0]}") from None
    if found != count * (count - 1) // 2:
        raise InfrastructureError(f"the CUDA device computes wrongly: a known sum came out as {found}")
