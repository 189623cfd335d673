"""What implementations of attention on CUDA do not serve: no point of theirs is valid there."""

import pytest

from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.errors import SpaceError
from tests.helpers.points import alone

DENSE = {"scalar", "wmma"}
"""They serve dense tensors with as many heads of K and V as of Q, and have one output. So does cublas, for which the
headers may not be there."""


def served_by(text: str) -> set[str]:
    """The implementations of the space that have a valid point."""
    return {branch.impl for branch in Workbench(load_space("sdpa_cuda", problems=[text]), "sm_90").space.branches}


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "text",
    [
        "(1,8,512,64) float16 full bshd",
        "(1,8,512,64) float16 full packed",
        "(1,8,512,128) bfloat16 causal packed",
        "(1,8:2,512,64) float16 full",
        "(1,8:1,512,64) float16 causal bshd",
        "(1,8,512,64) float16 full lse",
        "(1,8,512,80) float16 full",
        "(1,8,512,192) float16 full",
        "(1,8,512,256) float16 full",
    ],
)
def test_others_are_served_by_mma_and_wgmma_alone(text: str) -> None:
    found = served_by(text)
    assert {"mma", "wgmma"} <= found
    assert not found & {*DENSE, "cublas"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(1,8,512,64) float16 full lengths", "it reads no lengths; mma does"),
        ("(1,8,512,64) float16 causal bottom_right", "its causal mask begins at the top left"),
    ],
)
def test_what_wgmma_does_not_serve_mma_does(text: str, reason: str) -> None:
    found = served_by(text)
    assert "mma" in found
    assert not found & {*DENSE, "cublas", "wgmma"}
    with pytest.raises(SpaceError, match=reason):
        Workbench(alone("wgmma", text), "sm_90")
