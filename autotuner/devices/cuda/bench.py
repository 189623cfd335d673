"""Runs a CUDA extension on guarded memory, for the gate."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from autotuner.build.loaded_variant import Extension, status_text
from autotuner.devices.cuda.guarded_memory import Arena, damage, written
from autotuner.devices.instruments import NOT_READY, Instruments
from autotuner.gate.bench import Tensors, Traces
from autotuner.gate.cases import Neighbours
from autotuner.ops.sdpa.attention import inputs, sdpa
from autotuner.ops.sdpa.problem import Problem

SHARED_FILLS = (0x7FFF7FFF, 0x7BFF7BFF, 0)
"""Words that shared memory and the workspace hold before a launch. Two are not zero, because fmaxf drops a NaN."""

MAX_WORKSPACE = 2 << 30
HANG_S = 2.0
PREDECESSOR = (2, 8, 300, 300)
"""Shape of what runs before a launch to leave its traces: larger than most cases."""

DELAY_NS = 2_000_000
POLL_S = 0.00005
TRAFFIC_BYTES = 64 << 20
TRAFFIC_COPIES = 100
TRAFFIC_BATCHES = 2
"""While memory is to be busy, so many batches of copies of so many bytes wait on a second stream."""


@lru_cache(maxsize=4)
def _predecessor(problem: Problem) -> Tensors:
    """Large inputs for what runs before a launch to leave its traces."""
    q, k, v = (tensor.cuda() for tensor in inputs(problem, "large", seed=0))
    return q, k, v


class CudaBench:
    """Guarded memory, poisoned shared memory, and a deadline for each launch."""

    def __init__(self, extension: Extension, between: Neighbours, arena: Arena, instruments: Instruments) -> None:
        """`between`: what torch and the variant itself run on between launches."""
        self._extension = extension
        self._foreign, self._larger = between
        self._arena, self._instruments = arena, instruments
        self._word = SHARED_FILLS[0]
        self._disturbed = False
        self._traffic: Traffic | None = None

    def place(self, tensor: Tensor, shift: int = 0) -> Tensor:
        words = self._arena.take(tensor.numel() * tensor.element_size(), shift)
        placed = words.view(tensor.dtype)[: tensor.numel()].view(tensor.shape)
        placed.copy_(tensor)
        return placed

    def launch(self, problem: Problem, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> int:
        for tensor in (q, k, v, o):
            if not tensor.is_contiguous():
                raise ValueError("tensors must be contiguous")
        workspace, wanted = self._workspace(problem)
        stream = torch.cuda.current_stream().cuda_stream
        if not self._disturbed:
            self._instruments.fill_shared(self._word, stream)
        self._disturbed = False
        status = self._forward(problem, (q, k, v, o), workspace, wanted)
        return status or self._finished(stream)

    def _workspace(self, problem: Problem) -> tuple[int, int]:
        """Address and size of a poisoned workspace."""
        wanted = self._extension.workspace_bytes(problem)
        if not 0 <= wanted <= MAX_WORKSPACE:
            raise MemoryError(f"the variant asks for {wanted} bytes of workspace; at most {MAX_WORKSPACE} are given")
        if not wanted:
            return 0, 0
        words = self._arena.take(-(-wanted // 4) * 4)
        words.view(torch.int32).fill_(self._word)
        return words.data_ptr(), wanted

    def _forward(
        self, problem: Problem, tensors: tuple[Tensor, Tensor, Tensor, Tensor], workspace: int, wanted: int
    ) -> int:
        q, k, v, o = (tensor.data_ptr() for tensor in tensors)
        stream = torch.cuda.current_stream().cuda_stream
        return self._extension.run(problem, (q, k, v), o, workspace, wanted, stream)

    def _finished(self, stream: int) -> int:
        """Waits for the stream without blocking in the driver: a launch that never ends could not be left."""
        started = time.monotonic()
        while (status := self._instruments.status(stream)) == NOT_READY:
            waited = time.monotonic() - started
            if waited > HANG_S:
                raise TimeoutError(f"the launch did not end within {HANG_S:.0f} s")
            if waited > 20 * POLL_S:
                time.sleep(POLL_S)
        return status

    def disturb(self, turn: int) -> None:
        """In turn: shared memory full of each word, torch's kernels, the variant itself on larger inputs."""
        if self._traffic is not None:
            self._traffic.go_on()
        self._word = SHARED_FILLS[turn % len(SHARED_FILLS)]
        self._disturbed = True
        kind = turn % 5
        if kind == 1:
            sdpa(self._foreign, "flash")(*_predecessor(self._foreign))
        elif kind == 3 and self._larger is not None:
            tensors = _predecessor(self._larger)
            o = torch.empty_like(tensors[0])
            self._forward(self._larger, (*tensors, o), *self._workspace(self._larger))
        else:
            word = {0: SHARED_FILLS[0], 2: SHARED_FILLS[1]}.get(kind, SHARED_FILLS[2])
            self._instruments.fill_shared(word, torch.cuda.current_stream().cuda_stream)

    def traces(self, before: Sequence[Tensor], placed: Sequence[Tensor]) -> Traces:
        bands = self._arena.bands()
        changed = [(_words(a) != _words(b)).any() for a, b in zip(before, placed, strict=True)]
        flags = [bool(flag) for flag in torch.stack([*changed, *(written(words) for _, words in bands)]).tolist()]
        found = damage(bands, flags[len(changed) :])
        self._arena.restore()
        return Traces(tuple(flags[: len(changed)]), found)

    @contextlib.contextmanager
    def traffic(self) -> Iterator[None]:
        """Copies on another stream, as many as it takes: each `disturb` sees to it that some are waiting."""
        self._traffic = Traffic()
        try:
            yield
        finally:
            self._traffic.stop()
            self._traffic = None

    # Streams ----------------------------------------------------------------------------------------------------

    def delayed(self, problem: Problem, tensors: Tensors) -> tuple[int, Tensor]:
        placed = [self.place(tensor) for tensor in tensors]
        o = self.place(torch.full_like(tensors[0], float("nan")))
        workspace = self._workspace(problem)
        for tensor in placed:
            tensor.view(torch.uint8).fill_(0xFF)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            self._instruments.spin(DELAY_NS, side.cuda_stream)
            for tensor, real in zip(placed, tensors, strict=True):
                tensor.copy_(real)
            status = self._forward(problem, (placed[0], placed[1], placed[2], o), *workspace)
            seen = o.clone()
        status = status or self._finished(side.cuda_stream)
        if not status:
            self._arena.restore()
        return status, seen

    def replayed(self, problem: Problem, tensors: Tensors, later: Tensors) -> tuple[int, Tensor]:
        q, k, v = (self.place(tensor) for tensor in tensors)
        o = self.place(torch.full_like(tensors[0], float("nan")))
        workspace = self._workspace(problem)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                status = self._forward(problem, (q, k, v, o), *workspace)
        except RuntimeError as error:
            raise ValueError(f"the launch cannot be captured: {str(error).splitlines()[0]}") from None
        if status:
            raise ValueError(f"the launch cannot be captured: {status_text(status)}")
        for tensor, new in zip((q, k, v), later, strict=True):
            tensor.copy_(new)
        o.fill_(float("nan"))
        graph.replay()
        status = self._finished(torch.cuda.current_stream().cuda_stream)
        seen = o if status else o.clone()
        if not status:
            self._arena.restore()
        return status, seen


def _words(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.int16)


class Traffic:
    """Keeps the memory system busy with copies on a stream of its own."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._source = torch.empty(TRAFFIC_BYTES, dtype=torch.uint8, device="cuda")
        self._target = torch.empty_like(self._source)
        self._waiting: deque[torch.cuda.Event] = deque()
        self._stream.wait_stream(torch.cuda.current_stream())
        self.go_on()

    def go_on(self) -> None:
        """Adds batches of copies until enough are waiting."""
        while self._waiting and self._waiting[0].query():
            self._waiting.popleft()
        while len(self._waiting) < TRAFFIC_BATCHES:
            with torch.cuda.stream(self._stream):
                for _ in range(TRAFFIC_COPIES):
                    self._target.copy_(self._source, non_blocking=True)
                done = torch.cuda.Event()
                done.record()
            self._waiting.append(done)

    def stop(self) -> None:
        """Waits for the last copies."""
        self._stream.synchronize()
