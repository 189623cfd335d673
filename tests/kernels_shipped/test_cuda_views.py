"""The logic of mma, decode and wgmma on the host emulator: views, groups, log-sum-exps; and of the first two lengths,
corners, few queries, head dimensions that are no multiple of 64. And what all give for numbers at the end of their
range: torch's answer, and no number where the definition has none."""

import math
from typing import cast

import pytest
import torch
from torch import Tensor

from autotuner.gate.cases import Case
from autotuner.gate.tolerance import compute_truth, judge
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs
from autotuner.ops.tensors import same_bits
from autotuner.values import config
from tests.emulator.emulator import emulate, in_words, judged
from tests.emulator.points import DEFAULTS, Point
from tests.helpers import needs
from tests.mutants.warpgroups import POINT as WGMMA

pytestmark = needs.emulator

MMA: Point = {
    **{"WARPS_M": 2, "ROW_TILES": 1, "WARPS_N": 1, "BLOCK_N": 32, "STAGES": 2, "SPLIT": 1},
    **{"LOAD": "tma", "Q_FROM": "registers"},
}
DECODE: Point = {**MMA, "WARPS_M": 1, "WARPS_N": 2, "SPLIT": 3, "MERGE": "device", "PACK_GQA": 1}
COPIES: Point = {"LOAD": "cp_async"}
CASES: list[tuple[Point, str, str]] = [
    (MMA, "(1,2,70x91,64) float16 bshd lse", "gaps"),
    ({**MMA, **COPIES, "WARPS_N": 2}, "(4,2,33x90,80) bfloat16 lengths lse", "ragged"),
    ({**MMA, "MULTICAST": 2, "SPLIT": 2, "WARPS_M": 1}, "(1,2,33x90,64) float16 bshd", "gaps"),
    ({**DECODE, **COPIES}, "(4,4:2,5x200,64) float16 lengths lse bshd causal bottom_right", "ragged"),
    (WGMMA, "(2,3,113x203,64) float16 bshd", "gaps"),
    ({**MMA, **COPIES}, "(1,2,150,64) float16 causal window=37", "edges"),
    (WGMMA, "(1,2,150x300,64) float16 full window=37,5", "edges"),
    ({**WGMMA, "SOFTMAX": "spec"}, "(1,2,150x300,64) float16 full softcap=5 lse", "randn"),
    ({**DECODE, **COPIES}, "(2,10:5,3x300,64) bfloat16 causal bottom_right lengths sinks lse", "far_sinks"),
    ({**MMA, **COPIES}, "(2,4:2,70x91,64) bfloat16 full bias=full", "hiding"),
    ({**WGMMA, "SOFTMAX": "spec"}, "(1,10:5,203x60,64) bfloat16 causal window=20 sinks=float32 lse", "far_sinks"),
    ({**WGMMA, "SCHEDULE": "dynamic"}, "(1,5,203x60,64) float16 causal window=20 sinks", "far_sinks"),
]
SLOW: list[tuple[Point, str, str]] = [
    (MMA, "(3,2,20x45,64) float16 bshd", "expanded"),
    (DECODE, "(2,4:1,1x333,64) float16", "one_hot"),
    ({**WGMMA, "SCHEDULE": "dynamic"}, "(3,2,70x91,64) float16 causal bshd", "expanded"),
    ({**WGMMA, "Q_FROM": "registers"}, "(2,8:2,70x203,64) bfloat16 causal", "one_hot"),
    ({**WGMMA, "SOFTMAX": "spec"}, "(2,4:2,150x91,64) float16 bshd lse", "gaps"),
    ({**DECODE, **COPIES}, "(4,8:2,3x500,64) float16 causal window=100 bottom_right lengths bshd lse", "ragged"),
    (MMA, "(2,2,65x1,64) float16 full softcap=50 lse", "randn"),
    ({**MMA, **COPIES, "WARPS_N": 2}, "(1,5,150x91,64) float16 causal sinks lse", "far_sinks"),
    ({**DECODE, **COPIES}, "(2,8:4,3x300,64) bfloat16 causal bottom_right lengths sinks bias=alibi lse", "randn"),
    ({**WGMMA, "SOFTMAX": "spec"}, "(2,4:2,150x203,64) float16 causal bias=heads lse", "hiding"),
    ({**MMA, **COPIES}, "(1,4:2,40x75,64) bfloat16 causal packed", "one_hot"),
    ({**MMA, "PACK_GQA": 1, "WARPS_M": 1, "WARPS_N": 2}, "(1,6:2,7x75,128) float16 causal bottom_right lse", "large"),
    ({**MMA, "WARPS_N": 2, "SPLIT": 2}, "(1,2,33x90,96) float16 bshd", "gaps"),
    ({**MMA, "Q_FROM": "shared"}, "(1,2,33x90,192) float16 causal", "randn"),
    ({**MMA, "BLOCK_N": 16}, "(1,2,20x50,256) float16 lse", "huge"),
    ({**MMA, "MULTICAST": 2}, "(1,2,100x40,64) float16 causal bottom_right lse", "randn"),
    ({**MMA, "FIXED": 1}, "(1,2,100x40,64) float16 causal bottom_right lse", "randn"),
    ({**DECODE, "SPLIT": 20, "BLOCK_N": 16, "WARPS_N": 4}, "(1,8:1,2x1500,64) float16 lse", "sink"),
    ({**DECODE, "MERGE": "cluster", "SPLIT": 4}, "(1,4:2,16x300,128) float16 lse", "slopes"),
    ({**DECODE, "WARPS_M": 2, "PACK_GQA": 0}, "(2,2,17x70,96) bfloat16 packed", "randn"),
    (WGMMA, "(2,2,150,128) bfloat16 causal packed", "randn"),
    ({**WGMMA, "BLOCK_N": 80}, "(1,8:4,150x70,64) float16 causal packed", "one_hot"),
    ({**WGMMA, "SCHEDULE": "tile", "Q_BUFFERS": 1}, "(2,8:1,65x130,64) float16 bshd", "gaps"),
    ({**WGMMA, "O_STAGING": "own", "OVERLAP": 0}, "(2,8:1,65x130,128) float16 causal", "large"),
    ({**WGMMA, "BLOCK_N": 128, "EARLY_START": 1, "SOFTMAX": "exact"}, "(2,4:2,200x300,64) float16 bshd lse", "gaps"),
    ({**WGMMA, "BLOCK_N": 128, "EARLY_START": 1, "SOFTMAX": "exact"}, "(1,3,300x200,64) bfloat16 causal lse", "sink"),
    ({**WGMMA, "SOFTMAX": "spec"}, "(1,2,150x300,64) float16 causal lse", "slopes"),
    ({**WGMMA, "SOFTMAX": "spec"}, "(1,2,1x1,64) bfloat16 bshd lse", "huge"),
    ({**MMA, "WARPS_N": 2, "BLOCK_N": 16, "SPLIT": 2}, "(2,2,203x60,64) float16 causal window=20 lse", "randn"),
    ({**MMA, "MULTICAST": 2}, "(1,2,150x300,64) bfloat16 full window=1,70 bottom_right", "edges"),
    ({**WGMMA, "SOFTMAX": "exact", "STAGES": 1}, "(2,2,203x60,64) float16 causal window=20 lse", "randn"),
    ({**WGMMA, "BLOCK_N": 80, "OVERLAP": 0}, "(1,4:2,190x100,64) bfloat16 causal window=64 bshd", "edges"),
    (
        # More tiles than the ring holds that one consumer does not see, before a ticket is drawn.
        {**WGMMA, "SOFTMAX": "spec", "SCHEDULE": "dynamic", "CONSUMERS": 4, "STAGES": 1, "BLOCK_N": 64},
        "(1,2,300,64) float16 full window=37,5 lse",
        "huge",
    ),
    (WGMMA, "(1,2,150x300,64) bfloat16 full softcap=5", "huge"),
    ({**WGMMA, "SOFTMAX": "exact"}, "(1,2,150,64) float16 causal window=40 softcap=20 lse", "one_hot"),
    ({**DECODE, **COPIES}, "(2,8:2,3x500,64) float16 causal softcap=30 bottom_right lengths bshd", "ragged"),
    ({**DECODE, "MERGE": "cluster", "SPLIT": 4}, "(1,8:2,16x300,128) float16 full sinks=float32 lse", "huge"),
    (WGMMA, "(1,4,150x91,64) float16 causal bias=alibi lse", "large"),
    (WGMMA, "(2,4:2,150x91,64) bfloat16 full bias=full sinks bshd", "hiding"),
    ({**DECODE, **COPIES}, "(2,8:2,3x300,64) bfloat16 full bias=full lse", "shared"),
    ({**WGMMA, "O_STAGING": "own"}, "(2,5,150x91,64) float16 full sinks bshd lse", "far_sinks"),
    ({**MMA, "EXP": "poly"}, "(1,2,150x70,64) float16 full softcap=20 lse", "huge"),
]


def each() -> list[object]:
    """Of those that show one feature of one implementation each half are run, and of the others one."""
    return [
        pytest.param(*case, id=f"{case[1]} {case[2]}", marks=pytest.mark.sampled(count, name))
        for count, name, cases in ((6, "features", CASES), (1, "others", SLOW))
        for case in cases
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("point", "text", "distribution"), each())
def test_a_view_is_read_and_written_right(point: Point, text: str, distribution: str) -> None:
    source = config.kernels_dir() / "sdpa" / ("wgmma.cu" if "CONSUMERS" in point else "mma.cu")
    case = Case(name=text, problem=SdpaProblem.parse(text), distribution=distribution)
    errors = judged(source, point, case, 2)
    assert errors.failed_rule is None, in_words(errors)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shared", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("along", [0, 1], ids=["batches", "heads"])
def test_tensors_with_a_stride_of_0_are_read_as_their_copies(shared: tuple[int, ...], along: int) -> None:
    """Of wgmma, which is told for each tensor whether its batches, or its heads, are one."""
    on = SdpaProblem.parse("(2,4:2,70x91,64) float16 bshd")
    source = config.kernels_dir() / "sdpa" / "wgmma.cu"
    given = [*inputs(on, "randn", 1)]
    for place in shared:
        given[place] = given[place].narrow(along, 0, 1).expand(given[place].shape)
    copies = [each.clone(memory_format=torch.contiguous_format) for each in given]
    assert all(given[place].stride(along) == 0 for place in shared)
    assert all(each.stride(along) for each in copies)
    (found,), (expected,) = (emulate(source, WGMMA, on, tuple(each), 1) for each in (given, copies))
    assert same_bits(found, expected)


FAR = [(number, dim) for number in range(4) for dim in range(3)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("point", "tensors"),
    [
        pytest.param({**MMA, **COPIES}, FAR[::2], id="mma, copies"),
        pytest.param(MMA, FAR[1::2], id="mma, maps"),
        pytest.param(WGMMA, FAR, id="wgmma"),
    ],
)
def test_offsets_need_not_fit_in_32_bits(point: Point, tensors: list[tuple[int, int]]) -> None:
    on = SdpaProblem.parse("(2,4:2,17x33,64) float16 bshd")
    source = config.kernels_dir() / "sdpa" / ("wgmma.cu" if "CONSUMERS" in point else "mma.cu")
    given = inputs(on, "randn", 1)
    (expected,) = emulate(source, point, on, given, 0)
    for far in tensors:
        assert same_bits(emulate(source, point, on, given, 0, far)[0], expected), far


# Numbers at the end of their range ------------------------------------------------------------------------------------


SMALL: Point = {**DEFAULTS["mma"], "WARPS_M": 2, "BLOCK_N": 32}
POINTS: dict[str, tuple[str, Point]] = {
    "scalar": ("scalar", DEFAULTS["scalar"]),
    "wmma": ("wmma", DEFAULTS["wmma"]),
    **{f"mma-{exp}": ("mma", {**SMALL, "EXP": exp}) for exp in ("ex2", "poly", "mixed")},
    "mma-groups": ("mma", {**SMALL, "EXP": "poly", "WARPS_M": 1, "WARPS_N": 2, "BLOCK_N": 16}),
    "wgmma-exact": ("wgmma", {**DEFAULTS["wgmma"], "SOFTMAX": "exact"}),
    "wgmma-guess": ("wgmma", DEFAULTS["wgmma"]),
}
assert {impl for impl, _ in POINTS.values()} == set(DEFAULTS)
FURTHER = [name for name in POINTS if name.startswith(("mma", "wgmma"))][1:-1]
EVERY = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in FURTHER else ()) for name in POINTS]
)


def computed(name: str, on: SdpaProblem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    impl, point = POINTS[name]
    return emulate(config.kernels_dir() / "sdpa" / f"{impl}.cu", point, on, (q, k, v), 1)[0].float()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.slow
@pytest.mark.sampled(2)
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
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.sampled(1, name)) for name in POINTS])
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
    point: Point = {**DEFAULTS["wgmma"], "SOFTMAX": "spec"}
    found = emulate(config.kernels_dir() / "sdpa" / "wgmma.cu", point, on, truth.inputs, 1)[0]
    assert judge(found, truth.outputs[0]).failed_rule is None
