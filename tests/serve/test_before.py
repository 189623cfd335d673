"""A call like the one before is known again; one that differs in anything that decides is looked up."""

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from autotuner.ops.sdpa.signature import arguments
from autotuner.serve.runtime.alike import Before
from autotuner.serve.runtime.surroundings import unseen_by_guards
from autotuner.values.outcome import Artifact
from tests.helpers.calls import close, loaded, qkv
from tests.helpers.tables import problem, served, table, write

Call = tuple[tuple[Any, ...], dict[str, Any]]

SAID = {"attn_mask": None, "is_causal": False, "scale": 0.125}


def within(each: Tensor) -> Tensor:
    """The same, but it does not begin where its memory does."""
    return torch.cat([each.new_zeros(4), each.reshape(-1)])[4:].view(each.shape)


def call(*args: Any, **kwargs: Any) -> Call:
    return args, kwargs


def before(*args: Any, **kwargs: Any) -> Before:
    return Before(args, kwargs, arguments(*args, **kwargs)[0])


@pytest.mark.parametrize("said", [{}, SAID, {"key_lengths": torch.tensor([9], dtype=torch.int32)}])
def test_a_call_of_the_same_kind_comes_again(said: dict[str, Any]) -> None:
    known = before(*qkv(16), **said)
    others = {name: value.clone() if isinstance(value, Tensor) else value for name, value in said.items()}
    given = qkv(16)
    assert known.comes_again(given, others)
    lengths = tuple(each for each in others.values() if isinstance(each, Tensor))
    assert all(one is other for one, other in zip(known.tensors(given, others), (*given, *lengths), strict=True))


@pytest.mark.parametrize(
    "other",
    [
        lambda q, k, v: call(q[:, :, :15], k, v, **SAID),
        lambda q, k, v: call(q, k[:, :1], v, **SAID),
        lambda q, k, v: call(q, k, v[..., :32], **SAID),
        lambda q, k, v: call(q, k, v.transpose(1, 2).contiguous().transpose(1, 2), **SAID),
        lambda q, k, v: call(q, k.double(), v, **SAID),
        lambda q, k, v: call(q.to("meta"), k, v, **SAID),
        lambda q, k, v: call(q, k, torch.nn.Parameter(v, requires_grad=False), **SAID),
        lambda q, k, v: call(q.requires_grad_(), k, v, **SAID),
        lambda q, k, v: call(q, k, v, **{**SAID, "is_causal": True}),
        lambda q, k, v: call(q, k, v, **{**SAID, "scale": 0.25}),
        lambda q, k, v: call(q, k, v, **{**SAID, "attn_mask": torch.zeros(16, 16)}),
        lambda q, k, v: call(q, k, v, **{**SAID, "is_causal": torch.tensor([False, True])}),
        lambda q, k, v: call(q, k, v, **SAID, key_lengths=torch.tensor([9])),
        lambda q, k, v: call(q, k, v, is_causal=False),
        lambda q, k, v: call(q, k, v, None, **{"is_causal": False, "scale": 0.125}),
        lambda q, k, v: call(q, k, **SAID),
        lambda q, k, v: call(q, k, 3.0, **SAID),
        lambda q, k, v: call(query=q, key=k, value=v, **SAID),
    ],
)
def test_a_call_that_differs_is_not_taken_for_it(other: Callable[..., Call]) -> None:
    assert before(*qkv(16), **SAID).comes_again(qkv(16), SAID)
    assert not before(*qkv(16), **SAID).comes_again(*other(*qkv(16)))


def parts(start: int) -> tuple[Tensor, ...]:
    """Each of a memory of its own."""
    return tuple(torch.randn(1, 2, 64, 64)[:, :, start : start + 16] for _ in range(3))


def packed() -> tuple[Tensor, ...]:
    """Views of one memory, as a projection to all three gives them."""
    return tuple(torch.randn(1, 16, 3, 2, 64).permute(2, 0, 3, 1, 4))


def unpacked() -> tuple[Tensor, ...]:
    """With the strides of `packed`, but each of a memory of its own."""
    return packed()[0], packed()[1], packed()[2]


def test_where_a_tensor_begins_counts_where_it_is_part_of_what_another_is_part_of() -> None:
    assert before(*parts(0)).comes_again(parts(16), {})
    assert before(*qkv(16)).comes_again(tuple(map(within, qkv(16))), {})  # none of these is
    assert before(*packed()).comes_again(packed(), {})
    assert not before(*packed()).comes_again(unpacked(), {})
    assert not before(*unpacked()).comes_again(packed(), {})
    q, k, v = packed()
    assert not before(q, k, v).comes_again((q, k, k), {})


@pytest.mark.parametrize("by_name", [True, False])
def test_it_keeps_no_tensor_alive(by_name: bool) -> None:
    given, mask = qkv(16), torch.zeros(16, 16, dtype=torch.bool)
    known = before(*given, attn_mask=mask) if by_name else before(*given, mask)
    seen = [weakref.ref(given[0]), weakref.ref(mask)]
    del given, mask
    assert [each() for each in seen] == [None, None]
    other = torch.zeros(16, 16, dtype=torch.bool)
    assert known.comes_again(*(call(*qkv(16), attn_mask=other) if by_name else call(*qkv(16), other)))


def test_what_is_around_a_call_counts() -> None:
    given = qkv(16)
    known, found = before(*given), []

    def look(*_: Tensor) -> Tensor:
        found.append(known.comes_again(given, {}) and not unseen_by_guards())
        return given[0] * 1

    look()
    with torch.autocast("cpu", torch.bfloat16):
        look()
    with torch.autocast("cpu", enabled=False):
        look()
    torch.vmap(look)(torch.randn(2))
    torch.fx.experimental.proxy_tensor.make_fx(look)(given[0])
    with torch.autograd.forward_ad.dual_level():
        look()
    assert found == [True, False, True, False, False, False]


@pytest.fixture(params=[True, False], ids=["guards", "no guards"])
def ours(request: pytest.FixtureRequest, tmp_path: Path, artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Length 32 is a variant's, all others are torch's; with and without what torch has no public name for."""
    if not request.param:
        monkeypatch.delattr(torch._C._dynamo.guards, "TensorGuards")
    entries = [(problem(32), artifact.digest), (problem(16), None)]
    return loaded(write(table([served(artifact)], entries, []), tmp_path / "best.json"))


@pytest.mark.parametrize("length", [16, 32])
@pytest.mark.parametrize("said", [{}, SAID])
def test_calls_are_answered_as_each_alone_would_be(ours: Any, length: int, said: dict[str, Any]) -> None:
    alike = [(qkv(length), said)] * 4
    others: list[Call] = [
        call(*qkv(48 - length), **said),
        call(*qkv(length), **{**said, "is_causal": True}),
        call(*qkv(length, dtype=torch.float64), **said),
        call(*(each.transpose(1, 2).contiguous().transpose(1, 2) for each in qkv(length)), **said),
        call(*(each.expand(2, -1, -1, -1) for each in qkv(length)), **said),
    ]
    calls = [*alike, *(each for other in others for each in (other, *alike[:3], other, other, other))]
    expected: dict[str, int] = {}
    for args, kwargs in calls:
        said_of = ours.explain(*args, **kwargs)
        expected[said_of.variant or said_of.why] = expected.get(said_of.variant or said_of.why, 0) + 1
        close(ours(*args, **kwargs), scaled_dot_product_attention(*args, **kwargs))
    assert dict(ours.counters) == expected
