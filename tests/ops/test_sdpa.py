"""Attention as an op: what a problem says, where its tensors lie, and that reference and baselines agree."""

from __future__ import annotations

import pytest
import torch

from autotuner.ops import OPS
from autotuner.ops.sdpa.masks import visible
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import distinct, gaps_of, lying_in, moved, span
from autotuner.values.problem import Problem

OP = OPS["sdpa"]
TENSORS = OP.tensors()
EVERYTHING = "(3,6:2,9x40,64) float32 causal bottom_right lengths bshd lse"


def parsed(text: str) -> SdpaProblem:
    return SdpaProblem.parse(text)


def test_a_document_from_before_there_were_groups_has_as_many_heads() -> None:
    fields = {"op": "sdpa", "batch": 1, "heads": 8, "seq_q": 5, "seq_k": 7, "head_dim": 64, "dtype": "float32"}
    old = Problem.model_validate({**fields, "causal": True})
    assert old == parsed("(1,8,5x7,64) float32 causal")
    assert (old.shape, old.short_shape) == ((1, 8, 5, 7, 8), (1, 8, 5, 7))


def test_a_short_shape_keeps_groups() -> None:
    assert parsed("(1,8:2,5,64) float32").sized((2, 3, 9, 11)).shape == (2, 6, 9, 11, 3)
    assert parsed("(1,8,5,64) float32").sized((2, 3, 9, 11)).shape == (2, 3, 9, 11, 3)
    with pytest.raises(ValueError, match="found 3 sizes"):
        parsed("(1,8,5,64) float32").sized((2, 3, 9))


@pytest.mark.parametrize("mask", ["full", "causal", "causal bottom_right"])
@pytest.mark.parametrize("lengths", [(5, 9), (9, 5), (1, 9), (9, 1), (7, 7)])
def test_flops_are_those_of_visible_scores(mask: str, lengths: tuple[int, int]) -> None:
    problem = parsed(f"(2,3,{lengths[0]}x{lengths[1]},64) float32 {mask}")
    seen = visible(problem, None, torch.device("cpu"))
    count = lengths[0] * lengths[1] if seen is None else int(seen.sum())
    assert problem.flops == 4 * 2 * 3 * count * 64


def test_layouts_lie_where_they_say() -> None:
    q, k, v = TENSORS.inputs(parsed("(2,3,5,64) float32 packed"), "randn", 1)
    assert q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr() == v.untyped_storage().data_ptr()
    assert q.stride() == (5 * 9 * 64, 64, 9 * 64, 1)
    assert TENSORS.outputs(parsed("(2,3,5,64) float32 packed"), (q, k, v))[0].stride() == (960, 64, 192, 1)
    q, k, v = TENSORS.inputs(parsed("(2,4:2,5x7,64) float16 bshd"), "gaps", 1)
    (o,) = TENSORS.outputs(parsed("(2,4:2,5x7,64) float16 bshd"), (q, k, v))
    strides = {tensor.stride() for tensor in (q, k, v, o)}
    assert len(strides) == 4
    assert all(stride % 8 == 0 for each in strides for stride in each[:3])
    assert TENSORS.inputs(parsed("(2,3,5,64) float32 bshd"), "expanded", 1)[1].stride(0) == 0
    dense = TENSORS.inputs(parsed("(2,3,5,64) float32"), "randn", 1)
    viewed = TENSORS.inputs(parsed("(2,3,5,64) float32 bshd"), "randn", 1)
    assert all(torch.equal(one, other) for one, other in zip(dense, viewed, strict=True))


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


def test_a_row_that_sees_nothing_gives_nothing() -> None:
    problem = parsed("(4,2,9x40,64) float32 causal bottom_right lengths lse")
    inputs = TENSORS.inputs(problem, "ragged", 1)
    assert inputs[3].tolist()[:3] == [40, 0, 1]
    assert bool(inputs[1][1].isnan().all())
    o, lse = TENSORS.reference(problem, inputs)
    assert not o[1].any()
    assert bool((lse[1] == -torch.inf).all())
    assert not o[2, :, :8].any()
    assert bool(lse[2, :, 8].isfinite().all())


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
