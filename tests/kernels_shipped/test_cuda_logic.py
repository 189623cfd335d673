"""The logic of the CUDA implementations, on the host emulator: indices, tails, masks, barriers. And the emulator: what
it must see in kernels that are wrong on purpose."""

from pathlib import Path

import pytest
import torch

from autotuner.gate.cases import Case
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import DTYPES
from autotuner.spaces.space import SpaceFile
from autotuner.values import config
from tests.emulator.emulator import EmulationError, emulate_softmax, in_words, judged
from tests.emulator.points import DEFAULTS, WGMMA, Point
from tests.helpers import needs

pytestmark = needs.emulator

FIXTURES = Path(__file__).parent.parent / "emulator" / "fixtures"
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "own_cuda_kernel"
SEEDS = 3


def problem(
    seq_q: int, seq_k: int, *, batch: int = 1, head_dim: int = 64, dtype: str = "float16", causal: bool = False
) -> SdpaProblem:
    """A small problem of two heads."""
    fields = {"batch": batch, "heads": 2, "seq_q": seq_q, "seq_k": seq_k, "head_dim": head_dim}
    return SdpaProblem.model_validate({**fields, "dtype": dtype, "causal": causal})


FULL = problem(70, 91)
CAUSAL = problem(91, 70, causal=True)
BFLOAT16 = problem(33, 129, batch=2, dtype="bfloat16")
WIDE = problem(40, 75, head_dim=128, dtype="bfloat16", causal=True)
SINGLE = problem(1, 1)
PROBLEMS = (FULL, SINGLE, WIDE)
"""Those of which every default is always tried: the first two are of one program."""


def check(source: Path, point: Point, on: SdpaProblem, seeds: int = SEEDS) -> None:
    """The variant is within the gate's tolerances, and all schedules give the same bits."""
    errors = judged(source, point, Case(name=str(on), problem=on, distribution="randn"), seeds)
    assert errors.failed_rule is None, in_words(errors)


# The emulator -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tensor_core", "bulk", "split"])
@pytest.mark.parametrize("on", [FULL, pytest.param(WIDE, marks=pytest.mark.slow)], ids=str)
def test_right_kernels_pass(name: str, on: SdpaProblem) -> None:
    check(FIXTURES / f"{name}.cu", {}, on, seeds=6)


FAULTS = [
    ("tensor_core", "missing_wait", "differ"),
    ("tensor_core", "missing_arrival_barrier", "differ"),
    ("tensor_core", "missing_release_barrier", "differ"),
    ("tensor_core", "diverged", "the warp has diverged"),
    ("tensor_core", "stuck", "deadlock.*\n.*__syncthreads.*\n.*named barrier 1"),
    ("tensor_core", "past_end", "outside O|O was written"),
    ("tensor_core", "shared_overrun", "shared memory was written 0 bytes past"),
    ("tensor_core", "misaligned", "misaligned address"),
    ("bulk", "missing_release", "differ"),
    ("bulk", "early_exit", "not initialised|has ended|on their way"),
    ("split", "missing_cluster_barrier", "differ"),
    ("split", "early_exit", "differ"),
]


@pytest.mark.parametrize(("name", "fault", "complaint"), FAULTS)
def test_faults_are_seen(monkeypatch: pytest.MonkeyPatch, name: str, fault: str, complaint: str) -> None:
    monkeypatch.setenv("FAULT", fault)
    with pytest.raises(EmulationError, match=complaint):
        check(FIXTURES / f"{name}.cu", {}, FULL, seeds=6)


def test_a_variant_that_does_not_compile_says_so() -> None:
    with pytest.raises(EmulationError, match="does not compile"):
        check(config.kernels_dir() / "sdpa" / "scalar.cu", {}, FULL)


# The implementations ------------------------------------------------------------------------------------------------

CHANGES: dict[str, list[Point]] = {
    "scalar": [
        {"REDUCE": "shared", "STAGES": 1, "VEC_WIDTH": 2, "PAD": 2, "BLOCK_M": 16, "BLOCK_N": 64, "NUM_WARPS": 2},
        {"REDUCE": "shared", "SYNC_POLICY": 2, "VEC_WIDTH": 4, "PAD": 0, "BLOCK_M": 64, "NUM_WARPS": 8},
        {"STAGES": 1, "SYNC_POLICY": 1, "BLOCK_M": 8, "NUM_WARPS": 8},
    ],
    "wmma": [
        {"BLOCK_M": 32, "SYNC_POLICY": 1, "ACC": "half"},
        {"PRODUCER_WARPS": 1, "STAGES": 3, "BLOCK_N": 32, "FIXED": 1},
        {"PRODUCER_WARPS": 2, "SYNC_POLICY": 2, "BLOCK_M": 16, "PAD": 0},
        {"STAGES": 1, "NUM_WARPS": 2},
    ],
    "mma": [
        {"WARPS_N": 2, "WARPS_M": 2, "BLOCK_N": 16, "STAGES": 3, "EXP": "poly"},
        {"Q_FROM": "shared", "STAGES": 1, "SYNC_POLICY": 1, "FIXED": 1, "WARPS_M": 1, "BLOCK_N": 16},
        {"LOAD": "tma", "WARPS_M": 1, "ROW_TILES": 2, "WARPS_N": 2, "BLOCK_N": 32, "EXP": "mixed"},
        {"LOAD": "tma", "MULTICAST": 2, "WARPS_M": 1, "BLOCK_N": 32, "Q_FROM": "shared", "SYNC_POLICY": 1},
        {"LOAD": "cp_async", "SPLIT": 2, "WARPS_M": 1, "WARPS_N": 2, "BLOCK_N": 16, "SYNC_POLICY": 2},
        {"LOAD": "tma", "SPLIT": 2, "MULTICAST": 2, "WARPS_M": 2, "BLOCK_N": 16, "STAGES": 3},
    ],
    "wgmma": [
        {"SCHEDULE": "static", "EARLY_START": 1, "BLOCK_N": 128, "SOFTMAX": "exact", "Q_FROM": "registers"},
        {"SCHEDULE": "tile", "Q_BUFFERS": 1, "O_STAGING": "own", "CONSUMERS": 1, "PING_PONG": 0, "SOFTMAX": "spec"},
        {"SCHEDULE": "static", "OVERLAP": 0, "STAGES": 1, "BLOCK_N": 80, "Q_BUFFERS": 1, "CONSUMERS": 3},
        {"OVERLAP": 0, "PING_PONG": 0, "O_STAGING": "own", "Q_FROM": "registers", "CONSUMERS": 4, "STAGES": 3},
        {"BLOCK_N": 96, "Q_BUFFERS": 1, "SOFTMAX": "exact", "STAGES": 1},
        {"OVERLAP": 2, "CONSUMERS": 3, "BLOCK_N": 80, "SOFTMAX": "spec"},
        {"OVERLAP": 2, "CONSUMERS": 4, "STAGES": 1, "SOFTMAX": "exact", "EARLY_START": 1},
        {"SCHEDULE": "tile", "OVERLAP": 0, "CONSUMERS": 3, "STAGES": 1, "Q_BUFFERS": 1},
    ],
}


def variants() -> list[object]:
    """Each default on every problem, one of them on others, and of the other points, on a full and a causal one, one of
    each implementation."""
    found: list[object] = []
    for impl, default in DEFAULTS.items():
        found += [pytest.param(impl, {}, on, id=f"{impl}-default-{on}") for on in PROBLEMS]
        marks = [pytest.mark.slow, pytest.mark.sampled(1, "defaults")]
        found += [pytest.param(impl, {}, on, id=f"{impl}-default-{on}", marks=marks) for on in (CAUSAL, BFLOAT16)]
        for number, change in enumerate(CHANGES[impl]):
            assert change.keys() <= default.keys()
            marks = [pytest.mark.slow, pytest.mark.sampled(1, impl)]
            point = {**default, **change}
            # in a causal mask the next item may begin early where no tile of it is hidden from a consumer alone
            is_early = point.get("EARLY_START") == 1 and int(point["BLOCK_N"]) % (64 * int(point["CONSUMERS"])) != 0
            for on in (FULL,) if is_early else (FULL, CAUSAL):
                found.append(pytest.param(impl, change, on, id=f"{impl}-{number}-{on}", marks=marks))
    return found


@pytest.mark.parametrize(("impl", "change", "on"), variants())
def test_an_implementation_is_right(impl: str, change: Point, on: SdpaProblem) -> None:
    check(config.kernels_dir() / "sdpa" / f"{impl}.cu", {**DEFAULTS[impl], **change}, on)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("change", [each for each in CHANGES["wgmma"] if "EARLY_START" not in each], ids=str)
def test_consumers_that_see_less_stay_in_step(change: Point) -> None:
    """Several hidden tiles, rings of one slot, a last block of a single row."""
    point = {**WGMMA, **change, "STAGES": 1}
    check(config.kernels_dir() / "sdpa" / "wgmma.cu", point, problem(257, 450, causal=True))


OTHERS = [pytest.mark.slow, pytest.mark.sampled(1, "widths")]


@pytest.mark.parametrize(
    ("head_dim", "change"),
    [
        pytest.param(80, {"BLOCK_N": 96, "O_STAGING": "own", "SOFTMAX": "spec"}, marks=OTHERS),
        (96, {"Q_FROM": "registers"}),
        pytest.param(192, {"BLOCK_N": 96, "SCHEDULE": "tile", "Q_BUFFERS": 1}, marks=OTHERS),
        pytest.param(256, {"BLOCK_N": 80, "SCHEDULE": "static", "Q_BUFFERS": 1}, marks=OTHERS),
    ],
)
def test_products_of_warpgroups_have_rows_of_other_widths(head_dim: int, change: Point) -> None:
    """A last panel that is not full, and outputs of up to 256 columns."""
    on = problem(150, 200, head_dim=head_dim, dtype="bfloat16", causal=True)
    check(config.kernels_dir() / "sdpa" / "wgmma.cu", {**WGMMA, **change}, on)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("softmax", ["exact", "spec", "spec_rounded"])
@pytest.mark.parametrize("distribution", ["slopes", "sink"])
@pytest.mark.parametrize("on", [problem(150, 300), problem(300, 150, dtype="bfloat16", causal=True)], ids=str)
def test_a_guess_at_the_maximum_is_taken_back(softmax: str, distribution: str, on: SdpaProblem) -> None:
    case = Case(name=str(on), problem=on, distribution=distribution)
    errors = judged(config.kernels_dir() / "sdpa" / "wgmma.cu", {**WGMMA, "SOFTMAX": softmax}, case, SEEDS)
    assert errors.failed_rule is None, in_words(errors)


# The example ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("load", ["plain", "cp_async"])
def test_the_example_is_right(load: str) -> None:
    default = SpaceFile.load(EXAMPLE / "space.toml").default
    parameters = {name: value for name, value in default.items() if name != "IMPL"}
    check(EXAMPLE / "lanes" / "lanes.cu", {**parameters, "LOAD": load}, CAUSAL)


# The softmax between the products of cuBLAS --------------------------------------------------------------------------

CUBLAS: Point = {"SCORES": "float", "ROWS": 4, "NUM_WARPS": 4, "VEC_WIDTH": 4, "CHUNK": 0, "HEURISTIC": 0}
KEYS, PITCH, WIDTH, CHUNK_ROWS, FIRST_ROW = 1100, 1112, 1104, 7, 1094


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"SCORES": "element", "ROWS": 1, "VEC_WIDTH": 8},
        {"SCORES": "element", "ROWS": 8, "NUM_WARPS": 2, "VEC_WIDTH": 2},
        {"ROWS": 2},
    ],
    ids=str,
)
def test_the_softmax_kernel_is_right(change: Point, causal: bool) -> None:
    on = problem(FIRST_ROW + CHUNK_ROWS, KEYS, causal=causal)
    parameters = {**CUBLAS, **change}
    dtype = DTYPES[on.dtype]
    generator = torch.Generator().manual_seed(1)
    scores = 4 * torch.randn(2 * CHUNK_ROWS, PITCH, generator=generator)
    scores[:, KEYS:] = float("nan")  # nobody computes these
    scores = scores.to(dtype) if parameters["SCORES"] == "element" else scores

    found = [
        emulate_softmax(
            config.kernels_dir() / "sdpa" / "cublas.cu", parameters, on, scores, (CHUNK_ROWS, FIRST_ROW, KEYS), seed
        )
        for seed in range(SEEDS)
    ]
    for other in found[1:]:
        assert torch.equal(found[0].view(torch.int16), other.view(torch.int16))
    position = FIRST_ROW + torch.arange(2 * CHUNK_ROWS) % CHUNK_ROWS
    hidden = (torch.arange(KEYS) > position[:, None]) & causal
    exact = torch.softmax(scores[:, :KEYS].double().masked_fill(hidden, -torch.inf), -1)
    assert torch.allclose(found[0][:, :KEYS].double(), exact, rtol=torch.finfo(dtype).eps, atol=2.0**-24)
    assert (found[0][:, KEYS:WIDTH] == 0).all()
    assert found[0][:, WIDTH:].isnan().all()
