"""The problem of a call of torch's scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotuner.ops.op import OpCall
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.torch_call import FUNCTION

if TYPE_CHECKING:
    from torch import Tensor

USUAL: Mapping[str, Any] = {"attn_mask": None, "dropout_p": 0.0, "scale": None, "enable_gqa": False}
"""What the options must be, as far as they are not served otherwise."""


def problem_of(inputs: tuple[Tensor, ...], options: Mapping[str, Any]) -> SdpaProblem:
    """Of (Q, K, V), each (batch, heads, length, head_dim), and the options of the call. Raises ValueError."""
    SdpaProblem.refuse_not_served(name for name, value in options.items() if name in USUAL and value != USUAL[name])
    if len(inputs) != 3 or any(tensor.dim() != 4 for tensor in inputs):
        raise ValueError("expected three tensors Q, K and V of (batch, heads, length, head_dim)")
    q, k, v = inputs
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"Q {tuple(q.shape)}, K {tuple(k.shape)} and V {tuple(v.shape)} do not fit together")
    SdpaProblem.refuse_not_served(["heads_kv"] if q.shape[1] != k.shape[1] else [])
    SdpaProblem.refuse_not_served([] if all(tensor.is_contiguous() for tensor in inputs) else ["strides"])
    batch, heads, seq_q, head_dim = q.shape
    fields = {"batch": batch, "heads": heads, "seq_q": seq_q, "seq_k": k.shape[2], "head_dim": head_dim}
    dtype, causal = str(q.dtype).removeprefix("torch."), bool(options.get("is_causal", False))
    return SdpaProblem.model_validate({**fields, "dtype": dtype, "causal": causal})


CALL = OpCall(frozenset({"is_causal", *USUAL}), problem_of, FUNCTION)
