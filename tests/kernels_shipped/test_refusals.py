"""What implementations of attention on CUDA do not serve: no point of theirs is valid there."""

from __future__ import annotations

import pytest

from autotuner.tuning.workbench import Workbench, load_space

DENSE = {"scalar", "wmma"}
"""They serve dense tensors with as many heads of K and V as of Q, and have one output. So does cublas, for which the
headers may not be there."""


def served_by(text: str) -> set[object]:
    """The implementations that have a valid point."""
    space = Workbench(load_space("sdpa_cuda", problems=[text]), "sm_90").space
    column = space.parameters.index("IMPL")
    values = space.file.parameters["IMPL"].values
    return {values[place] for place in set(space.rows[:, column].tolist())}


@pytest.mark.parametrize("mask", ["full", "causal"])
def test_dense_problems_are_served_by_all(mask: str) -> None:
    assert served_by(f"(1,8,512,64) float16 {mask}") >= {*DENSE, "mma"}


@pytest.mark.parametrize(
    "text",
    [
        "(1,8,512,64) float16 full bshd",
        "(1,8,512,64) float16 full packed",
        "(1,8:2,512,64) float16 full",
        "(1,8,512,64) float16 full lse",
        "(1,8,512,64) float16 full lengths",
        "(1,8,512,64) float16 causal bottom_right",
        "(1,8,512,80) float16 full",
        "(1,8,512,256) float16 full",
    ],
)
def test_others_are_served_by_mma_alone(text: str) -> None:
    found = served_by(text)
    assert "mma" in found
    assert not found & {*DENSE, "cublas", "wgmma"}
