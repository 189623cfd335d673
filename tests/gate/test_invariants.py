"""The gate's logic without a compiler: an exact invariant on a bench of tensors, the cases for fixed lengths, and the
tolerances of a case that was hard on right answers."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from autotuner.forge.loaded_variant import DeviceErrors, Reported
from autotuner.gate.bench import Repeats, Traces
from autotuner.gate.cases import Matrix
from autotuner.gate.gate import in_order
from autotuner.gate.invariants import of_op
from autotuner.gate.launching import Evidence, Launching
from autotuner.gate.tolerance import compute_truth, judge
from autotuner.ops.sdpa import OP, tensors
from autotuner.ops.sdpa.invariants import spread
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors
from autotuner.values.conditions import Conditions
from autotuner.values.problem import Problem
from autotuner.values.verdict import Verdict
from tests.helpers.recorded import artifact

HALF = torch.finfo(torch.float16)
PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=64, seq_k=64, head_dim=64, dtype="float16")
Fault = Callable[[Tensor], Tensor]


class TensorBench:
    """A bench whose variant is exact attention, in which something may go wrong before O is rounded."""

    def __init__(self, wrong: Fault) -> None:
        self._wrong = wrong
        self.outputs: list[Tensor] = []

    def place(self, tensor: Tensor, shift: int = 0) -> Tensor:
        return tensor.clone()

    def far(self, tensor: Tensor, dim: int) -> Tensor:
        raise AssertionError("no check here has tensors far apart")

    errors = DeviceErrors()

    def launch(self, problem: Problem, inputs: Tensors, outputs: Tensors) -> int:
        (q, k, v), (o,) = inputs, outputs
        weights = torch.softmax(problem.scalars[0] * q.double() @ k.double().transpose(2, 3), -1)
        o.copy_(self._wrong(weights @ v.double()))
        self.outputs.append(o)
        return 0

    def disturb(self, turn: int) -> str:
        return ""

    def repeated(self, problem: Problem, inputs: Tensors, outputs: Tensors, right: Tensors, count: int) -> Repeats:
        raise AssertionError("no check of an invariant repeats launches")

    def traces(self, before: Sequence[Tensor], placed: Sequence[Tensor]) -> Traces:
        return Traces((False,) * len(before), None)

    def held(self) -> Mapping[str, int]:
        return {}

    def traffic(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def launching_on(bench: TensorBench) -> Launching:
    conditions = Conditions(problems=(PROBLEM,), seeds=(1, 2, 3, 4))
    evidence = Evidence(compute_truth, lambda: Reported(1, 0, "", {}), lambda: None, lambda *_: {}, lambda: False)
    return Launching(artifact(64), Matrix(PROBLEM), bench, conditions, evidence, lambda _: None)


SCALE_V = next(of_op(each) for each in OP.invariants if each.code == "G3.scale_v")


def test_4v_may_differ_from_4o_where_o_is_subnormal() -> None:
    bench = TensorBench(lambda exact: exact)
    _, fault = in_order(launching_on(bench), [SCALE_V])
    assert fault is None
    (plain, got) = bench.outputs
    different = got != 4 * plain
    assert different.any()  # else nothing was tried
    assert (plain[different].abs() < HALF.smallest_normal).all()


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda exact: exact + 2.0**-16, id="a constant"),
        pytest.param(lambda exact: exact.clamp(-0.5, 0.5), id="a clamp"),
        pytest.param(lambda exact: exact * (exact.abs() >= HALF.smallest_normal), id="subnormal numbers flushed"),
    ],
)
def test_4v_may_not_differ_from_4o_otherwise(wrong: Fault) -> None:
    _, fault = in_order(launching_on(TensorBench(wrong)), [SCALE_V])
    assert (fault.verdict, fault.code) == (Verdict.INCORRECT, "G3.scale_v")


def test_what_holds_when_it_is_launched_once_more_is_said() -> None:
    wrong = iter([0.0, 2.0**-16, 0.0])
    _, fault = in_order(launching_on(TensorBench(lambda exact: exact + next(wrong))), [SCALE_V])
    assert (fault.code, fault.detail.count("launched once more")) == ("G3.scale_v", 1)


@pytest.mark.parametrize("causal", [False, True])
def test_fixed_lengths_are_those_of_every_case_and_none_comes_twice(causal: bool) -> None:
    matrix = Matrix(PROBLEM.model_copy(update={"causal": causal}), {"SEQ_Q": 96, "SEQ_K": 160})
    full = matrix.full((64, 32))
    cases = (*matrix.quick(), *full, matrix.case((2, 3, 113, 203)))
    assert {case.problem.shape[2:4] for case in cases} == {(96, 160)}
    assert len({(case.problem, case.distribution) for case in full}) == len(full)
    assert {case.distribution for case in full} >= {"randn", "large", "huge", "tiny_v", "zero_q", "const_v"}


def base_two(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in float32 as a fast kernel has it: exp2 for exp, with scale and log2(e) folded into Q."""
    scores = (q * (problem.scalars[0] * math.log2(math.e))) @ k.transpose(-1, -2)
    weights = torch.exp2(scores - scores.amax(-1, keepdim=True))
    return weights @ v / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize("seed", [52632192780831, 52632192780832])
def test_no_lucky_order_of_summation_rejects_a_right_softmax(seed: int) -> None:
    """With the first seed the plain order is so nearly right that a tolerance from it alone rejects others."""
    case = Matrix(PROBLEM.model_copy(update={"dtype": "float32"})).case((2, 2, 257, 257), "huge")
    expected = compute_truth(case, seed)
    q, k, v = expected.inputs
    found = judge(base_two(case.problem, q, k, v), expected.outputs[0])
    assert found.failed_rule is None
    downgraded = v.bfloat16().float()
    assert judge(base_two(case.problem, q, k, downgraded), expected.outputs[0]).failed_rule is not None


def loop_over_keys(problem: Problem, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Attention and its log-sum-exps in float32 with every sum term after term; one query of each head."""
    of_heads = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(of_heads, 1) for x in (k, v))
    scores = (q * problem.scalars[0]) @ k.transpose(-1, -2)
    past = torch.arange(k.shape[-2]) >= lengths.view(-1, 1, 1, 1)
    scores = scores.masked_fill(past, -math.inf)
    largest = scores.amax(-1)
    o, total = torch.zeros(q.shape), torch.zeros(largest.shape)
    for key, weight in enumerate(torch.exp(scores - largest[..., None]).unbind(-1)):
        total = total + weight
        o = o + weight[..., None] * v[:, :, key, None]
    return o / total[..., None], largest + torch.log(total)


@pytest.mark.parametrize("seed", [28, 30])
def test_a_loop_over_the_keys_is_right_where_many_scores_are_equal(seed: int) -> None:
    """Rounding errs to one side where a sum gets the same term again and again. A tolerance whose sums are nearer to
    the truth than a loop's rejects it with these seeds."""
    problem = PROBLEM.model_copy(update={"dtype": "float32", "key_lengths": True, "lse": True, "heads_kv": 1})
    expected = compute_truth(Matrix(problem).case((2, 4, 1, 1000, 2), "one_hot"), seed)
    found = loop_over_keys(problem, *expected.inputs)
    assert [judge(*each).failed_rule for each in zip(found, expected.outputs, strict=True)] == [None, None]


# A number that is none ----------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words",
    [
        "(2,2,13x20,16) float32 causal",
        "(1,4:2,3x20,16) float32 causal bottom_right",
        "(2,2,13x20,16) float32 causal bias=alibi",
        "(2,2,13x20,16) float32 window=3 bias=full lengths",
        "(2,4:2,13x20,16) float32 softcap=30 sinks bias=heads",
    ],
)
def test_attention_that_gives_0_where_every_weight_is_0_is_not_accused(words: str) -> None:
    """A first row may see one key, whose score is minus infinity."""
    problem = SdpaProblem.parse(words)
    for seed in range(150):
        inputs = tensors.inputs(problem, "randn", seed)
        plain = tensors.reference(problem, inputs)
        for relation in spread(problem, inputs, seed):
            got, want = relation.compared(plain, tensors.reference(problem, relation.inputs))
            assert torch.equal(got, want), (seed, relation.detail)
