"""torch's scaled_dot_product_attention as a function that can be recorded and replaced."""

from __future__ import annotations

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
    *,
    key_lengths: Tensor | None = None,
    corner: str = "top_left",
) -> tuple[Tensors, dict[str, Any]]:
    """Q, K, V and, where there are any, the lengths; and those of the options that change what is computed. A model may
    say what is so anyway: the usual scale, or groups where there are none."""
    options: dict[str, Any] = {}
    if attn_mask is not None:
        options["attn_mask"] = attn_mask
    if dropout_p:
        options["dropout_p"] = dropout_p
    if is_causal:
        options["is_causal"] = True
    # In plain arithmetic, which torch.compile follows.
    if scale is not None and not (query.dim() and abs(scale * scale * query.shape[-1] - 1) < 2e-6):
        options["scale"] = scale
    if enable_gqa and query.dim() == key.dim() == 4 and query.shape[1] != key.shape[1]:
        options["enable_gqa"] = True
    if is_causal and corner != "top_left":
        options["corner"] = corner
    return (query, key, value) if key_lengths is None else (query, key, value, key_lengths), options


def _options(problem: Problem) -> dict[str, Any]:
    facts = problem.facts()
    corner = {} if facts["CORNER"] == "top_left" else {"corner": facts["CORNER"]}
    return {"is_causal": facts["CAUSAL"], "enable_gqa": facts["HEADS"] != facts["HEADS_KV"], **corner}


def _like_inputs(query: Tensor, key: Tensor, value: Tensor, *_: Tensor, **options: Any) -> Tensor:
    """O has the sizes and the element type of Q, with the sizes of a row of V, and lies as Q does."""
    import torch

    if query.shape[-1] == value.shape[-1]:
        return torch.empty_like(query)
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def _function() -> Any:
    from torch.nn import functional

    return functional.scaled_dot_product_attention


def _ours() -> Any:
    from autotuner.ops.sdpa.attention import attention

    return attention


FUNCTION = TorchFunction(
    function=_function,
    ours=_ours,
    tensors=("query", "key", "value", "key_lengths"),
    arguments=_arguments,
    schema="(Tensor query, Tensor key, Tensor value, Tensor? key_lengths=None, *, bool is_causal=False,"
    ' bool enable_gqa=False, str corner="top_left") -> Tensor',
    scalars=frozenset({"is_causal", "enable_gqa", "corner"}),
    empty=_like_inputs,
    options=_options,
)
