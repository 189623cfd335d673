"""IMPL = wgmma_fp8, mma_fp8 and decode on the host emulator: their numbers in the gate's cases, their schedules, and
what finds their mutants."""

import math
from pathlib import Path

import pytest
import torch

from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops.sdpa_fp8 import SdpaFp8Problem
from autotuner.ops.sdpa_fp8.quantising import stored
from autotuner.ops.sdpa_fp8.tensors import reference
from autotuner.values import config
from autotuner.values.variant import Value, Variant
from tests.emulator.emulator import emulate_fp8
from tests.helpers import needs
from tests.helpers.judging import artifact_of
from tests.mutants.fp8 import Mutant, first_failure, mutants, whole

SHIPPED = config.kernels_dir() / "sdpa_fp8"
POINTS: list[tuple[dict[str, Value], str]] = [
    ({"PING_PONG": 2}, "(1,8,512,128) bfloat16 causal"),
    ({"CONSUMERS": 3, "SOFTMAX": "exact", "FMA_SHARE": 0, "PING_PONG": 2}, "(1,8:2,512,128) float16 lengths bshd lse"),
    ({"BLOCK_N": 160, "SCHEDULE": "tile", "PING_PONG": 0, "OFFSET": 6}, "(1,8:2,512,128) float16 causal bottom_right"),
    ({"BLOCK_N": 192, "Q_FROM": "shared", "FMA_SHARE": 6}, "(1,8,512,128) bfloat16 causal bottom_right lengths lse"),
    ({"BLOCK_N": 128, "CONSUMERS": 1, "PING_PONG": 0, "STAGES": 4, "OFFSET": 3}, "(1,8:2,512,128) bfloat16"),
    ({"TILE_ROWS": 8}, "(1,8:2,512,128) bfloat16 cache"),
    ({"MERGE": "cluster", "BLOCK_N": 32, "TILE_ROWS": 8}, "(1,8:2,512,64) float16 lengths bshd lse cache"),
    (
        {"MERGE": "cluster", "SPLIT": 1, "WARPS_M": 2, "WARPS_N": 1, "ROW_TILES": 2, "BLOCK_N": 16, "PACK_GQA": 0},
        "(1,8:2,512,128) float16 causal bottom_right cache",
    ),
    ({"WARPS": 4}, "(1,8,512,128) bfloat16 causal lse"),
    ({"WARPS": 8, "BLOCK_N": 32, "STAGES": 4}, "(1,8:2,512,128) float16 lengths bshd"),
    ({"WARPS": 2, "BLOCK_N": 128}, "(1,8:2,512,64) float16 causal bottom_right"),
    ({"WARPS": 4, "ROW_TILES": 2, "BLOCK_N": 32}, "(1,8,512,64) bfloat16 causal bottom_right lengths bshd lse"),
]


@needs.emulator
@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("change", "problem"), POINTS, ids=str)
def test_it_is_right_in_the_quick_cases_and_keeps_the_invariants(change: dict[str, Value], problem: str) -> None:
    source, parameters = whole(problem, change)
    assert first_failure(SHIPPED / source, parameters, SdpaFp8Problem.parse(problem)) == "pass"


@needs.emulator
@pytest.mark.slow
@pytest.mark.parametrize("share", [3, 8])
def test_a_late_key_may_be_any_number_of_powers_of_two_above_those_before(share: int) -> None:
    """Each row has its own jump, up to 2^4000: what is too large for the units that multiply is noticed."""
    problem = SdpaFp8Problem.parse("(1,1,64x256,128) bfloat16")
    source, parameters = whole(str(problem), {"CONSUMERS": 1, "PING_PONG": 0, "FMA_SHARE": share})
    q, k = torch.zeros(1, 1, 64, 128), torch.zeros(1, 1, 256, 128)
    q[0, 0, :, 0] = torch.arange(0, 128, 2, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    k[0, 0, 5, 0] = 448
    v = torch.randn(1, 1, 256, 128, generator=torch.Generator().manual_seed(1))
    descale = torch.full((1, 1), 4000 / (448 * 448 * problem.scale * math.log2(math.e)))
    given = (stored(q), stored(k), stored(v), descale, *[torch.ones(1, 1)] * 2)
    (found,) = emulate_fp8(SHIPPED / source, parameters, problem, given, 0)
    assert (found.double() - reference(problem, given)[0]).abs().max() < 0.06


@needs.emulator
@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_is_found(mutant: Mutant, tmp_path: Path) -> None:
    assert mutant.first_failure(tmp_path).startswith(mutant.codes)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("change", "problem"), POINTS, ids=str)
def test_it_compiles(change: dict[str, Value], problem: str, nvcc: CudaToolchain) -> None:
    """ptxas says where it would make products wait for each other, and a build takes that for an error. The host side
    keeps no state but what G0.conduct knows."""
    source, parameters = whole(problem, change)
    impl = source.removesuffix(".cu")
    variant = Variant(family="sdpa_fp8", backend="cuda", impl=impl, parameters=parameters)
    artifact = artifact_of(build(Family.find("sdpa_fp8"), variant, SdpaFp8Problem.parse(problem), nvcc))
    assert nvcc.misconduct(Path(artifact.path).parent, threads=False, state=False) is None
    assert impl == "decode" or artifact.resources["static_shared_bytes"] == 0  # its own, not the first kernel's
