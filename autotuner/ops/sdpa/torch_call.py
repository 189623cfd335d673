"""torch's scaled_dot_product_attention as a function that can be recorded and replaced."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from autotuner.ops.op import TorchFunction
from autotuner.ops.sdpa.arguments import arguments
from autotuner.ops.sdpa.problem import SdpaProblem

if TYPE_CHECKING:
    from torch import Tensor

    from autotuner.values.problem import Problem


def _options(problem: Problem) -> dict[str, Any]:
    facts = problem.facts()
    corner = {} if facts["CORNER"] == "top_left" else {"corner": facts["CORNER"]}
    return {"is_causal": facts["CAUSAL"], "enable_gqa": facts["HEADS"] != facts["HEADS_KV"], **corner}


def _like_inputs(query: Tensor, key: Tensor, value: Tensor, *_: Tensor, **options: Any) -> Tensor:
    """O has the sizes and the element type of Q, with the sizes of a row of V, and lies as Q does."""
    if query.size(-1) == value.size(-1):
        found: Tensor = _empty_like()(query)
        return found
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


@cache
def _empty_like() -> Any:
    """Imported once: this is asked at each call of a model."""
    from torch import empty_like

    return empty_like


def _cast(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Without content where autocast casts."""
    import torch

    from autotuner.ops.surroundings import computed_in

    wanted = map(computed_in, tensors)
    return tuple(
        each if each.dtype == dtype else torch.empty_like(each, dtype=dtype, device="meta")
        for each, dtype in zip(tensors, wanted, strict=True)
    )


def _function() -> Any:
    from torch.nn import functional

    return functional.scaled_dot_product_attention


def _ours() -> Any:
    from autotuner.ops.sdpa.attention import attention

    return attention


def _mask(problem: Problem, tensors: tuple[Tensor, ...]) -> dict[str, Tensor]:
    from autotuner.ops.sdpa import masks

    assert isinstance(problem, SdpaProblem)
    mask = masks.mask(problem, tensors)
    return {} if mask is None else {"attn_mask": mask}


FUNCTION = TorchFunction(
    function=_function,
    ours=_ours,
    added=frozenset({"key_lengths", "corner"}),
    tensors=("query", "key", "value", "key_lengths"),
    arguments=arguments,
    schema="(Tensor query, Tensor key, Tensor value, Tensor? key_lengths=None, *, bool is_causal=False,"
    ' bool enable_gqa=False, str corner="top_left", Tensor? attn_mask=None) -> Tensor',
    scalars=frozenset({"is_causal", "enable_gqa", "corner"}),
    beside=frozenset({"attn_mask"}),
    made_once=_mask,
    empty=_like_inputs,
    options=_options,
    cast=_cast,
)
