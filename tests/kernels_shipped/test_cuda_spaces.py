"""Every CUDA implementation compiles for every architecture, says what it is, and shows its parameters in its code.

Needs nvcc, no device. cuBLAS's host side is compiled where its headers are; its device code everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from autotuner.build.family import Family, find_limits
from autotuner.build.loaded_variant import LoadedVariant
from autotuner.devices.cuda.toolchain import has_cublas
from autotuner.gate.checks import broken_effect
from autotuner.spaces.space import SpaceFile
from autotuner.tuning.workbench import Session, load_space
from autotuner.values import config
from autotuner.values.errors import SpaceError, ToolchainError
from autotuner.values.outcome import Artifact
from tests.helpers.points import first_of

ARCHITECTURES = ("sm_80", "sm_89", "sm_90")
SPACES = ("sdpa_cuda", "sdpa_sm89", "sdpa_sm90", "sdpa_cuda_smoke")
RANDOM = 20


@pytest.fixture(scope="module", params=ARCHITECTURES)
def session(request: pytest.FixtureRequest) -> Session:
    if config.nvcc() is None:
        pytest.skip("needs nvcc")
    try:
        return Session(load_space("sdpa_cuda"), request.param)
    except ToolchainError as error:
        pytest.skip(str(error))


def impls(session: Session) -> Iterator[str]:
    for impl in session.space.values["IMPL"]:
        if impl != "cublas" or has_cublas():
            yield str(impl)


def require_good(session: Session, points: list[int]) -> None:
    """Each builds, launches within the limits, reports its identity and keeps the claims of kernel.toml."""
    for point, built in zip(points, session.build_all(points), strict=True):
        assert isinstance(built, Artifact), (session.space.point(point), built)
        identity = LoadedVariant(built).identity()
        assert (identity.build_id, identity.macros) == (built.digest, built.macros)
        assert built.resources["threads"] % 32 == 0
        assert built.resources["registers"] > 0
        code = session.toolchain.disassembly(Path(built.path))
        if code is not None:
            effects = session.family.claims(built.variant, session.terms.compiled_for).effects
            assert broken_effect(effects, code) is None, session.space.point(point)


def test_the_first_variant_of_every_implementation_is_built(session: Session) -> None:
    require_good(session, [first_of(session.space, impl) for impl in impls(session)])


@pytest.mark.slow
@pytest.mark.rotating(1)
def test_random_valid_points_are_built(session: Session) -> None:
    draw = random.Random(20)
    names = list(impls(session))
    column = session.space.parameters.index("IMPL")
    points: list[int] = []
    for index in range(RANDOM):  # as many of each implementation
        place = session.space.values["IMPL"].index(names[index % len(names)])
        candidates = (session.space.rows[:, column] == place).nonzero()[0]
        points.append(int(draw.choice(candidates)))
    require_good(session, points)


def test_the_host_side_of_cublas_is_built_where_its_headers_are(session: Session) -> None:
    if not has_cublas():
        pytest.skip("needs the headers of cuBLAS: pip install 'autotuner[cuda]'")
    require_good(session, [first_of(session.space, "cublas")])


@pytest.mark.parametrize(
    ("name", "arch"), [each for each in product(SPACES, ARCHITECTURES) if each[0] != "sdpa_sm90" or each[1] == "sm_90"]
)
def test_the_spaces_hold_what_they_promise(name: str, arch: str) -> None:
    """The parameters are those that the sources read, the default point is valid, and the big ones are big."""
    if config.nvcc() is None:
        pytest.skip("needs nvcc")
    session = Session(load_space(name), arch)
    assert session.space.point(session.space.default_index) == dict(session.space.file.default)
    if name != "sdpa_cuda_smoke":
        assert len(session.space) >= 5000


def test_the_default_point_needs_nothing_new() -> None:
    """The default of the space for every GPU is one that sm_80 can run."""
    default = load_space("sdpa_cuda").default
    assert (default["LOAD"], default["SPLIT"], default["MULTICAST"]) == ("cp_async", 1, 1)


@pytest.mark.parametrize("fixed", ["[0]", "[0, 1]"])
@pytest.mark.parametrize("update", [{"seq_k": 640}, {"batch": 2}])
def test_lengths_are_compiled_in_only_where_all_problems_share_them(fixed: str, update: dict[str, int]) -> None:
    if config.nvcc() is None:
        pytest.skip("needs nvcc")
    text = f'title = "lengths"\nlike = "sdpa_cuda"\n[parameters]\nFIXED = {fixed}\n'
    file = SpaceFile.parse(text, "lengths.toml", find_limits)
    problems = (*file.problems, file.problems[0].model_copy(update=update))
    file = file.model_copy(update={"problems": problems})
    if fixed == "[0, 1]" and "seq_k" in update:
        with pytest.raises(SpaceError, match=r"parameters\.FIXED: 1 compiles the lengths in"):
            Session(file, "sm_90")
    else:
        assert Session(file, "sm_90").terms.problems == problems


def test_every_cuda_implementation_names_its_host_side() -> None:
    family = Family.load(config.kernels_dir() / "sdpa")
    assert {name: each.host for name, each in family.table("cuda").items() if each.host} == {
        "cublas": "cublas_host.cpp"
    }
