"""What the timing on CUDA does with tensors, on tensors of the CPU: streams and events are stood in for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from autotuner.build.loaded_variant import LoadedVariant
from autotuner.devices.cuda import audit, timing
from autotuner.devices.cuda.timing import EventArm, InputSets, VariantArm
from autotuner.gate.recheck import Timed
from autotuner.measure.arms import Clocks
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs, reference
from autotuner.values.verdict import Fault

PROBLEM = SdpaProblem(batch=2, heads=3, seq_q=5, seq_k=9, head_dim=64, dtype="float16")
PLAIN = inputs(PROBLEM, "randn", 1)


def at(address: int, like: Tensor) -> Tensor:
    """The tensor at an address."""
    memory = (ctypes.c_char * (like.numel() * like.element_size())).from_address(address)
    return torch.frombuffer(memory, dtype=like.dtype).view(like.shape)


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
            output.copy_(reference(PROBLEM, q, k, v)[0].half())
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
        monkeypatch.setattr(module, "elapsed", lambda work: (work(), 1e-3)[1])
    monkeypatch.setattr(timing, "make_arm", EventArm)


def sets_of(cache: str) -> InputSets:
    return InputSets(PROBLEM, PLAIN, cache, 8192)


def arm_of(kernel: Kernel, sets: InputSets, seen: list[Timed] | None = None) -> VariantArm:
    def judge(timed: Timed) -> Fault | None:
        if seen is not None:
            seen.append(timed)
        return None

    return VariantArm(cast(LoadedVariant, kernel), sets, judge)


def strays(arm: VariantArm, seen: list[Timed]) -> str | None:
    arm.recheck()
    return seen[-1].strays


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_a_right_kernel_leaves_what_its_inputs_make(cache: str) -> None:
    seen: list[Timed] = []
    sets = sets_of(cache)
    assert len(sets) == (1 if cache == "warm" else len(sets.inputs)) >= 1
    arm = arm_of(Kernel(), sets, seen)
    for _ in range(2 * len(sets) + 3):
        arm()
    assert isinstance(arm.clocks(1e-3), Clocks)
    assert strays(arm, seen) is None
    assert seen[-1].damage is None
    assert seen[-1].busy is None
    assert all(torch.equal(now, then) for now, then in zip(seen[-1].inputs, PLAIN, strict=True))


def test_inputs_differ_from_set_to_set_and_from_sample_to_sample() -> None:
    sets = sets_of("cold")
    sets.renew()
    first = [each[0].clone() for each in sets.inputs]
    assert len(sets) > 2
    assert not any(torch.equal(first[0], other) for other in first[1:])
    sets.renew()
    assert not any(torch.equal(now[0], then) for now, then in zip(sets.inputs, first, strict=True))
    assert sets.changed() is None
    sets.inputs[1][2].view(torch.int16)[0, 1, 2, 3] ^= 1
    assert sets.changed() == "V of a timed set changed while it was timed"


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
        asked.append(torch.equal(reference(PROBLEM, *given)[0].half(), outputs[0]))

    arm = arm_of(Kernel(), sets)
    made = audit.of_variant(arm, sets, judge)
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
    made = audit.of_variant(arm_of(Kernel(conduct), sets), sets, lambda given, outputs: None)
    computed.clear()
    made(fresh=False)
    assert not any(computed)
    computed.clear()
    made(fresh=True)
    assert all(computed)
    assert made.recheck() is None
