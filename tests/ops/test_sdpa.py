"""Attention as an op: what a problem says, where its tensors lie, and that reference and baselines agree."""

from __future__ import annotations

import pytest
import torch

from autotuner.ops import OPS
from autotuner.ops.sdpa.masks import visible
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import distinct, gaps_of, lying_in, moved, span

OP = OPS["sdpa"]
TENSORS = OP.tensors()
EVERYTHING = "(3,6:2,9x40,64) float32 causal bottom_right lengths bshd lse"


def parsed(text: str) -> SdpaProblem:
    return SdpaProblem.parse(text)


@pytest.mark.parametrize("mask", ["full", "causal", "causal bottom_right"])
@pytest.mark.parametrize("lengths", [(5, 9), (9, 5), (1, 9), (9, 1), (7, 7)])
def test_flops_are_those_of_visible_scores(mask: str, lengths: tuple[int, int]) -> None:
    problem = parsed(f"(2,3,{lengths[0]}x{lengths[1]},64) float32 {mask}")
    seen = visible(problem, None, torch.device("cpu"))
    count = lengths[0] * lengths[1] if seen is None else int(seen.sum())
    assert problem.flops == 4 * 2 * 3 * count * 64


@pytest.mark.parametrize("name", ["flash", "math"])
@pytest.mark.parametrize(
    "text",
    [EVERYTHING, "(2,6:2,40x9,64) float32 causal", "(2,3,17,64) float32 packed lse", "(2,8:1,1x33,64) float32 lengths"],
)
def test_the_baselines_say_the_same_as_the_reference(name: str, text: str) -> None:
    problem = parsed(text)
    inputs = TENSORS.inputs(problem, "large", 3)
    exact = TENSORS.reference(problem, inputs)
    found = TENSORS.BASELINES[name].answer(problem, inputs)
    low = TENSORS.emulation(problem, inputs)
    blind = exact[0].abs().amax(-1, keepdim=True) == 0
    for one, other, emulated in zip(exact, found, low, strict=True):
        hidden = blind if one.dim() == 4 else blind[..., 0]
        assert torch.allclose(torch.where(hidden, 0, one), torch.where(hidden, 0, other.double()), atol=1e-3)
        assert torch.allclose(one, emulated, atol=1e-3)


@pytest.mark.parametrize("text", [EVERYTHING, "(2,3,17,64) float32 packed lse", "(2,8:1,5x33,64) float32"])
def test_the_symmetry_holds_of_the_reference(text: str) -> None:
    problem = parsed(text)
    inputs = TENSORS.inputs(problem, "large", 3)
    plain = TENSORS.reference(problem, inputs)
    symmetry = TENSORS.symmetry(problem, 5, 1, torch.device("cpu"))
    other, due = (tuple(x.new_empty((1, *x.shape)) for x in each) for each in (inputs, plain))
    symmetry.inputs(inputs, other)
    symmetry.outputs(plain, due)
    found = TENSORS.reference(problem, tuple(x[0] for x in other))
    assert all(torch.allclose(one, two[0]) for one, two in zip(found, due, strict=True))


def test_tensors_keep_their_places() -> None:
    whole = torch.arange(60.0).view(3, 4, 5)
    view = whole[:, 1:3, :4]
    assert span(view) == 2 * 20 + 5 + 4
    gaps = gaps_of(view)
    assert gaps is not None
    assert int((~gaps).sum()) == view.numel()
    assert gaps_of(whole) is None
    shared = view[:1].expand(3, -1, -1)
    assert distinct(shared).shape == (1, 2, 4)
    copy = lying_in(torch.zeros(span(view)), view)
    assert copy.stride() == view.stride()
    assert [each.stride() for each in moved((view, shared), "cpu")] == [view.stride(), shared.stride()]
