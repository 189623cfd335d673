"""Timing on CUDA: the sides of a race as replays of a graph, or as single launches between events."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor

from autotuner.devices.cuda.captured import CapturedForwards, captured
from autotuner.devices.cuda.errors import CUDA_ERRORS
from autotuner.devices.cuda.full import device_bytes, unless_full
from autotuner.devices.cuda.guarded_memory import PATTERN, Band, Slot, damage
from autotuner.devices.cuda.rest import AfterBaseline, made_at_rest, own_work_s, still_busy
from autotuner.devices.renewed import RenewedSets
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.recheck import JudgeTimed, Timed
from autotuner.ops.op import Baseline
from autotuner.ops.tensors import Tensors, all_same_bits, full_is_no_refusal, lying_in, overwrite, poison, span
from autotuner.race.arms import ArmError, Clocks
from autotuner.race.third_clock import Stamp
from autotuner.values import codes
from autotuner.values.errors import first_line
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

BAND = 32 << 10
"""Bytes of a band between the tensors of a set: more than a tile's rows, as what is just past the end is what a wrong
tail touches."""
ALIGNMENT = 1024

MOST_SETS = 1024
"""Of inputs. A forward on each lasts GRAPH_S or more; to capture one on each of ten thousand outlasts a race."""

Forward = Callable[[int], None]
"""Launches one forward on the input set of that number, on the current stream."""


class Rows:
    """Sets of tensors, a set a row of one allocation, each tensor between bands that hold a pattern:

    | band | first | band | second | band | ...
    """

    def __init__(self, count: int, like: Sequence[Tensor]) -> None:
        self._like = tuple(like)
        self._spans = _spans([-(-span(tensor) * tensor.element_size() // 2) * 2 for tensor in like])
        period = -(-(self._spans[-1][1] + BAND) // ALIGNMENT) * ALIGNMENT
        self._memory = torch.full((count, period // 2), PATTERN, dtype=torch.int16, device=like[0].device)
        self.count = count

    @property
    def bytes(self) -> int:
        """Of all sets."""
        return 2 * self._memory.numel()

    def words(self, place: int) -> Tensor:
        """The tensor of that place in every set, as words; (sets, words)."""
        start, stop = self._spans[place]
        return self._memory[:, start // 2 : stop // 2]

    def sets(self) -> list[Tensors]:
        """The tensors of each set."""
        like = [(self.words(place), like) for place, like in enumerate(self._like)]
        return [tuple(lying_in(words[row], each) for words, each in like) for row in range(self.count)]

    @cached_property
    def stacked(self) -> Tensors:
        """The tensors of each place in all sets; the sets are the first dimension."""
        return tuple(self._stacked(place, like) for place, like in enumerate(self._like))

    def _stacked(self, place: int, like: Tensor) -> Tensor:
        words = self.words(place).view(like.dtype)
        strides = (words.stride(0), *like.stride())
        return words.as_strided((self.count, *like.shape), strides, words.storage_offset())

    def bands(self) -> list[Band]:
        """What lies around the tensors of each set."""
        edges = [0, *(edge for span in self._spans for edge in span), 2 * self._memory.shape[1]]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [Band(self._memory[:, start // 2 : stop // 2], start > 0, before=True) for start, stop in pairs]


def _spans(sizes: list[int]) -> list[tuple[int, int]]:
    """First and last byte of each tensor of a set, with at least a band before each."""
    spans: list[tuple[int, int]] = []
    for size in sizes:
        start = -(-((spans[-1][1] if spans else 0) + BAND) // ALIGNMENT) * ALIGNMENT
        spans.append((start, start + size))
    return spans


class CudaInputSets(RenewedSets):
    """Copies of one problem's inputs at different addresses. `cold`: with their outputs they are together more than the
    second-level cache holds, so that a set has left it when its turn comes again; of a small problem there are
    MOST_SETS, and something else fills the cache before each replay. `warm`: one set.
    """

    def __init__(self, problem: Problem, inputs: Tensors, cache: str, cache_bytes: int) -> None:
        self.cold, self._cache_bytes = cache == "cold", cache_bytes
        wanted = math.ceil(5 * cache_bytes / problem.bytes) + 1 if self.cold else 1
        self.rows = Rows(min(wanted, MOST_SETS), inputs)
        self.stay = self.rows.count < wanted  # all of them in the cache, unless something else fills it
        super().__init__(problem, inputs, self.rows.stacked, random.Random())
        self.inputs = self.rows.sets()
        self.flush = torch.empty(2 * cache_bytes, dtype=torch.uint8, device=inputs[0].device)
        self.after_baseline = AfterBaseline()
        """What worked on behind the baselines' samples since the last variant's arm was made."""
        self.restore()

    def __len__(self) -> int:
        return self.rows.count

    @property
    def bytes(self) -> int:
        """Of the inputs, with room for as much."""
        return 2 * self.rows.bytes + self.flush.numel()

    def another(self) -> CudaInputSets:
        """The same inputs in other memory."""
        return CudaInputSets(self.problem, self.plain, "cold" if self.cold else "warm", self._cache_bytes)

    def fill_cache(self) -> None:
        """Has the cache read something else; writes would have to be put away later."""
        self.flush.view(torch.int64).sum()

    def _differ(self, right: Tensors) -> Iterable[bool]:
        pairs = zip(self.stacked, right, strict=True)
        flags = torch.stack([(now.view(torch.int16) != then.view(torch.int16)).any() for now, then in pairs])
        return map(bool, flags.tolist())  # in one transfer


class CudaOutputs:
    """The outputs of each input set, poisoned."""

    def __init__(self, sets: CudaInputSets) -> None:
        like = sets.op.tensors().outputs(sets.problem, sets.inputs[0])
        self._sets, self.rows = sets, Rows(len(sets), like)
        self.tensors = self.rows.sets()
        self._due = tuple(
            torch.empty(stacked.shape, dtype=stacked.dtype, device=stacked.device) for stacked in self.rows.stacked
        )

    def poison(self) -> None:
        """Makes all outputs NaN."""
        poison(self.rows.stacked)

    def unlike(self, plain: Tensors, used: slice) -> Tensor:
        """Whether an output of these sets is not the one that the set's inputs make, where the plain ones give `plain`:
        a tensor, so that nobody waits for it. 0 and -0 are equal, NaN is like nothing."""
        self._sets.outputs(plain, self._due)
        pairs = zip(self.rows.stacked, self._due, strict=True)
        return torch.stack([(now[used] != then[used]).any() for now, then in pairs]).any()


BEHIND_CYCLES = 400_000
"""Cycles of the clock, some 0.2 ms, for which one thread of the device spins before a sample. The host launches the
sample meanwhile: else some hundredths of a sample of a millisecond are the launch of its graph, more where the host is
slow or the graph has more forwards."""


def elapsed(work: Callable[[], object], behind: bool = False) -> float:
    """Seconds between two events around the work. `behind`: without what the host takes to launch it."""
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if behind:
        torch.cuda._sleep(BEHIND_CYCLES)
    before.record()
    work()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after)) / 1e3


class GraphArm:
    """Replays of a graph of forwards, each on the next input set. `overlap`: one begins before the last has ended."""

    def __init__(self, forward: Forward, sets: CudaInputSets, seconds: float) -> None:
        least = max(1, math.ceil(GRAPH_S / seconds))
        self.calls = max(len(sets), least) if sets.cold else least
        self._sets = sets
        self._graph, forwards = torch.cuda.CUDAGraph(), CapturedForwards()
        with captured(self._graph):
            for call in range(self.calls):
                forward(call % len(sets))
                forwards.end()
            self.overlap = forwards.overlap()
        self.last = (self.calls - 1) % len(sets)
        self.used = slice(0, min(self.calls, len(sets)))
        for _ in range(math.ceil(WARM_S / (seconds * self.calls)) if seconds * self.calls < WARM_S else 0):
            self._graph.replay()

    def __call__(self) -> float:
        if self._sets.stay:
            self._sets.fill_cache()
        return elapsed(self._graph.replay, behind=True) / self.calls

    def replay(self) -> None:
        """One untimed replay."""
        self._graph.replay()


class EventArm:
    """Single launches between events; the second-level cache is flushed before each when it is to be cold."""

    overlap = False

    def __init__(self, forward: Forward, sets: CudaInputSets) -> None:
        self._forward, self._sets = forward, sets
        self.calls, self.last, self.used = 1, 0, slice(0, 1)

    def __call__(self) -> float:
        self.last = (self.last + 1) % len(self._sets)
        self.used = slice(self.last, self.last + 1)
        if self._sets.cold:
            self._sets.flush.zero_()
        return elapsed(self.replay)

    def replay(self) -> None:
        """One untimed forward on the set of the last sample."""
        self._forward(self.last)


def make_arm(forward: Forward, sets: CudaInputSets) -> GraphArm | EventArm:
    """The arm that suits the forward's duration. Raises RuntimeError when a short forward cannot be captured."""
    forward(0)
    torch.cuda.synchronize()
    once = torch.cuda.CUDAGraph()
    with captured(once):  # a forward of many kernels would be timed at the speed of their launches
        forward(0)
    seconds = min(elapsed(once.replay, behind=True) for _ in range(3))
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
    except (torch.AcceleratorError, LaunchError) as error:
        said, launches = first_line(error), isinstance(error, LaunchError)
        verdict, code = (Verdict.LAUNCH_FAILED, "measure.launch") if launches else (Verdict.CRASHED, "measure.device")
        if "captur" in said:  # as in CUDA's words of each error of a capture, and in ours of its numbers
            verdict, code = Verdict.LAUNCH_FAILED, "measure.capture"
        raise ArmError(Fault(verdict=verdict, code=code, detail=said)) from None


class BaselineArm:
    """The arm of a baseline. What runs on the device waits for no CPU: whether it is shared is asked beside.

    A graph that is the only one of its process is replayed faster: on an H200 a forward of cuDNN and the kernels of a
    mask took 23.0 us instead of 25.5. Beside a variant a baseline is not alone, so it must not be where it is timed by
    itself: its graph is captured twice.

    What it gives for each set is kept, so that the results lie apart as a variant's outputs do: with all of them in one
    place, which torch takes for what was just let go, only the variant's outputs would be cold.
    """

    waited, retaken = 0.0, False

    def __init__(self, baseline: Baseline, sets: CudaInputSets) -> None:
        """Raises RuntimeError if the baseline does not take the problem, and DeviceFullError without memory for it."""
        self._baseline, self.sets, results = baseline, sets, dict[int, object]()
        with full_is_no_refusal():
            self._beside = beside = self._made()
            pinned = baseline.forward(sets.problem)

            def forward(index: int) -> None:
                results.pop(index, None)
                results[index] = pinned(*sets.inputs[index], *beside)

            self.forward = forward
            self._arm, self._company = make_arm(forward, sets), make_arm(forward, sets)
        self.calls = self._arm.calls
        self._shortest = math.inf

    def __call__(self) -> float:
        with device_faults():
            overwrite(self._beside, self._made())  # where the graph looks for it
            seconds = self._arm()
            self.sets.after_baseline.ask(own_work_s)
            self._shortest = min(self._shortest, seconds)
            self.sets.renew()
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
        return self._baseline.beside(self.sets.problem, self.sets.inputs[0])


class CudaVariantArm:
    """The arm of a built variant, with guarded outputs and a guarded workspace of its own."""

    waited, retaken = 0.0, False

    def __init__(self, variant: LoadedVariant, sets: CudaInputSets, judge: JudgeTimed) -> None:
        """Raises ArmError if the variant cannot be launched or captured, and DeviceFullError without memory for it."""
        self.sets, self.outputs, self._judge = sets, CudaOutputs(sets), judge
        self._stamp = Stamp()
        sets.after_baseline.forget()
        wanted = variant.workspace_bytes(sets.problem)
        _require_possible(wanted, sets)
        self._workspace = Slot(max(wanted, 1))
        self.workspace = self._workspace.take(wanted)
        workspace = self.workspace.data_ptr()
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
            self._plain = tuple(output.clone() for output in self.outputs.tensors[self._arm.last])
            self._strays = torch.zeros((), dtype=torch.bool, device=sets.flush.device)
            self._settle()
        self.calls = self._arm.calls

    def __call__(self) -> float:
        with device_faults():
            seconds = self._arm()
            self._settle()
            return seconds

    def _settle(self) -> None:
        """After a sample: each of its outputs must be the one that its inputs make. Then outputs are poisoned, and all
        sets get other inputs."""
        self._strays |= self.outputs.unlike(self._plain, self._arm.used)
        self._prepare()

    def _prepare(self) -> None:
        self.outputs.poison()
        self.sets.renew()

    def clocks(self, seconds: float) -> Clocks:
        with device_faults():
            count = math.ceil(seconds / (self._arm() * self.calls))

            def replays() -> None:
                for _ in range(count):
                    self._arm.replay()

            for _ in range(2):  # the driver's clock believes no single sample
                torch.cuda.synchronize()
                self._stamp.begin()
                started = time.perf_counter_ns()
                device = elapsed(replays)
                host = time.perf_counter_ns() - started
                self._stamp.end(host)
            self._settle()
            return Clocks(host=host / 1e9, device=device)

    def recheck(self) -> Fault | None:
        with device_faults():
            arm, sets, outputs = self._arm, self.sets, self.outputs
            busy = sets.after_baseline.busy or still_busy(arm.replay, own_work_s)
            self._prepare()
            arm.replay()
            self._strays |= outputs.unlike(self._plain, arm.used)
            strays = "the output of a timed forward is not the one that its inputs make" if self._strays else None
            strays = sets.changed() or strays
            sets.restore()
            outputs.poison()
            arm.replay()
            last = outputs.tensors[arm.last]
            if strays is None and not all_same_bits(last, self._plain):
                strays = "two timed launches on equal inputs gave different bits"
            found = damage([*sets.rows.bands(), *outputs.rows.bands(), *self._workspace.bands()])
            return self._judge(Timed(sets.inputs[arm.last], last, found, strays, arm.replay, busy))


def _require_possible(wanted: int, sets: CudaInputSets) -> None:
    """Raises ArmError where no device of this size has that many bytes of workspace, whoever else uses it."""
    most = device_bytes(sets.flush.device)
    if wanted > most:
        detail = f"the variant asks for {wanted} bytes of workspace on {sets.problem}; the device has {most} in all"
        raise ArmError(Fault(verdict=Verdict.OVER_LIMITS, code=codes.WORKSPACE, detail=detail))


def _variant_arm(forward: Forward, sets: CudaInputSets) -> GraphArm | EventArm:
    try:
        return make_arm(forward, sets)
    except (torch.AcceleratorError, torch.OutOfMemoryError):  # without memory the variant was not even asked
        raise
    except RuntimeError as error:
        raise LaunchError(str(error)) from None
