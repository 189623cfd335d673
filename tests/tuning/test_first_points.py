"""First points: what kernel families ship, what a study of a problem begins with, and what a search makes of it."""

from pathlib import Path

import pytest

from autotuner.forge.family import find_limits
from autotuner.spaces.first_points import FILE, SAME_CLASS, read_first_points
from autotuner.spaces.problem_files import Asked, parsed_problem
from autotuner.spaces.space import Space, SpaceFile
from autotuner.tuning.transfer import HINTED, first_points
from autotuner.values import config
from autotuner.values.errors import KernelError
from autotuner.values.known_points import HINTS
from benchmarks.search.first_points import documents
from tests.helpers.searching import ask, study_of

SDPA = config.kernels_dir() / "sdpa"
FACTS = {
    "SM": 90,
    "SHARED_LIMIT": 232448,
    "SHARED_SM": 233472,
    "REGISTERS_SM": 65536,
    "CUBLAS": True,
    "TRITON": True,
    "MULTIPROCESSORS": 132,
}
"""Of an H200."""


def space_of(problem: str) -> Space:
    """The shipped space for CUDA on an H200, for that problem."""
    asked = Asked([parsed_problem(problem)])
    return Space.enumerate(SpaceFile.load(config.spaces_dir() / "sdpa_cuda.toml", find_limits, asked), FACTS)


@pytest.mark.parametrize("family", ["sdpa", "rmsnorm"])
def test_what_is_shipped_is_drawn_from_the_kept_results(family: str) -> None:
    assert (config.kernels_dir() / family / FILE).read_text() == documents()[family]


@pytest.mark.parametrize("problem", ["(1,8,512,64) float16", "(2,24:6,1500,128) bfloat16 causal bshd"])
def test_each_implementation_begins_with_valid_points_of_near_problems(problem: str) -> None:
    space = space_of(problem)
    found = [space.point(place)["IMPL"] for place in first_points(space, SDPA)]
    assert {"mma", "wgmma"} <= {*found}  # those of decode are too far from points for many queries
    assert all(found.count(impl) <= HINTED for impl in found)


def test_a_problem_can_be_tuned_with_its_own_class_left_out() -> None:
    space = space_of("(1,8,512,64) float16")
    shipped = read_first_points(SDPA, "cuda", "sdpa")["mma"]
    own = {tuple(sorted(each.point.items())) for each in shipped if each.distance(space.file.problems) <= SAME_CLASS}
    assert own

    def begun(others: bool) -> set[tuple[tuple[str, object], ...]]:
        points = [space.point(place) for place in first_points(space, SDPA, others)]
        return {
            tuple(sorted((n, v) for n, v in each.items() if n != "IMPL")) for each in points if each["IMPL"] == "mma"
        }

    assert begun(others=False) & own
    assert begun(others=True)
    assert not begun(others=True) & own


def test_a_fact_of_the_device_stands_for_its_number() -> None:
    point = read_first_points(SDPA, "cpu", "sdpa")["simd"][0]
    assert point.point["THREADS"] == "THREADS_ALLOWED"
    assert point.on({"THREADS_ALLOWED": 48})["THREADS"] == 48


def test_the_draws_of_a_branch_begin_with_its_first_points() -> None:
    space = space_of("(1,4,128,64) float16")
    hints = first_points(space, SDPA)
    study, _ = study_of(0, space)
    study.set_user_attr(HINTS, list(hints))
    begun = {space.index_of(ask(study, space)[1]) for _ in space.branches}
    firsts = {space.point(place)["IMPL"]: place for place in reversed(hints)}
    assert {*firsts.values()} <= begun


def test_a_search_begins_with_the_implementation_whose_first_points_are_the_fastest() -> None:
    """`mma` stands first, and before these `scalar` came second; `triton` has none."""
    space = space_of("(1,32,2048,128) float16 causal")
    hints = first_points(space, SDPA)
    study, _ = study_of(0, space)
    study.set_user_attr(HINTS, list(hints))
    begun = [ask(study, space)[1]["IMPL"] for _ in space.branches]
    assert begun[0] == "wgmma"
    assert begun[-2:] == ["scalar", "triton"]


def test_a_file_that_is_wrong_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('[[cuda.mma]]\nproblem = "(1,2) float16"\ndevice = "x"\nspeedup = 1.0\npoint = {}\n')
    with pytest.raises(KernelError, match=r"first_points\.toml: cuda\.mma\[0\]: problem"):
        read_first_points(tmp_path, "cuda", "sdpa")
    (tmp_path / FILE).write_text("[[cuda.mma]]\nspeedup = 0\n")
    with pytest.raises(KernelError, match=r"first_points\.toml: cuda\.mma\[0\]"):
        read_first_points(tmp_path, "cuda", "sdpa")
