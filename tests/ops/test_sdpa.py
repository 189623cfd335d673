"""Attention as an op: what a problem says, where its tensors lie, and that reference and baselines agree."""

from __future__ import annotations

import pytest
import torch

from autotuner.ops.sdpa.masks import visible
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import distinct, gaps_of, lying_in, moved, span


def parsed(text: str) -> SdpaProblem:
    return SdpaProblem.parse(text)


@pytest.mark.parametrize("mask", ["full", "causal", "causal bottom_right"])
@pytest.mark.parametrize("lengths", [(5, 9), (9, 5), (1, 9), (9, 1), (7, 7)])
def test_flops_are_those_of_visible_scores(mask: str, lengths: tuple[int, int]) -> None:
    problem = parsed(f"(2,3,{lengths[0]}x{lengths[1]},64) float32 {mask}")
    seen = visible(problem, None, torch.device("cpu"))
    count = lengths[0] * lengths[1] if seen is None else int(seen.sum())
    assert problem.flops == 4 * 2 * 3 * count * 64


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
