"""torch's scaled_dot_product_attention as a function that can be recorded and replaced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from autotuner.ops.op import TorchFunction

if TYPE_CHECKING:
    from torch import Tensor

    from autotuner.ops.tensors import Tensors
    from autotuner.values.problem import Problem


def _arguments(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensors, dict[str, Any]]:
    """Q, K and V, and those of the options that change what is computed. A model may say what is so anyway: the usual
    scale, or groups where there are none."""
    options: dict[str, Any] = {}
    if attn_mask is not None:
        options["attn_mask"] = attn_mask
    if dropout_p:
        options["dropout_p"] = dropout_p
    if is_causal:
        options["is_causal"] = True
    if scale is not None and not (query.dim() and math.isclose(scale * math.sqrt(query.shape[-1]), 1, rel_tol=1e-6)):
        options["scale"] = scale
    if enable_gqa and query.dim() == key.dim() == 4 and query.shape[1] != key.shape[1]:
        options["enable_gqa"] = True
    return (query, key, value), options


def _options(problem: Problem) -> dict[str, Any]:
    facts = problem.facts()
    return {"is_causal": facts["CAUSAL"], "enable_gqa": facts["HEADS"] != facts["HEADS_KV"]}


def _like_inputs(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """O has the sizes and the element type of Q, with the sizes of a row of V, and lies as Q does."""
    import torch

    if query.shape[-1] == value.shape[-1]:
        return torch.empty_like(query)
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def _function() -> Any:
    from torch.nn import functional

    return functional.scaled_dot_product_attention


FUNCTION = TorchFunction(
    function=_function,
    arguments=_arguments,
    schema="(Tensor query, Tensor key, Tensor value, *, bool is_causal=False, bool enable_gqa=False) -> Tensor",
    scalars=frozenset({"is_causal", "enable_gqa"}),
    empty=_like_inputs,
    options=_options,
)
