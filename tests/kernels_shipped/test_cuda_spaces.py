"""Every CUDA implementation compiles for every architecture, says what it is, and shows its parameters in its code.

Needs nvcc, no device. cuBLAS's host side is compiled where its headers are; its device code everywhere.
"""

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.toolchain import CudaToolchain, has_cublas
from autotuner.forge.build import build
from autotuner.forge.family import find_limits
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.checks import broken_effect
from autotuner.spaces.space import SpaceFile
from autotuner.tuning.workbench import Workbench, find_space_file, load_space
from autotuner.values.errors import KernelError, SpaceError, ToolchainError
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict
from tests.helpers import needs
from tests.helpers.points import alone, first_of

pytestmark = needs.nvcc
ARCHITECTURES = ("sm_80", "sm_89", "sm_90")
SPACES = ("sdpa_cuda", "sdpa_cuda_smoke")
RANDOM, PARTS = 20, 10
FEW = pytest.mark.sampled(1, of="points that nvcc builds")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def workbench(request: pytest.FixtureRequest) -> Workbench:
    try:
        return Workbench(load_space("sdpa_cuda"), request.param)
    except ToolchainError as error:
        pytest.skip(str(error))


def impls(workbench: Workbench) -> Iterator[str]:
    yield from (branch.impl for branch in workbench.space.branches)


def require_good(workbench: Workbench, points: list[int]) -> None:
    """Each builds, launches within the limits, reports its identity and keeps the claims of kernel.toml."""
    for point, built in zip(points, workbench.build_all(points), strict=True):
        assert isinstance(built, Artifact), (workbench.space.point(point), built)
        identity = LoadedVariant(built).identity()
        assert (identity.build_id, identity.macros) == (built.digest, built.macros)
        assert built.resources["threads"] % 32 == 0
        assert built.resources["registers"] > 0
        code = workbench.toolchain.disassembly(Path(built.path))
        if code is not None:
            effects = workbench.family.claims(built.variant, workbench.conditions.compiled_for).effects
            assert broken_effect(effects, code) is None, workbench.space.point(point)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_first_variant_of_every_implementation_is_built(workbench: Workbench) -> None:
    require_good(workbench, [first_of(workbench.space, impl) for impl in impls(workbench)])


@pytest.mark.slow
@FEW
@pytest.mark.parametrize("part", range(PARTS))
def test_random_valid_points_are_built(workbench: Workbench, part: int) -> None:
    """RANDOM points are in parts: nvcc takes a second of CPU for each."""
    draw = random.Random(20)
    names = list(impls(workbench))
    points: list[int] = []
    for index in range(RANDOM):  # as many of each implementation
        branch, first = workbench.space.branch_of(names[index % len(names)]) or pytest.fail("no such branch")
        points.append(first + draw.randrange(len(branch)))
    count = RANDOM // PARTS  # in a row, so that a part has several implementations
    require_good(workbench, points[part * count : (part + 1) * count])


BESIDE_SCORES = "(1,8:2,1024,128) bfloat16 causal window=64 softcap=50 sinks bias=full"


@pytest.mark.slow
@FEW
@pytest.mark.parametrize(("impl", "arch"), [("mma", "sm_80"), ("decode", "sm_90"), ("wgmma", "sm_90")])
def test_what_is_made_of_scores_is_built(impl: str, arch: str) -> None:
    """Windows, caps, sinks and a bias, which the spaces' own problems have not."""
    few = BESIDE_SCORES.replace("1024", "4x1024") if impl == "decode" else BESIDE_SCORES
    workbench = Workbench(alone(impl, few), arch)
    require_good(workbench, [workbench.space.default_index])


def test_the_host_side_of_cublas_is_built_where_its_headers_are(workbench: Workbench) -> None:
    if not has_cublas():
        pytest.skip("needs the headers of cuBLAS: pip install 'kernel-autotuner[cuda]'")
    require_good(workbench, [first_of(workbench.space, "cublas")])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "arch"), list(product(SPACES, ARCHITECTURES)))
def test_the_spaces_hold_what_they_promise(name: str, arch: str) -> None:
    """The parameters are those that the sources read, the default point is valid, and the big ones are big."""
    workbench = Workbench(load_space(name), arch)
    assert workbench.space.point(workbench.space.default_index) == dict(workbench.space.file.default)
    if name != "sdpa_cuda_smoke":
        assert len(workbench.space) >= 5000


def hopper(problem: Problem | None = None) -> Workbench:
    """The space of warpgroup products."""
    return Workbench(alone("wgmma", "" if problem is None else str(problem)), "sm_90")


def test_warpgroup_products_are_built_for_one_architecture_alone() -> None:
    workbench = hopper()
    default = workbench.space.default_index
    (built,) = workbench.build_all([default])
    assert isinstance(built, Artifact), built
    assert "-gencode=arch=compute_90a,code=sm_90a" in built.flags
    assert not any(flag.startswith("-arch=") for flag in built.flags)
    require_good(workbench, [default])
    other = CudaToolchain.discover(architecture("sm_89"))
    with pytest.raises(KernelError, match=r"wgmma\.cu is for sm_90a; it does not run on sm_89"):
        build(workbench.family, workbench.variant(default), workbench.conditions.compiled_for, other)


def test_products_that_are_serialised_are_a_fault_of_the_build() -> None:
    workbench = hopper()
    point = workbench.variant(workbench.space.default_index).parameters
    starved = {**point, "CONSUMERS": 4, "BLOCK_N": 64, "STAGES": 1}
    variant = Variant(family="sdpa", backend="cuda", impl="wgmma", parameters=starved)
    fault = build(workbench.family, variant, workbench.conditions.compiled_for, workbench.toolchain)
    assert isinstance(fault, Fault)
    assert (fault.verdict, fault.code) == (Verdict.BUILD_FAILED, "build.failed")
    assert "wgmma.mma_async instructions are serialized due to insufficient register resources" in fault.detail


@pytest.mark.slow
@FEW
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 192, 256])
def test_random_points_of_warpgroup_products_are_built(head_dim: int, causal: bool, part: int) -> None:
    """Whatever the constraints let through keeps its products in flight, and its claims. They compile slowly: RANDOM
    points of each kind are in parts."""
    problem = hopper().conditions.problems[0].model_copy(update={"head_dim": head_dim, "causal": causal})
    workbench = hopper(problem)
    draw = random.Random(head_dim + causal)
    points = [draw.randrange(len(workbench.space)) for _ in range(RANDOM)]
    require_good(workbench, points[part::PARTS])


@pytest.mark.parametrize("fixed", ["[0]", "[0, 1]"])
@pytest.mark.parametrize("update", [{"seq_k": 640}, {"batch": 2}])
def test_lengths_are_compiled_in_only_where_all_problems_share_them(fixed: str, update: dict[str, int]) -> None:
    text = f"{find_space_file('sdpa_cuda').read_text()}\n[parameters]\nFIXED = {fixed}\n"
    file = SpaceFile.parse(text, "lengths.toml", find_limits)
    problems = (*file.problems, file.problems[0].model_copy(update=update))
    file = file.model_copy(update={"problems": problems})
    if fixed == "[0, 1]" and "seq_k" in update:
        with pytest.raises(SpaceError, match=r"parameters\.FIXED: 1 compiles the lengths in"):
            Workbench(file, "sm_90")
    else:
        assert Workbench(file, "sm_90").conditions.problems == problems
