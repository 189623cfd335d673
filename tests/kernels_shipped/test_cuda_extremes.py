"""What CUDA variants of attention give for numbers at the end of their range, on the host emulator: torch's answer, and
no number where the definition has none."""

import math
from typing import cast

import pytest
import torch
from torch import Tensor

from autotuner.gate.cases import Case
from autotuner.gate.tolerance import compute_truth, judge
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values import config
from tests.emulator.emulator import emulate
from tests.emulator.points import DEFAULTS, MMA, SCALAR, WGMMA, WMMA, Point
from tests.helpers import needs

pytestmark = needs.emulator

SMALL: Point = {**MMA, "WARPS_M": 2, "BLOCK_N": 32}
POINTS: dict[str, tuple[str, Point]] = {
    "scalar": ("scalar", SCALAR),
    "wmma": ("wmma", WMMA),
    **{f"mma-{exp}": ("mma", {**SMALL, "EXP": exp}) for exp in ("ex2", "poly", "mixed")},
    "mma-groups": ("mma", {**SMALL, "EXP": "poly", "WARPS_M": 1, "WARPS_N": 2, "BLOCK_N": 16}),
    "wgmma-exact": ("wgmma", {**WGMMA, "SOFTMAX": "exact"}),
    "wgmma-guess": ("wgmma", WGMMA),
}
assert {impl for impl, _ in POINTS.values()} == set(DEFAULTS)
EVERY = pytest.mark.parametrize("name", POINTS)


def computed(name: str, on: SdpaProblem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    impl, point = POINTS[name]
    return emulate(config.kernels_dir() / "sdpa" / f"{impl}.cu", point, on, (q, k, v), 1)[0].float()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.slow
@pytest.mark.sampled(3)
@EVERY
@pytest.mark.parametrize("mask", ["", " causal"])
def test_very_large_scores_of_bfloat16_choose_one_key(name: str, mask: str) -> None:
    """Each query is one of the keys: the softmax is 1 there, and O is a row of V. The scores reach 2^36."""
    q, v = ((scale * drawn(1, 1, 150, 64)).bfloat16() for scale in (3e4, 1))
    found = computed(name, SdpaProblem.parse(f"(1,1,150,64) bfloat16{mask}"), q, q.clone(), v)
    assert torch.equal(found, v.float())


@EVERY
def test_very_large_scores_that_are_equal_share(name: str) -> None:
    q, v = torch.full((1, 1, 150, 64), 2e4).half(), drawn(1, 1, 150, 64).half()
    found = computed(name, SdpaProblem.parse("(1,1,150,64) float16"), q, q.clone(), v)
    mean = v.float().mean(2, keepdim=True)
    assert (found - mean).abs().max() < 2e-3


@EVERY
def test_one_very_large_score_comes_late_or_early(name: str) -> None:
    """One key of 150 has scores of 2^31, the others usual ones; some rows have its negative."""
    q, k, v = (drawn(1, 1, 150, 64).half() for _ in range(3))
    for key in (3, 140):
        q[..., 0], k[..., 0], k[..., key, 0] = 6e4 * q[..., 0].sign(), 0, 6e4
        expected = torch.where(q[..., :1] > 0, v[:, :, key : key + 1].float(), math.nan)
        found = computed(name, SdpaProblem.parse("(1,1,150,64) float16"), q, k, v)
        assert torch.equal(found[expected.isfinite()], expected[expected.isfinite()])
        others = torch.softmax((q.double() @ k.double().transpose(2, 3)) / 8, -1) @ v.double()
        assert (found - others).abs().max() < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.sampled(2, name)) for name in POINTS])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_no_number_comes_out_where_the_definition_has_it(name: str, bad: float, place: int) -> None:
    on = SdpaProblem.parse("(1,1,70,64) float16")
    inputs = drawn(3, 1, 1, 70, 64).half().unbind()
    inputs[place][0, 0, 37, 3] = bad
    q, k, v = (each.double() for each in inputs)
    right = torch.softmax(q @ k.transpose(2, 3) / 8, -1) @ v
    found = computed(name, on, *inputs)
    assert torch.equal(found.isnan(), right.isnan())
    assert torch.equal(found.isinf(), right.isinf())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_no_number_changes_no_bit_of_those_beside_it(bad: float) -> None:
    """With PACK_GQA they are rows of other heads."""
    on = SdpaProblem.parse("(1,4:1,8x70,64) float16")
    decode: Point = {**SMALL, "WARPS_M": 1, "PACK_GQA": 1, "MERGE": "device", "L2_FETCH": 1, "Q_FROM": "registers"}
    source, q = config.kernels_dir() / "sdpa" / "mma.cu", drawn(1, 4, 8, 64).half()
    k, v = drawn(2, 1, 1, 70, 64).half().unbind()
    planted = q.clone()
    planted[0, 3, 3, 5] = bad
    plain, other = (emulate(source, decode, on, (each, k, v), 1)[0] for each in (q, planted))
    assert (plain != other).any(-1).nonzero().tolist() == [[0, 3, 3]]


@pytest.mark.parametrize("distribution", ["one_hot", "outlier_row"])
def test_a_key_that_has_all_the_weight_comes_after_a_guess(distribution: str) -> None:
    """Guesses subtract the maximum of the first tile: the weight of a later key is 1 all the same, and O a row of V."""
    case = Case.model_validate(
        {"name": "late", "problem": SdpaProblem.parse("(1,2,70x203,64) bfloat16"), "distribution": distribution}
    )
    on, truth = cast(SdpaProblem, case.problem), compute_truth(case, 1)
    point: Point = {**WGMMA, "SOFTMAX": "spec"}
    found = emulate(config.kernels_dir() / "sdpa" / "wgmma.cu", point, on, truth.inputs, 1)[0]
    assert judge(found, truth.outputs[0]).failed_rule is None
