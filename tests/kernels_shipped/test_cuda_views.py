"""The logic of mma, decode and wgmma on the host emulator: views, groups, log-sum-exps; and of the first two lengths,
corners, few queries, head dimensions that are no multiple of 64."""

import pytest
import torch

from autotuner.gate.cases import Case
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs
from autotuner.ops.tensors import same_bits
from autotuner.values import config
from tests.emulator.emulator import emulate, in_words, judged
from tests.helpers import needs
from tests.mutants.warpgroups import POINT as WGMMA

pytestmark = needs.emulator

Point = dict[str, int | str]
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
    """Few are always run; of the others some."""
    found: list[object] = [pytest.param(*case, id=f"{case[1]} {case[2]}") for case in CASES]
    marks = [pytest.mark.slow, pytest.mark.sampled(2, "cuda_views")]
    return found + [pytest.param(*case, id=f"{case[1]} {case[2]}", marks=marks) for case in SLOW]


@pytest.mark.slow
@pytest.mark.parametrize(("point", "text", "distribution"), each())
def test_a_view_is_read_and_written_right(point: Point, text: str, distribution: str) -> None:
    source = config.kernels_dir() / "sdpa" / ("wgmma.cu" if "CONSUMERS" in point else "mma.cu")
    case = Case(name=text, problem=SdpaProblem.parse(text), distribution=distribution)
    errors = judged(source, point, case, 2)
    assert errors.failed_rule is None, in_words(errors)


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
