"""torch's scaled_dot_product_attention as a function that can be recorded and replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotuner.ops.op import TorchFunction
from autotuner.ops.sdpa.arguments import arguments

if TYPE_CHECKING:
    from torch import Tensor

    from autotuner.values.problem import Problem


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
    arguments=arguments,
    schema="(Tensor query, Tensor key, Tensor value, *, bool is_causal=False, bool enable_gqa=False) -> Tensor",
    scalars=frozenset({"is_causal", "enable_gqa"}),
    empty=_like_inputs,
    options=_options,
)
