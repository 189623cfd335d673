"""G7: what is looked at after timing, in the buffers that were timed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from autotuner.gate.cases import Case
from autotuner.gate.recheck import Timed, recheck
from autotuner.gate.tolerance import OWN, Truth, compute_truth
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.verdict import Fault, Verdict

PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=5, seq_k=9, head_dim=64, dtype="float16")
CASE = Case(name="measured", problem=PROBLEM, distribution="randn")
Forward = Callable[[Tensor, Tensor, Tensor], Tensor]


@pytest.fixture(scope="module")
def truths() -> tuple[Truth, Truth]:
    """What was timed, and the new inputs."""
    return compute_truth(CASE, 1), compute_truth(CASE, 2)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(PROBLEM.scale * q.double() @ k.double().transpose(2, 3), -1)
    return (weights @ v.double()).half()


class Buffers:
    """The buffers after a race, as a variant left them."""

    def __init__(self, truths: tuple[Truth, Truth], forward: Forward = attention) -> None:
        self.expected, self.fresh = truths
        self.inputs = tuple(tensor.clone() for tensor in self.expected.inputs)
        self.output = attention(*self.expected.inputs)
        self.again = 0
        self._forward = forward

    def recheck(self, damage: str | None = None, strays: str | None = None) -> Fault | None:
        left = Timed(self.inputs, (self.output,), damage, strays, self._repeat)
        return recheck(PROBLEM, left, self.expected, self.fresh, OWN)

    def _repeat(self) -> None:
        self.again += 1
        self.output.copy_(self._forward(self.inputs[0], self.inputs[1], self.inputs[2]))

    @property
    def restored(self) -> bool:
        """True when the inputs are those that were timed."""
        return all(torch.equal(now, then) for now, then in zip(self.inputs, self.expected.inputs, strict=True))


def test_a_right_variant_passes_and_its_inputs_come_back(truths: tuple[Truth, Truth]) -> None:
    timed = Buffers(truths)
    assert timed.recheck() is None
    assert timed.again == 1
    assert timed.restored


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_changed_input_is_found_by_its_bits(truths: tuple[Truth, Truth], place: int) -> None:
    timed = Buffers(truths)
    timed.inputs[place].view(torch.int16)[0, 1, 2, 3] ^= 1
    fault = timed.recheck()
    assert (fault.verdict, fault.code) == (Verdict.CORRUPTING, "G7.inputs")
    assert timed.again == 0


def test_a_wrong_output_of_the_timed_run_is_found(truths: tuple[Truth, Truth]) -> None:
    timed = Buffers(truths)
    timed.output[0, 1, 4] += 0.1
    fault = timed.recheck()
    assert (fault.verdict, fault.code) == (Verdict.INCORRECT, "G7.output")
    assert "an output of the timed run breaks T1" in fault.detail
    assert timed.again == 0


def test_an_answer_that_was_kept_is_found(truths: tuple[Truth, Truth]) -> None:
    """Kept by the address of the inputs, which is the same."""
    kept = attention(*truths[0].inputs)
    timed = Buffers(truths, lambda *_: kept)
    fault = timed.recheck()
    assert (fault.verdict, fault.code) == (Verdict.INCORRECT, "G7.output")
    assert "with new inputs" in fault.detail
    assert timed.restored


def test_an_output_that_is_not_written_again_is_found(truths: tuple[Truth, Truth]) -> None:
    timed = Buffers(truths)
    left = Timed(timed.inputs, (timed.output,), None, None, lambda: None)
    fault = recheck(PROBLEM, left, timed.expected, timed.expected, OWN)
    assert (fault.verdict, fault.code) == (Verdict.INCORRECT, "G7.output")
    assert "breaks T0" in fault.detail


@pytest.mark.parametrize(
    ("left", "verdict", "code"),
    [
        ({"damage": "2 bytes past a tensor's end were written"}, Verdict.CORRUPTING, "G7.guard"),
        ({"strays": "two timed launches gave different bits"}, Verdict.NONDETERMINISTIC, "G7.strays"),
    ],
)
def test_what_the_race_left_elsewhere_is_a_fault(
    truths: tuple[Truth, Truth], left: dict[str, str], verdict: Verdict, code: str
) -> None:
    timed = Buffers(truths)
    fault = timed.recheck(**left)
    assert (fault.verdict, fault.code) == (verdict, code)
    assert timed.again == 0
