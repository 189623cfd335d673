"""The op sdpa_fp8 by itself: its problem in words, its inputs, its reference, and torch's own in its tolerances."""

import math
from pathlib import Path
from typing import cast

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import autotuner
from autotuner.devices.sanitized_inputs import draw
from autotuner.gate.cases import Case, Matrix, measured
from autotuner.gate.tolerance import broken, compute_truth, judge
from autotuner.ops import OPS
from autotuner.ops.op import shape_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import reference as attention, sdpa
from autotuner.ops.sdpa_fp8 import SdpaFp8Problem
from autotuner.ops.sdpa_fp8.invariants import DECIBELS
from autotuner.ops.sdpa_fp8.quantising import (
    LARGEST,
    SMALLEST_DESCALE,
    _by_torchao,
    of_heads,
    quantised,
    quantised_inputs,
    stored,
)
from autotuner.ops.sdpa_fp8.tensors import BASELINES, dequantised, hopper_product
from autotuner.values.gate_report import Tolerance
from autotuner.values.problem import Problem

OP = OPS["sdpa_fp8"]
LARGE = "(2,4:2,70x91,128) fp8 float16 causal bottom_right lengths bshd lse"


def test_attention_in_16_bits_says_who_takes_fp8() -> None:
    said = "float8_e4m3fn is not supported: the op sdpa_fp8 takes it, with the output's dtype"
    with pytest.raises(ValueError, match=said):
        SdpaProblem.parse("(1,32:8,8192,128) float8_e4m3fn")
    fields = {"batch": 1, "heads": 2, "seq_q": 3, "seq_k": 4, "head_dim": 128}
    with pytest.raises(ValueError, match=said):
        SdpaProblem.model_validate({**fields, "dtype": "float8_e4m3fn"})


def test_a_problem_is_read_as_it_is_written() -> None:
    problem = SdpaFp8Problem.parse(f"{LARGE} cache")
    assert str(problem) == "(2,4:2,70x91,128) float8_e4m3fn float16 causal bottom_right lengths bshd lse cache"
    assert SdpaFp8Problem.parse(str(problem)) == problem
    assert Problem.model_validate(problem.model_dump(mode="json")) == problem


@pytest.mark.parametrize("cache", ["", " cache"])
@pytest.mark.parametrize("distribution", OP.words.distributions)
def test_inputs_fit_and_the_reference_is_attention_of_what_they_stand_for(distribution: str, cache: str) -> None:
    problem = SdpaFp8Problem.parse(LARGE + cache)
    drawn = OP.tensors().inputs(problem, distribution, 3)
    for tensor, said in zip(drawn, OP.inputs(problem), strict=True):
        assert str(tensor.dtype) == f"torch.{said.dtype}"
        assert tensor.shape == shape_of(said, problem)
    fields = {name: each for name, each in problem.model_dump(mode="json").items() if name != "fp8_cache"}
    plain = SdpaProblem.model_validate({**fields, "op": "sdpa"})
    for found, of_16_bits in zip(
        OP.tensors().reference(problem, drawn), attention(plain, dequantised(problem, drawn)), strict=True
    ):
        assert torch.equal(found, of_16_bits)


def test_the_largest_number_of_a_head_becomes_the_largest_of_fp8() -> None:
    x = torch.randn(2, 6, 50, 64)
    x[1, 3] = 0
    stored, descale = quantised(x, 3)
    assert descale.shape == (2, 3)
    assert bool((stored.float().abs().amax((2, 3)).view(2, 3, 2).amax(2) == LARGEST).all())
    back = stored.float() * of_heads(descale, 6)
    assert bool(((back - x).abs() <= 2**-4 * x.abs() + 2**-10 * of_heads(descale, 6)).all())


def test_inputs_are_quantised_one_by_one_and_named_as_attention_asks() -> None:
    q, *kv = (torch.randn(2, heads, 50, 64).bfloat16() for heads in (6, 3, 3))
    numbers, descales = quantised_inputs(q, *kv)
    assert list(descales) == list(OP.signature.DESCALES)
    for x, number, descale in zip((q, *kv), numbers, descales.values(), strict=True):
        wanted, of_wanted = quantised(x, 3)
        assert torch.equal(number.view(torch.uint8), wanted.view(torch.uint8))
        assert torch.equal(descale, of_wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_torchaos_kernels_find_the_same(dtype: torch.dtype) -> None:
    """But for numbers half way between two of FP8, and the descale of nothing but zeros."""
    pytest.importorskip("torchao.prototype.attention.quantization")
    sizes = ((8, 300), (2, 517), (2, 517))
    q, k, v = (torch.randn(2, heads, length, 128, device="cuda").to(dtype) for heads, length in sizes)
    k[1, 1], v[0, 0] = 0, 1000 * v[0, 0]
    v = v.mT.contiguous().mT
    assert _by_torchao(q, k, v) is not None
    assert _by_torchao(q.cpu(), k, v) is _by_torchao(q.float(), k, v) is _by_torchao(q, k, v[:, :, 1:]) is None
    numbers, descales = quantised_inputs(q, k, v)
    for x, number, descale in zip((q, k, v), numbers, descales.values(), strict=True):
        wanted, of_wanted = quantised(x, 2)
        zeros = of_wanted == SMALLEST_DESCALE
        torch.testing.assert_close(descale[~zeros], of_wanted[~zeros], rtol=2e-7, atol=0)
        assert bool((descale[zeros] == 1).all())
        steps = (number.view(torch.uint8).int() - wanted.view(torch.uint8).int()).abs()
        assert int(steps.max()) <= 1
        assert float(steps.float().mean()) < 0.01
    found = autotuner.function("sdpa_fp8")(*numbers, **descales).double()
    exact = scaled_dot_product_attention(q.double(), k.double(), v.double(), enable_gqa=True)
    assert float((found - exact).norm() / exact.norm()) < 10 ** (-DECIBELS / 20)


def cut_off(terms: torch.Tensor) -> float:
    """Their sum, 32 at a time, where each term and the sum so far lose all but 14 bits from the largest one's first."""
    total = torch.zeros((), dtype=torch.float64)
    for some in terms.double().split(32):
        largest = torch.maximum(total.abs(), some.abs().max())
        digit = 2.0 ** (torch.floor(torch.log2(largest)) - 13)
        total = (torch.trunc(total / digit) + torch.trunc(some / digit).sum()) * digit
    return float(total)


@pytest.mark.parametrize("count", [128, 2048, 8192])
def test_sums_of_probabilities_fall_behind_as_on_hopper(count: int) -> None:
    """Within a fifth of what is lost; the tensor cores of an H200 lost 13 % of 8192 such."""
    terms = torch.randn(count, generator=torch.Generator().manual_seed(2)).exp()
    found = float(hopper_product(terms.view(1, 1, -1), torch.ones(1, count, 1)))
    exact = float(terms.double().sum())
    assert found - exact == pytest.approx(cut_off(terms) - exact, rel=0.2, abs=1e-3 * exact)


@pytest.mark.parametrize(("index", "cache"), [(0, ""), (1, " lse"), (3, ""), (1, " cache"), (3, " cache lse")])
def test_attention_in_16_bits_is_within_the_tolerances(index: int, cache: str) -> None:
    case: Case = Matrix(SdpaFp8Problem.parse(f"(1,4:2,64,64) bfloat16 causal{cache}")).quick()[index]
    truth = compute_truth(case, 5)
    assert broken(BASELINES["flash"].answer(case.problem, truth.inputs), truth, Tolerance()) is None


def test_log_sum_exps_have_a_baseline_that_is_right() -> None:
    """One in 16 bits is not where a row sees few keys, and flash's causal mask ends at the other corner."""
    case = measured(SdpaFp8Problem.parse("(1,2,1,64) float16 lse cache"))
    truth = compute_truth(case, 5)
    answers = {name: BASELINES[name].answer(case.problem, truth.inputs) for name in ("math", "flash")}
    assert broken(answers["math"], truth, Tolerance()) is None
    assert broken(answers["flash"], truth, Tolerance()) is not None
    q, k = (torch.empty(1, 2, rows, 64, device="meta", dtype=torch.bfloat16) for rows in (113, 203))
    with pytest.raises(RuntimeError, match="no such mask"):
        sdpa(SdpaProblem.parse("(1,2,113x203,64) bfloat16 causal lse"), "flash")(q, k, k)


@pytest.mark.parametrize("index", [0, 2])
def test_a_row_may_be_scaled_by_its_first_keys_where_the_tolerance_says_so(index: int) -> None:
    """The last 64 are the first ones. The emulation of any scale bounds what that costs; one of no scale does not hide
    a descale that is one digit off."""
    case = Matrix(SdpaFp8Problem.parse("(1,4:2,64,64) bfloat16")).quick()[index]
    problem, truth = cast(SdpaFp8Problem, case.problem), compute_truth(case, 6)
    given = truth.inputs
    q, k, v = (x.repeat_interleave(problem.heads // x.shape[1], 1) for x in dequantised(problem, given))
    scores = q @ k.transpose(-1, -2) * problem.scale * math.log2(math.e)
    weights = stored(torch.exp2(scores - scores[..., -64:].amax(-1, keepdim=True) + 3)).double()
    o = (weights @ v / weights.sum(-1, keepdim=True)).bfloat16()
    named = Tolerance(emulation="any_scale", reason="the first keys scale it")
    errors = judge(o, truth.outputs[0], named)
    assert errors.worst_ratio < 0.7
    assert errors.max_abs_tol > judge(o, truth.outputs[0]).max_abs_tol
    assert judge(o * 1.0625, truth.outputs[0], named).failed_rule is not None


def test_sanitizers_have_numbers_of_fp8() -> None:
    problem = SdpaFp8Problem.parse("(1,2,64,128) bfloat16")
    numbers = torch.frombuffer(bytearray(draw(problem)[0]), dtype=torch.float8_e4m3fn).float()
    assert 0.9 < float(numbers.std()) < 1.1


def test_flash_attention_3_is_imported_before_the_cage_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its package lies may be none of the places that a caged process reads."""
    package = tmp_path / "fa3_fwd_interface.py"
    package.write_text("def flash_attn_func(q, k, v, **options):\n    return q.bfloat16()\n")
    monkeypatch.syspath_prepend(tmp_path)
    problem = SdpaFp8Problem.parse("(1,2,32,64) float8_e4m3fn bfloat16 full")
    forward = BASELINES["fa3_fp8"].forward(problem)
    package.unlink()
    (found,) = forward(*OP.tensors().inputs(problem, "randn", 1))
    assert found.shape == (1, 2, 32, 64)
