"""What a model calls is noted with counts, and written so that `tune --problems` reads it."""

import re
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import autotuner
from autotuner.ops.sdpa import CALL, signature
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.spaces.problem_files import share_of_model
from autotuner.tuning.workbench import load_spaces
from autotuner.values.errors import InputError, SpaceError


def attend(length: int, heads: int = 2, **options: object) -> Tensor:
    q = torch.zeros(1, heads, length, 64)
    return functional.scaled_dot_product_attention(q, q, q, **options)  # type: ignore[arg-type]


def test_calls_are_counted_by_problem() -> None:
    with autotuner.record() as calls:
        for _ in range(3):
            attend(16)
        attend(16, is_causal=True, scale=0.125, enable_gqa=True)
    attend(16)
    full = SdpaProblem(batch=1, heads=2, seq_q=16, seq_k=16, head_dim=64, dtype="float32")
    assert dict(calls.problems) == {full: 3, full.model_copy(update={"causal": True}): 1}
    assert not calls.refused
    assert len(calls) == 4


def test_lengths_of_keys_and_a_corner_are_recorded() -> None:
    attention, lengths = autotuner.function("sdpa"), torch.tensor([5, 0, 20], dtype=torch.int32)
    q, (k, v) = torch.randn(3, 4, 3, 64), torch.randn(2, 3, 2, 20, 64)
    with autotuner.record() as calls:
        found = attention(q, k, v, key_lengths=lengths, is_causal=True, corner="bottom_right", enable_gqa=True)
        attention(q, q, q)
        attention(q, k, v, key_lengths=lengths.long(), enable_gqa=True)
    assert [str(each) for each in calls.problems] == [
        "(3,4:2,3x20,64) float32 causal bottom_right lengths",
        "(3,4,3,64) float32 full",
    ]
    assert [each.why for each in calls.refused] == ["key_lengths is (3,) of int64, expected (3,) of int32, dense"]
    rows = functional.scaled_dot_product_attention(q[:1, :, 2:], k[:1, :, :5], v[:1, :, :5], enable_gqa=True)
    torch.testing.assert_close(found[:1, :, 2:], rows)
    assert not found[1].any()
    other = torch.arange(20).expand(3, 1, 3, 20) < 7  # a mask that says something else is what counts
    with autotuner.record() as calls, pytest.warns(UserWarning, match="attn_mask hides other keys than key_lengths"):
        found = attention(q, k, v, other, key_lengths=lengths, is_causal=True, corner="bottom_right", enable_gqa=True)
    assert ["attn_mask is not supported" in each.why for each in calls.refused] == [True]
    same = signature.seen(3, 20, True, "bottom_right", lengths, q.device, (0, 0))
    with autotuner.record() as calls:
        attention(q, k, v, same, key_lengths=lengths, is_causal=True, corner="bottom_right", enable_gqa=True)
    assert [str(each) for each in calls.problems] == ["(3,4:2,3x20,64) float32 causal bottom_right lengths"]
    rows = functional.scaled_dot_product_attention(q, k[:, :, :7], v[:, :, :7], enable_gqa=True)
    torch.testing.assert_close(found, rows)
    (problem,) = calls.problems
    args, given = signature.called((q, k, v, lengths), CALL.options(problem))
    made = CALL.made_once(problem, (q, k, v, lengths))  # what is timed has the mask already
    torch.testing.assert_close(attention(*args, **given, **made), attention(*args, **given))
    with pytest.raises(InputError, match=r"no function of 'conv' that is served; there are .*sdpa, .*attention"):
        autotuner.function("conv")


def test_what_no_problem_stands_for_is_noted_with_the_reason() -> None:
    q = torch.zeros(1, 2, 16, 64, requires_grad=True)
    with autotuner.record() as calls:
        attend(16, attn_mask=torch.ones(16, 16).bool())
        functional.scaled_dot_product_attention(q, q, q)
        attend(16, scale=0.5)
    reasons = [each.why for each in calls.refused]
    assert len(reasons) == 3
    assert any("attn_mask is not supported" in why for why in reasons)
    assert any("gradient" in why for why in reasons)
    assert any("scale is not supported" in why for why in reasons)
    with pytest.raises(InputError, match="no call was recorded that can be tuned for"):
        calls.write("nowhere.toml")
    with pytest.raises(InputError, match=r"Q is torch\.float16, K torch\.float32 .* one element type"):
        autotuner.tune_like("sdpa", q.half(), q, q)


def test_a_mask_of_numbers_is_a_bias() -> None:
    with autotuner.record() as calls:
        attend(16, attn_mask=torch.zeros(16, 16))
    assert [str(each) for each in calls.problems] == ["(1,2,16,64) float32 full bias=heads"]


def test_a_mask_beside_is_causal_is_as_torch_has_it() -> None:
    """It applies both or refuses them, by its kernel; what it has no arguments for stands beside one of them."""
    attention, mask, q = autotuner.function("sdpa"), torch.zeros(16, 16), torch.randn(1, 2, 16, 64)
    both: dict[str, Any] = {"attn_mask": mask, "is_causal": True}
    expected = functional.scaled_dot_product_attention(q, q, q, **both)
    torch.testing.assert_close(attention(q, q, q, **both), expected)
    with sdpa_kernel(SDPBackend.MATH), pytest.raises(RuntimeError, match="should not be set when is_causal"):
        attention(q, q, q, **both)
    with pytest.raises(ValueError, match="attn_mask stands beside is_causal"):
        attention(q, q, q, attn_mask=mask.bool(), is_causal=True, softcap=30.0)


def test_slopes_and_numbers_of_another_type_are_not_rounded_by_torch() -> None:
    """With slopes of some 0.7 the bias of the farthest key is off by 0.06 where it is rounded to bfloat16."""
    q, numbers = torch.randn(1, 2, 32, 64).bfloat16(), 10 * torch.randn(1, 2, 32, 32)
    slopes, way = torch.tensor([0.7, 0.3]), torch.arange(32) - torch.arange(32).view(-1, 1)
    attention, exact = autotuner.function("sdpa"), numbers + slopes.view(-1, 1, 1) * way
    wide = q.double()
    expected = functional.scaled_dot_product_attention(wide, wide, wide, attn_mask=exact.double())
    torch.testing.assert_close(
        attention(q, q, q, alibi_slopes=slopes, bias=numbers).double(), expected, atol=0.03, rtol=0
    )


def nested(layout: torch.layout) -> Tensor:
    pieces = [torch.randn(2, length, 64) for length in (5, 7)]
    if layout == torch.strided:
        return torch.nested.nested_tensor(pieces)
    return torch.nested.nested_tensor([each.transpose(0, 1) for each in pieces], layout=layout).transpose(1, 2)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("options", [{}, {"scale": 0.125}])
def test_nested_tensors_are_refused_and_the_model_goes_on(layout: torch.layout, options: dict[str, float]) -> None:
    q = nested(layout)
    expected = functional.scaled_dot_product_attention(q, q, q, **options)  # type: ignore[arg-type]
    with autotuner.record() as calls:
        for call in (functional.scaled_dot_product_attention, autotuner.function("sdpa")):
            found = call(q, q, q, **options)  # type: ignore[arg-type]
            for one, other in zip(found.unbind(), expected.unbind(), strict=True):
                torch.testing.assert_close(one, other)
    assert dict(calls.refused) == {("nested nested nested float32", "nested tensors are not supported"): 2}


class Odd(Tensor):
    """Does not say how it lies."""

    def is_contiguous(self, *_: object, **__: object) -> bool:
        raise KeyError("lies")


def test_whatever_is_raised_over_a_call_the_model_goes_on() -> None:
    q = torch.randn(1, 2, 16, 64)
    with autotuner.record() as calls, torch._C.DisableTorchFunctionSubclass():
        found = functional.scaled_dot_product_attention(q.as_subclass(Odd), key=q, value=q)
    torch.testing.assert_close(found.as_subclass(Tensor), functional.scaled_dot_product_attention(q, q, q))
    assert dict(calls.refused) == {("Odd Tensor Tensor", "KeyError: 'lies'"): 1}


def test_under_autocast_the_problem_is_the_one_that_torch_computes() -> None:
    def noted(q: Tensor, k: Tensor, v: Tensor) -> list[str]:
        with torch.no_grad(), autotuner.record() as calls:
            functional.scaled_dot_product_attention(q, k, v)
        return [str(each) for each in calls.problems] + [each.call for each in calls.refused]

    q = torch.randn(1, 2, 16, 64, requires_grad=True)
    packed = tuple(each.transpose(1, 2) for each in torch.randn(1, 16, 6, 64).split(2, 2))
    assert noted(*packed) == ["(1,2,16,64) float32 full packed"]
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
        with torch.autocast("cpu", dtype):
            assert noted(q, q, q) == [f"(1,2,16,64) {name} full"]
            assert noted(*packed) == [f"(1,2,16,64) {name} full bshd"]  # a cast tensor has a memory of its own
            assert noted(*(each.to(dtype) for each in (q, q, q))) == [f"(1,2,16,64) {name} full"]
            assert noted(*[q.double()] * 3) == ["1x2x16x64 1x2x16x64 1x2x16x64 float64"]
            with torch.autocast("cpu", enabled=False):
                assert noted(q, q, q) == ["(1,2,16,64) float32 full"]


def test_what_is_written_can_be_tuned(tmp_path: Path) -> None:
    with autotuner.record() as calls:
        for _ in range(5):
            attend(16)
        attend(33)
        attend(33, is_causal=True)
        attend(8, attn_mask=torch.ones(8, 8).bool())
    path = calls.write(tmp_path / "problems.toml")
    document = tomllib.loads(path.read_text())
    assert sorted(each["count"] for each in document["problems"]) == [1, 1, 5]
    assert all(each["us"] > 0 for each in document["problems"])
    assert "# not tuned for, 1 time: 1x2x8x64" in path.read_text()
    spaces = load_spaces("sdpa_cpu", problems_file=path)
    assert sorted(len(space.problems) for space in spaces) == [1, 2]
    two = next(space for space in spaces if len(space.problems) == 2)
    assert not isinstance(two.objective, str)
    us = {each["seq_q"]: each["count"] * each["us"] for each in document["problems"] if not each["causal"]}
    expected = [us[16] / (us[16] + us[33]), us[33] / (us[16] + us[33])]
    shares = dict(zip((problem.shape[2] for problem in two.problems), two.objective, strict=True))
    assert [shares[16], shares[33]] == pytest.approx(expected, rel=0.01)
    assert next(space for space in spaces if len(space.problems) == 1).objective == "mean"


def test_how_long_a_model_takes_between_its_calls_is_noted_without_its_slow_start(tmp_path: Path) -> None:
    with autotuner.record() as calls:
        for seconds in (0.3, 0.01, 0.01, 0.01):
            attend(16)
            time.sleep(seconds)
    path = calls.write(tmp_path / "problems.toml")
    (problem,) = tomllib.loads(path.read_text())["problems"]
    assert 10_000 < problem["between_us"] < 150_000
    share = share_of_model(path)
    assert share is not None
    assert 0 < share < 0.5


PROBLEM = '[[problems]]\nbatch = 1\nheads = 1\nseq_q = {}\nseq_k = 8\nhead_dim = 64\ndtype = "float32"\n{}\n'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('dtype = "float32"', "", r"problems\[1\]\.dtype: missing; this key is required"),
        ("head_dim", "head_dims", r"problems\[1\]\.head_dims: unknown key; did you mean head_dim\?"),
        ("heads = 1", "heads = 0", r"problems\[1\]\.heads: found 0, expected a number greater than"),
        ("batch = 1", 'op = "conv"\nbatch = 1', r"no op 'conv'; there are "),
    ],
)
def test_a_file_with_what_is_no_problem_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    path, right = tmp_path / "problems.toml", PROBLEM.format(16, "")
    path.write_text(right + PROBLEM.format(17, "").replace(old, new))
    with pytest.raises(SpaceError, match=rf"^{re.escape(str(path))}: .*{said}"):
        load_spaces("sdpa_cpu", problems_file=path)
