"""What the timing on CUDA does with tensors, on tensors of the CPU: streams and events are stood in for. And who is
told to work on behind the stream of the samples."""

import gc
import weakref
from collections.abc import Callable
from itertools import groupby
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from autotuner.devices.cuda import audit, device, guarded_memory, timing
from autotuner.devices.cuda.device import CudaTrack
from autotuner.devices.cuda.guarded_memory import SAME, Arena
from autotuner.devices.cuda.rest import BUSY_S, AfterBaseline, made_at_rest, still_busy
from autotuner.devices.cuda.timing import BaselineArm, CudaInputSets, CudaVariantArm, EventArm
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.recheck import AUDIT, Timed
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs, reference
from autotuner.race.arms import ArmError, Clocks
from autotuner.values.errors import DeviceFullError
from autotuner.values.verdict import Fault, Verdict

PROBLEM = SdpaProblem(batch=2, heads=3, seq_q=5, seq_k=9, head_dim=64, dtype="float16")
PLAIN = inputs(PROBLEM, "randn", 1)


class Kernel:
    """Attention on addresses; `conduct` gets the call's number and the tensors, and says whether to compute."""

    def __init__(self, conduct: Callable[[int, Tensor, Tensor], bool] = lambda call, q, o: True) -> None:
        self._conduct, self._calls = conduct, 0

    def workspace_bytes(self, problem: SdpaProblem) -> int:
        return 64

    def run(self, problem: SdpaProblem, given: Any, written: Any, workspace: int, size: int, stream: int) -> int:
        q, k, v = given
        output = written[0]
        self._calls += 1
        if self._conduct(self._calls, q, output):
            output.copy_(reference(PROBLEM, (q, k, v))[0].half())
        return 0


class Stream:
    cuda_stream = 0

    def synchronize(self) -> None:
        """Nothing is under way."""


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for module in (timing, audit):
        monkeypatch.setattr(module, "elapsed", lambda work, behind=False: (work(), 1e-3)[1])
    monkeypatch.setattr(timing, "make_arm", EventArm)
    monkeypatch.setattr(guarded_memory, "between_nothing", lambda size: torch.zeros(size, dtype=torch.uint8))
    monkeypatch.setattr(timing, "device_bytes", lambda device: 1 << 30)


def sets_of(cache: str) -> CudaInputSets:
    return CudaInputSets(PROBLEM, PLAIN, cache, 8192)


def arm_of(kernel: Kernel, sets: CudaInputSets, seen: list[Timed] | None = None) -> CudaVariantArm:
    def judge(timed: Timed) -> Fault | None:
        if seen is not None:
            seen.append(timed)
        return None

    return CudaVariantArm(cast(LoadedVariant, kernel), sets, judge)


def strays(arm: CudaVariantArm, seen: list[Timed]) -> str | None:
    arm.recheck()
    return seen[-1].strays


@pytest.mark.parametrize("cache", ["cold", "cold, few", "warm"])
def test_a_right_kernel_leaves_what_its_inputs_make(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Timed] = []
    if cache == "cold, few":
        monkeypatch.setattr(timing, "MOST_SETS", 2)
    sets = sets_of(cache.partition(",")[0])
    assert cache != "cold, few" or len(sets) == 2
    assert len(sets) == (1 if cache == "warm" else len(sets.inputs)) >= 1
    arm = arm_of(Kernel(), sets, seen)
    for _ in range(2 * len(sets) + 3):
        arm()
    assert isinstance(arm.clocks(1e-3), Clocks)
    assert strays(arm, seen) is None
    assert seen[-1].damage is None
    assert seen[-1].busy is None
    assert all(torch.equal(now, then) for now, then in zip(seen[-1].inputs, PLAIN, strict=True))


def test_who_launches_work_that_goes_on_behind_a_capture_has_no_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "own_work_s", lambda: 1.0)
    with pytest.raises(ArmError) as caught:
        arm_of(Kernel(), sets_of("warm"))
    assert (caught.value.fault.verdict, caught.value.fault.code) == (Verdict.IMPOSSIBLE, "G7.rest")


def test_work_beside_the_samples_of_the_baseline_is_the_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Timed] = []
    sets, took = sets_of("warm"), [0.0]
    monkeypatch.setattr(timing, "own_work_s", lambda: took[0])
    arm, baseline = arm_of(Kernel(), sets, seen), BaselineArm(sets.op.tensors().BASELINES["math"], sets)
    for took[0] in (0.0, 1.0, 1.0):
        baseline()
    took[0] = 0.0
    arm.recheck()
    assert seen[-1].busy is not None
    arm_of(Kernel(), sets, seen).recheck()  # of which nothing is known yet
    assert seen[-1].busy is None


def finite(output: Tensor) -> bool:
    return bool(torch.isfinite(output).all())


def test_an_output_that_was_not_computed_in_a_sample_is_seen() -> None:
    seen: list[Timed] = []
    arm = arm_of(Kernel(lambda call, q, output: call < 4), sets_of("warm"), seen)
    for _ in range(3):
        arm()
    assert strays(arm, seen) is not None


def test_an_audit_hands_out_fresh_inputs_and_checks_the_outputs() -> None:
    sets, asked = sets_of("warm"), []

    def judge(given: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        asked.append(torch.equal(reference(PROBLEM, given)[0].half(), outputs[0]))

    arm = arm_of(Kernel(), sets)
    made = audit.CudaAuditArm(arm, audit.buffers_of(arm), judge)
    assert made(fresh=False) > 0
    assert all(torch.equal(now, then) for now, then in zip(sets.inputs[0], PLAIN, strict=True))
    assert made(fresh=True) > 0
    assert made.recheck() is None
    assert asked == [True]
    assert all(torch.equal(now, then) for now, then in zip(sets.inputs[0], PLAIN, strict=True))


def test_an_audit_sees_who_computes_less_often_on_what_is_there() -> None:
    computed: list[bool] = []

    def conduct(call: int, q: Tensor, output: Tensor) -> bool:
        computed.append(not finite(output))
        return computed[-1]

    sets = sets_of("warm")
    arm = arm_of(Kernel(conduct), sets)
    made = audit.CudaAuditArm(arm, audit.buffers_of(arm), lambda given, outputs: None)
    computed.clear()
    made(fresh=False)
    assert not any(computed)
    computed.clear()
    made(fresh=True)
    assert all(computed)
    fault = made.recheck()
    assert fault.code == AUDIT


@pytest.mark.parametrize("seconds", [(1e-4, 1e-3), (1e-3, 1e-4)])
def test_refills_are_timed_around_a_variant_and_its_baseline_or_around_neither(
    seconds: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What copies add to the one is compared with what they add to the other. Where they are timed the cache holds
    something else before a sample: what is fresh came through it, and would leave fewer of them there."""
    graphs: list[SimpleNamespace] = []
    order: list[str] = []

    def made_at_rest(make: Callable[[], Any], busy: Callable[[], float]) -> SimpleNamespace:
        graphs.append(SimpleNamespace(replay=lambda: order.append("forwards")))
        return graphs[-1]

    monkeypatch.setattr(audit, "made_at_rest", made_at_rest)
    sets = sets_of("warm")
    arm, baseline = arm_of(Kernel(), sets), BaselineArm(sets.op.tensors().BASELINES["math"], sets)
    buffers = audit.buffers_of(arm)
    monkeypatch.setattr(audit, "elapsed", lambda work, behind=False: (work(), seconds[0])[1])
    made = audit.CudaAuditArm(arm, buffers, lambda given, outputs: None)
    monkeypatch.setattr(audit, "elapsed", lambda work, behind=False: (work(), seconds[1])[1])
    beside = audit.CudaAuditArm(baseline, buffers.beside, lambda given, outputs: None, made)
    monkeypatch.setattr(sets, "fill_cache", lambda: order.append("something else"))
    for each in (made, beside):
        each(fresh=True)
    assert len(graphs) in (0, 2)
    assert order == ["something else", *(["forwards"] if graphs else [])] * 2


# A device that is full ------------------------------------------------------------------------------------------------


def test_a_call_of_cuda_without_memory_is_no_error_of_the_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str) -> Callable[[], float]:
        def sample() -> float:
            raise torch.AcceleratorError(f"CUDA error: {text}\nand more")

        return sample

    arm = arm_of(Kernel(), sets_of("warm"))
    monkeypatch.setattr(arm, "_arm", fails("out of memory"))
    with pytest.raises(DeviceFullError, match=r"^the memory of the device is full: CUDA error: out of memory$"):
        arm()
    for said, verdict, code in (
        ("an illegal memory access was encountered", Verdict.CRASHED, "measure.device"),
        ("operation failed due to a previous error during capture", Verdict.LAUNCH_FAILED, "measure.capture"),
    ):
        monkeypatch.setattr(arm, "_arm", fails(said))
        with pytest.raises(ArmError) as caught:
            arm()
        assert (caught.value.fault.verdict, caught.value.fault.code) == (verdict, code)


class Refuses(Kernel):
    """The driver has no memory for its launch."""

    def run(self, problem: SdpaProblem, given: Any, written: Any, workspace: int, size: int, stream: int) -> int:
        return 1002


@pytest.mark.parametrize(("free", "full"), [(2, True), (60, False)])
def test_a_launch_without_memory_is_the_variants_fault_only_where_some_is_free(
    free: int, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 80))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(timing, "make_arm", lambda forward, sets: forward(0))
    if full:
        with pytest.raises(DeviceFullError, match=r"a launch ended with device error 2 \(out of memory\)$"):
            arm_of(Refuses(), sets_of("warm"))
    else:
        with pytest.raises(ArmError) as caught:
            arm_of(Refuses(), sets_of("warm"))
        assert (caught.value.fault.verdict, caught.value.fault.code) == (Verdict.LAUNCH_FAILED, "measure.launch")


# A device that is shared ----------------------------------------------------------------------------------------------


def baseline_arm(sample_s: float, row: Callable[[int], float], monkeypatch: pytest.MonkeyPatch) -> BaselineArm:
    """A baseline whose samples, a forward each, take `sample_s`; a number of forwards in a row takes `row` of it."""
    calls = [0]

    def elapsed(replay: Callable[[], None]) -> float:
        calls[0] = 0
        replay()
        return row(calls[0])

    class Graph:
        calls = 1

        def __call__(self) -> float:
            return sample_s

        def replay(self) -> None:
            calls[0] += 1

    monkeypatch.setattr(timing, "make_arm", lambda forward, sets: Graph())
    monkeypatch.setattr(timing, "elapsed", elapsed)
    baseline = next(iter(op_of(PROBLEM).tensors().BASELINES.values()))
    return BaselineArm(baseline, CudaInputSets(PROBLEM, PLAIN, "warm", 0))


def test_a_baseline_that_is_gone_leaves_no_graph_to_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that is given back while another one is captured ends the capture, whosever launch it holds."""
    arm = baseline_arm(5e-4, lambda count: 5e-4 * count, monkeypatch)
    arm()
    gone = weakref.ref(arm)
    gc.disable()
    try:
        del arm
        assert gone() is None
    finally:
        gc.enable()


def test_a_track_says_that_its_device_is_shared_and_looks_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    longer, rows = [2.0], [0]

    def row(count: int) -> float:
        rows[0] += 1
        return longer[0] * 5e-4 * count

    arm = baseline_arm(5e-4, row, monkeypatch)
    arm()
    clock = [100.0]
    monkeypatch.setattr(device, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(device, "BaselineArm", lambda *of: arm)
    found = CudaTrack(arm.sets, cast("Any", None), cast("Any", None))
    assert found.shared() is None  # no baseline was asked for
    found.baseline(next(iter(op_of(PROBLEM).tensors().BASELINES)))
    assert "took 2.0 times as long" in str(found.shared())
    longer[0] = 1.05
    assert found.shared() is None
    longer[0] = 2.0
    assert found.shared() is None  # so soon after it was seen alone nobody looks
    assert rows[0] == 2
    clock[0] += 1
    assert found.shared() is not None


def test_tensors_of_some_launches_in_a_row_lie_where_they_lay_before() -> None:
    """Else an answer that is kept by address would never be asked for again in the gate."""
    arena, places = Arena(), []
    for variant in range(2):
        arena.begin()
        for _ in range(1 + 4 * SAME):
            places.append((arena.take(1000).data_ptr(), arena.take(500).data_ptr()))
            arena.restore()
        rows = [len([*row]) for _, row in groupby(places[-1 - 4 * SAME :])]
        assert rows == [1, SAME, SAME, SAME, SAME], variant
    assert len(set(places)) == 2


# Work behind the stream -----------------------------------------------------------------------------------------------


BURNS_S = 5 * BUSY_S


class Device:
    """What was launched is waited for at the next look."""

    def __init__(self) -> None:
        self._took = 0.0

    def burn(self) -> None:
        self._took = BURNS_S

    def own_work_s(self) -> float:
        took, self._took = self._took, 0.0
        return took


def at_rest() -> float:
    return 0.0


def stopped_once() -> Callable[[], float]:
    """The system stops the thread that asks at the first look, and not again."""
    looks = iter([BURNS_S])
    return lambda: next(looks, 0.0)


def test_what_burns_once_is_waited_out() -> None:
    device, made = Device(), list[int]()

    def make() -> int:
        if not made:
            device.burn()
        made.append(len(made))
        return made[-1]

    assert made_at_rest(make, device.own_work_s) == 1
    assert made == [0, 1]


def test_a_host_that_is_stopped_at_one_look_accuses_nobody() -> None:
    assert made_at_rest(lambda: "made", stopped_once()) == "made"
    assert still_busy(lambda: None, stopped_once()) is None
    after, looks = AfterBaseline(), stopped_once()
    for _ in range(6):
        after.ask(looks)
    assert after.busy is None


def test_what_goes_on_after_each_forward_is_told() -> None:
    device = Device()
    device.burn()
    assert still_busy(device.burn, device.own_work_s) is not None
    assert still_busy(lambda: None, at_rest) is None


def test_who_burns_beside_many_samples_of_the_baseline_is_told() -> None:
    device, after = Device(), AfterBaseline()
    for sample in range(6):
        if sample % 2:
            device.burn()
        after.ask(device.own_work_s)
    assert after.busy is not None
    after.forget()
    assert after.busy is None
