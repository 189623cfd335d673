"""Runs a CUDA extension on guarded memory, for the gate."""

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from autotuner.devices.bench import FILLS, copied_into, held_by_process, predecessor, workspace_bytes
from autotuner.devices.cuda.captured import captured
from autotuner.devices.cuda.errors import CUDA_ERRORS
from autotuner.devices.cuda.full import unless_full
from autotuner.devices.cuda.guarded_memory import Arena, damage, written
from autotuner.devices.cuda.instruments import NOT_READY, Instruments
from autotuner.devices.cuda.reserved_memory import between_nothing
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.bench import DEVICE_BYTES, Neighbours, Repeats, Traces, run_foreign
from autotuner.ops import op_of
from autotuner.ops.tensors import Tensors, far_apart, full_is_no_refusal, lying_in, overwrite, poison, span
from autotuner.values.errors import first_line
from autotuner.values.problem import Problem

MAX_WORKSPACE = 2 << 30
WORKSPACE_ALIGNMENT = 64
HANG_S = 2.0
DELAY_NS = 2_000_000
POLL_S = 0.00005
TRAFFIC_BYTES = 64 << 20
TRAFFIC_COPIES = 100
TRAFFIC_BATCHES = 2
"""While memory is to be busy, this many batches of this many copies wait on a second stream."""
REPLAYS = 2
"""Of a captured launch: what one of them leaves behind is the next one's start."""


class CudaBench:
    """Guarded memory, poisoned shared memory, and a deadline for each launch."""

    errors = CUDA_ERRORS

    def __init__(self, variant: LoadedVariant, between: Neighbours, arena: Arena, instruments: Instruments) -> None:
        """`between`: what torch and the variant itself run on between launches."""
        self._variant = variant
        self._foreign, self._larger = between
        self._arena, self._instruments = arena, instruments
        arena.begin()
        self._word = FILLS[0]
        self._disturbed = False
        self._traffic: Traffic | None = None

    def place(self, tensor: Tensor, shift: int = 0) -> Tensor:
        words = self._arena.take(span(tensor) * tensor.element_size(), shift)
        return copied_into(words, tensor, lambda gaps: self._arena.watch(words, gaps))

    def far(self, tensor: Tensor, dim: int) -> Tensor:
        like, size = far_apart(tensor, dim), tensor.element_size()
        starts = [place * like.stride(dim) * size for place in range(like.shape[dim])]
        one = span(like.select(dim, 0)) * size
        memory = between_nothing(span(like) * size, [(start, start + one) for start in starts])
        return lying_in(memory, like).copy_(tensor)

    def launch(self, problem: Problem, inputs: Tensors, outputs: Tensors) -> int:
        workspace, wanted = self._workspace(problem)
        stream = torch.cuda.current_stream().cuda_stream
        if not self._disturbed:
            self._instruments.fill_shared(self._word, stream)
        self._disturbed = False
        status = self._forward(problem, inputs, outputs, workspace, wanted)
        return status or self._finished(stream)

    def repeated(self, problem: Problem, inputs: Tensors, outputs: Tensors, right: Tensors, count: int) -> Repeats:
        workspace = self._workspace(problem)
        stream = torch.cuda.current_stream().cuda_stream
        unlike = torch.zeros(count, dtype=torch.bool, device="cuda")
        words = [(_words(output), _words(expected)) for output, expected in zip(outputs, right, strict=True)]
        for launch in range(count):
            poison(outputs)
            status = self._forward(problem, inputs, outputs, *workspace)
            if status:
                return Repeats(status, launch + 1, None)
            for got, want in words:
                unlike[launch].logical_or_((got != want).any())
        status = self._finished(stream)
        if status:
            return Repeats(status, count, None)
        found = unlike.nonzero().flatten().tolist()
        return Repeats(0, count, found[0] if found else None)

    def _workspace(self, problem: Problem) -> tuple[int, int]:
        """Address and size of a poisoned workspace."""
        wanted = workspace_bytes(self._variant, problem, MAX_WORKSPACE)
        if not wanted:
            return 0, 0
        words = self._arena.take(-(-wanted // 4) * 4, alignment=WORKSPACE_ALIGNMENT)
        words.view(torch.int32).fill_(self._word)
        return words.data_ptr(), wanted

    def _forward(self, problem: Problem, inputs: Tensors, outputs: Tensors, workspace: int, wanted: int) -> int:
        stream = torch.cuda.current_stream().cuda_stream
        return unless_full(self._variant.run(problem, inputs, outputs, workspace, wanted, stream))

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

    def disturb(self, turn: int) -> str:
        """In turn: shared memory full of each word, torch's kernels, the variant itself on larger inputs."""
        if self._traffic is not None:
            self._traffic.go_on()
        self._word = FILLS[turn % len(FILLS)]
        self._disturbed = True
        kind = turn % 5
        if kind == 1:
            run_foreign(self._foreign, "cuda", predecessor(self._foreign, "cuda"))
        elif kind == 3 and self._larger is not None:
            inputs = predecessor(self._larger, "cuda")
            outputs = op_of(self._larger).tensors().outputs(self._larger, inputs)
            self._forward(self._larger, inputs, outputs, *self._workspace(self._larger))
        else:
            word = {0: FILLS[0], 2: FILLS[1]}.get(kind, FILLS[2])
            self._instruments.fill_shared(word, torch.cuda.current_stream().cuda_stream)
        return ""

    def traces(self, before: Sequence[Tensor], placed: Sequence[Tensor]) -> Traces:
        bands = self._arena.bands()
        changed = [(_words(a) != _words(b)).any() for a, b in zip(before, placed, strict=True)]
        flags = [bool(flag) for flag in torch.stack([*changed, *map(written, bands)]).tolist()]
        found = damage(bands, flags[len(changed) :])
        self._arena.restore()
        return Traces(tuple(flags[: len(changed)]), found)

    def held(self) -> Mapping[str, int]:
        free, total = torch.cuda.mem_get_info()
        return {**held_by_process(), DEVICE_BYTES: total - free}

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

    def _ready(self, problem: Problem, inputs: Tensors) -> tuple[Tensors, Tensors, tuple[int, int]]:
        """Guarded inputs, guarded outputs full of NaN, and a poisoned workspace."""
        placed, drawn = tuple(map(self.place, inputs)), op_of(problem).tensors().outputs(problem, inputs)
        outputs = tuple(self.place(output.fill_(torch.nan)) for output in drawn)
        return placed, outputs, self._workspace(problem)

    def delayed(self, problem: Problem, inputs: Tensors) -> tuple[int, Tensors]:
        placed, outputs, workspace = self._ready(problem, inputs)
        for tensor in placed:
            tensor.fill_(torch.nan if tensor.is_floating_point() else 0)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            self._instruments.spin(DELAY_NS, side.cuda_stream)
            overwrite(placed, inputs)
            status = self._forward(problem, placed, outputs, *workspace)
            seen = tuple(output.clone() for output in outputs)
        status = status or self._finished(side.cuda_stream)
        if not status:
            self._arena.restore()
        return status, seen

    def replayed(self, problem: Problem, inputs: Tensors, later: Tensors) -> tuple[int, tuple[Tensors, ...]]:
        placed, outputs, workspace = self._ready(problem, inputs)
        graph = torch.cuda.CUDAGraph()
        try:
            with full_is_no_refusal(), captured(graph):
                status = self._forward(problem, placed, outputs, *workspace)
        except RuntimeError as error:
            raise ValueError(f"the launch cannot be captured: {first_line(error)}") from None
        if status:
            raise ValueError(f"the launch cannot be captured: {CUDA_ERRORS.text(status)}")
        overwrite(placed, later)
        seen: list[Tensors] = []
        for _ in range(REPLAYS):
            poison(outputs)
            graph.replay()
            status = self._finished(torch.cuda.current_stream().cuda_stream)
            if status:
                return status, ()
            seen.append(tuple(output.clone() for output in outputs))
        self._arena.restore()
        return status, tuple(seen)


WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
"""Integers, by the bytes of an element."""


def _words(tensor: Tensor) -> Tensor:
    """The tensor's bits. It is the same memory, however it lies: who asks again sees what has been written since."""
    return tensor.view(WORDS[tensor.element_size()])


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
