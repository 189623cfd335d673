"""Timing on CUDA: the sides of a race as replays of a graph, or as single launches between events."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from autotuner.devices.cuda.errors import CUDA_ERRORS
from autotuner.devices.cuda.full import device_bytes, unless_full
from autotuner.devices.cuda.guarded_memory import ALIGNMENT, BAND, PATTERN, Band, Segment, damage
from autotuner.devices.cuda.overlap import CapturedForwards
from autotuner.devices.cuda.rest import AfterBaseline, made_at_rest, own_work_s, still_busy
from autotuner.devices.sets import InputSets, Outputs, Results, Used, set_count
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.recheck import Timed
from autotuner.ops.op import Baseline
from autotuner.ops.tensors import Tensors, full_is_no_refusal, lying_in, span
from autotuner.race.arms import ArmError, Clocks
from autotuner.values import codes
from autotuner.values.errors import FULL_PAUSES_S, DeviceFullError, InfrastructureError
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault, Verdict

GRAPH_S = 0.001
"""A replay is at least this long, to dwarf the resolution of events and the launch of the graph itself."""

SINGLE_S = 0.0005
"""From here on single launches between events are timed."""

WARM_S = 0.02
"""Seconds for which an arm runs untimed before its first sample: clocks rise, code and graph are loaded. A single
replay that is longer is warm soon after its beginning, and needs no other before it."""

STRETCH_S = 0.005
"""Longer than the turns of a millisecond or two in which a GPU serves programs that share it."""

Forward = Callable[[int], None]
"""Launches one forward on the input set of that number, on the current stream."""


class Rows:
    """Sets of tensors, a set a row of one allocation and all one group. Each tensor lies between bands that hold a
    pattern:

    | band | first | band | second | band | ...
    """

    def __init__(self, count: int, like: Sequence[Tensor]) -> None:
        self._spans = _spans([-(-span(tensor) * tensor.element_size() // 2) * 2 for tensor in like])
        period = -(-(self._spans[-1][1] + BAND) // ALIGNMENT) * ALIGNMENT
        self._memory = torch.full((count, period // 2), PATTERN, dtype=torch.int16, device=like[0].device)
        words = [self._memory[:, start // 2 : stop // 2] for start, stop in self._spans]
        pairs = tuple(zip(words, like, strict=True))
        self.sets = [tuple(lying_in(each[row], tensor) for each, tensor in pairs) for row in range(count)]
        self.groups = [tuple(_stacked(*pair) for pair in pairs)]

    def damage(self) -> str | None:
        """Which band around the tensors was written, in words."""
        return damage(self._bands())

    def _bands(self) -> list[Band]:
        """What lies around the tensors of each set."""
        edges = [0, *(edge for span in self._spans for edge in span), 2 * self._memory.shape[1]]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [(start > 0, self._memory[:, start // 2 : stop // 2]) for start, stop in pairs]


def _stacked(words: Tensor, like: Tensor) -> Tensor:
    """Tensors like that one as one, each in its row of the words."""
    typed = words.view(like.dtype)
    return typed.as_strided((len(words), *like.shape), (typed.stride(0), *like.stride()), typed.storage_offset())


def _spans(sizes: list[int]) -> list[tuple[int, int]]:
    """First and last byte of each tensor of a set, with at least a band before each."""
    spans: list[tuple[int, int]] = []
    for size in sizes:
        start = -(-((spans[-1][1] if spans else 0) + BAND) // ALIGNMENT) * ALIGNMENT
        spans.append((start, start + size))
    return spans


class CudaSets(InputSets):
    """Sets that are written at once, with what empties the second-level cache."""

    def __init__(self, problem: Problem, inputs: Tensors, cache: str, cache_bytes: int) -> None:
        count = set_count(problem, cache == "cold", cache_bytes)
        super().__init__(problem, inputs, Rows(count, inputs), cache == "cold")
        self.flush = torch.empty(2 * cache_bytes, dtype=torch.uint8, device=inputs[0].device)
        self.after_baseline = AfterBaseline()
        """What worked on behind the baselines' samples since the last variant's arm was made."""
        self.restore()


def elapsed(work: Callable[[], object]) -> float:
    """Seconds between two events around the work."""
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    work()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after)) / 1e3


class GraphArm:
    """Replays of a graph of forwards, each on the next input set. `overlap`: one begins before the last has ended."""

    def __init__(self, forward: Forward, sets: CudaSets, seconds: float) -> None:
        least = max(1, math.ceil(GRAPH_S / seconds))
        self.calls = max(len(sets), least) if sets.cold else least
        self._graph, forwards = torch.cuda.CUDAGraph(), CapturedForwards()
        with torch.cuda.graph(self._graph):
            for call in range(self.calls):
                forward(call % len(sets))
                forwards.end()
            self.overlap = forwards.overlap()
        self.last = (self.calls - 1) % len(sets)
        self.used: Used = {0: slice(0, min(self.calls, len(sets)))}
        for _ in range(math.ceil(WARM_S / (seconds * self.calls)) if seconds * self.calls < WARM_S else 0):
            self._graph.replay()

    def __call__(self) -> float:
        return elapsed(self._graph.replay) / self.calls

    def replay(self) -> None:
        """One untimed replay."""
        self._graph.replay()


class EventArm:
    """Single launches between events; the second-level cache is flushed before each when it is to be cold."""

    overlap = False

    def __init__(self, forward: Forward, sets: CudaSets) -> None:
        self._forward, self._sets = forward, sets
        self.calls, self.last = 1, 0

    @property
    def used(self) -> Used:
        """The set of the last sample."""
        return {0: slice(self.last, self.last + 1)}

    def __call__(self) -> float:
        self.last = (self.last + 1) % len(self._sets)
        if self._sets.cold:
            self._sets.flush.zero_()
        return elapsed(self.replay)

    def replay(self) -> None:
        """One untimed forward on the set of the last sample."""
        self._forward(self.last)


def make_arm(forward: Forward, sets: CudaSets) -> GraphArm | EventArm:
    """The arm that suits the forward's duration. Raises RuntimeError when a short forward cannot be captured."""
    forward(0)
    torch.cuda.synchronize()
    once = torch.cuda.CUDAGraph()
    with torch.cuda.graph(once):  # a forward of many kernels would be timed at the speed of their launches
        forward(0)
    seconds = min(elapsed(once.replay) for _ in range(3))
    return EventArm(forward, sets) if seconds >= SINGLE_S else GraphArm(forward, sets, seconds)


OVERLAP = (
    "a forward begins before the one before it has ended (programmatic dependent launch): it takes longer behind any"
    " other kernel"
)


class LaunchError(Exception):
    """A variant refused a launch, or cannot be captured, on the problem that is timed."""


@contextmanager
def device_faults() -> Iterator[None]:
    """What the device or the variant says becomes an ArmError; that the device is full, a DeviceFullError. After an
    error of the device the process is of no more use."""
    try:
        with full_is_no_refusal():
            yield
    except torch.AcceleratorError as error:
        raise ArmError(Fault(verdict=Verdict.CRASHED, code="measure.device", detail=_first_line(error))) from None
    except LaunchError as error:
        raise ArmError(Fault(verdict=Verdict.LAUNCH_FAILED, code="measure.launch", detail=_first_line(error))) from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


class BaselineArm:
    """The arm of a baseline.

    A graph that is the only one of its process is replayed faster: on an H200 a forward of cuDNN and the kernels of a
    mask took 23.0 us instead of 25.5. Beside a variant a baseline is not alone, so it must not be where it is timed by
    itself: its graph is captured twice.

    What it gives for each set is kept, so that the results lie apart as a variant's outputs do: with all of them in one
    place, which torch takes for what was just let go, only the variant's outputs would be cold.
    """

    def __init__(self, baseline: Baseline, sets: CudaSets) -> None:
        """Raises RuntimeError when the baseline does not take the problem, and DeviceFullError when the device has no
        memory left for it."""
        self._baseline, self._sets = baseline, sets
        self.results: dict[int, object] = {}
        with full_is_no_refusal():
            self._beside = self._made()
            pinned = baseline.forward(sets.problem)

            def forward(index: int) -> None:
                self.results.pop(index, None)
                self.results[index] = pinned(*sets.inputs[index], *self._beside)

            self.forward = forward
            self._arm, self._company = make_arm(forward, sets), make_arm(forward, sets)
        self.calls = self._arm.calls
        self._shortest = math.inf

    def __call__(self) -> float:
        with device_faults():
            for held, now in zip(self._beside, self._made(), strict=True):
                held.copy_(now)  # where the graph looks for it
            seconds = self._arm()
            self._sets.after_baseline.ask(own_work_s)
            self._shortest = min(self._shortest, seconds)
            self._sets.renew()
            return seconds

    def stretched(self) -> float:
        """How many times as long as in the shortest sample a forward takes in a row of forwards that outlasts a turn on
        a shared device; 1 where a sample outlasts one."""
        sample = self._shortest * self.calls
        if not sample < STRETCH_S:  # infinite before the first
            return 1.0
        count = math.ceil(STRETCH_S / sample)

        def replays() -> None:
            for _ in range(count):
                self._arm.replay()

        with device_faults():
            return elapsed(replays) / (count * sample)

    def _made(self) -> Tensors:
        """What the baseline is given beside the inputs of any set."""
        return self._baseline.beside(self._sets.problem, self._sets.inputs[0])


class VariantArm:
    """The arm of a built variant, with guarded outputs and a guarded workspace of its own."""

    def __init__(self, variant: LoadedVariant, sets: CudaSets, judge: Callable[[Timed], Fault | None]) -> None:
        """`judge` is G7. Raises ArmError when the variant cannot be launched or captured, and DeviceFullError when the
        device has no memory left."""
        self._sets, self.outputs = sets, Outputs(sets, Rows(len(sets), sets.fresh_outputs()))
        sets.after_baseline.forget()
        wanted = variant.workspace_bytes(sets.problem)
        _require_possible(wanted, sets)
        around = Segment.around(wanted, sets.flush.device)
        words = around.take(wanted)
        assert words is not None
        self.workspace = words
        workspace = words.data_ptr()
        inputs, outputs = sets.inputs, self.outputs.tensors

        def forward(index: int) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            status = unless_full(variant.run(sets.problem, inputs[index], outputs[index], workspace, wanted, stream))
            if status:
                raise LaunchError(f"the variant returned status {status} ({CUDA_ERRORS.text(status)})")

        self.forward = forward
        with device_faults():
            sets.restore()
            self._arm = made_at_rest(lambda: _variant_arm(forward, sets), own_work_s)
            if self._arm.overlap:
                raise ArmError(Fault(verdict=Verdict.IMPOSSIBLE, code="measure.overlap", detail=OVERLAP))
            self.outputs.poison()
            self._arm.replay()
            plain = tuple(output.clone() for output in self.outputs.tensors[self._arm.last])
            self._results = Results(self.outputs, sets, plain, lambda: damage(around.bands()), judge)
            self._results.settle(self._arm.used)
        self.calls = self._arm.calls

    def __call__(self) -> float:
        with device_faults():
            seconds = self._arm()
            self._results.settle(self._arm.used)
            return seconds

    def clocks(self, seconds: float) -> Clocks:
        with device_faults():
            count = math.ceil(seconds / (self._arm() * self.calls))

            def replays() -> None:
                for _ in range(count):
                    self._arm.replay()

            torch.cuda.synchronize()
            started = time.perf_counter()
            device = elapsed(replays)
            clocks = Clocks(host=time.perf_counter() - started, device=device)
            self._results.settle(self._arm.used)
            return clocks

    def recheck(self) -> Fault | None:
        with device_faults():
            busy = self._sets.after_baseline.busy or still_busy(self._arm.replay, own_work_s)
            return self._results.recheck(self._arm, busy)


def _require_possible(wanted: int, sets: CudaSets) -> None:
    """Raises ArmError where no device of this size has that many bytes of workspace, whoever else uses it."""
    if wanted <= 0:
        return
    most = device_bytes(sets.flush.device)
    if wanted > most:
        detail = f"the variant asks for {wanted} bytes of workspace on {sets.problem}; the device has {most} in all"
        raise ArmError(Fault(verdict=Verdict.OVER_LIMITS, code=codes.WORKSPACE, detail=detail))


def _variant_arm(forward: Forward, sets: CudaSets) -> GraphArm | EventArm:
    try:
        return make_arm(forward, sets)
    except (torch.AcceleratorError, torch.OutOfMemoryError):  # without memory the variant was not even asked
        raise
    except RuntimeError as error:
        raise LaunchError(str(error)) from None


def require_working_device() -> None:
    """The canary: allocates, runs a known kernel and verifies it. Raises InfrastructureError when that fails, and after
    some waiting DeviceFullError where there is no memory even for this."""
    for pause in FULL_PAUSES_S:
        try:
            return _require_right_sum()
        except DeviceFullError:
            time.sleep(pause)
    return _require_right_sum()


def _require_right_sum() -> None:
    """One try."""
    try:
        if not torch.cuda.is_available():
            raise InfrastructureError("torch sees no CUDA device; is a driver installed, and torch built for CUDA?")
        count = 1 << 20
        with full_is_no_refusal():
            found = int(torch.arange(count, device="cuda", dtype=torch.int64).sum())
    except RuntimeError as error:
        raise InfrastructureError(f"the CUDA device does not work: {str(error).splitlines()[0]}") from None
    if found != count * (count - 1) // 2:
        raise InfrastructureError(f"the CUDA device computes wrongly: a known sum came out as {found}")
