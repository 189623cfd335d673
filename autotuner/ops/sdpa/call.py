"""torch's scaled_dot_product_attention: the problem of a call, and what exports say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotuner.ops.op import OpCall
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

USUAL: Mapping[str, Any] = {"attn_mask": None, "dropout_p": 0.0, "scale": None}
"""What the options must be, as far as they are not served otherwise."""
OURS = ("corner", "key_lengths", "lse", "window_left", "window_right", "softcap", "sinks", "bias")
"""Fields of the problem that torch's function has no argument for, and may be given all the same."""
MORE = ("key_lengths", "sinks", "alibi_slopes", "bias")
"""Tensors behind Q, K and V, as the signature names them."""
NUMBERS = ("window_left", "window_right")
"""Of these the whole numbers."""


def problem_of(
    inputs: tuple[Any, ...], options: Mapping[str, Any], kind: type[SdpaProblem] = SdpaProblem, dtype: str | None = None
) -> SdpaProblem:
    """Of (Q, K, V), each (batch, heads, length, head_dim), and what there is of lengths of the keys, (batch,) of int32,
    sinks, slopes and a bias, None for those that are not there; and the options of the call. `dtype`: that of O, where
    Q has another. Raises ValueError."""
    kind.refuse_not_served(name for name, value in options.items() if name in USUAL and value != USUAL[name])
    if any(tensor is not None and tensor.is_nested for tensor in inputs):
        raise ValueError("nested tensors are not supported")
    inputs, (lengths, sinks, slopes, bias) = inputs[:3], (*inputs[3:], *[None] * 4)[:4]
    if len(inputs) != 3 or any(tensor.dim() != 4 for tensor in inputs):
        raise ValueError("expected three tensors Q, K and V of (batch, heads, length, head_dim)")
    q, k, v = inputs
    if k.shape[:3] == v.shape[:3] and q.shape[3] == k.shape[3] != v.shape[3]:
        raise ValueError(f"V has head dimension {v.shape[3]}, Q and K have {k.shape[3]}: no kernel serves that")
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"Q {tuple(q.shape)}, K {tuple(k.shape)} and V {tuple(v.shape)} do not fit together")
    if dtype is None and not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"Q is {q.dtype}, K {k.dtype} and V {v.dtype}: expected one element type")
    if q.shape[1] != k.shape[1] and not options.get("enable_gqa"):
        raise ValueError(f"Q has {q.shape[1]} heads, K and V have {k.shape[1]}: say enable_gqa=True")
    batch, heads, seq_q, head_dim = q.shape
    if lengths is not None:
        _require("key_lengths", lengths, batch, ("int32",))
        options = {**options, "key_lengths": True}
    fields = {"batch": batch, "heads": heads, "heads_kv": k.shape[1], "seq_q": seq_q, "seq_k": k.shape[2]}
    if sinks is not None:
        own = str(q.dtype).removeprefix("torch.")
        _require("sinks", sinks, heads, (own, "float32"))
        options = {**options, "sinks": "own" if sinks.dtype == q.dtype else "float32"}
    if slopes is not None:
        _require("alibi_slopes", slopes, heads, ("float32",))
        options = {**options, "bias": "alibi"}
    if bias is not None:
        options = {**options, "bias": _bias(bias, slopes, (batch, heads, seq_q, k.shape[2]), q)}
    dtype, causal = dtype or str(q.dtype).removeprefix("torch."), bool(options.get("is_causal", False))
    more = {name: options[name] for name in OURS if name in options}
    more |= {name: int(more[name]) for name in NUMBERS if name in more}
    known = {"head_dim": head_dim, "dtype": dtype, "causal": causal, "layout": _layout(inputs), **more}
    return kind.model_validate({**fields, **known})


def _bias(bias: Tensor, slopes: Tensor | None, whole: tuple[int, ...], q: Tensor) -> str:
    """Which of the problem's it is. Raises ValueError."""
    if slopes is not None:
        raise ValueError("alibi_slopes and a bias together are not served: add what the slopes say to the bias")
    if tuple(bias.shape) != whole or bias.dtype != q.dtype:
        dtypes = (str(each.dtype).removeprefix("torch.") for each in (bias, q))
        raise ValueError(
            f"bias is {tuple(bias.shape)} of {next(dtypes)}, expected what expands to {whole} of {next(dtypes)}"
        )
    steps = [stride * q.element_size() for size, stride in zip(whole[:3], bias.stride()[:3], strict=True) if size > 1]
    if bias.stride(3) != 1 or any(step % 16 for step in steps):
        raise ValueError(
            f"bias has strides {bias.stride()}: its rows must be dense, and begin at multiples of 16 bytes"
        )
    return "heads" if whole[0] == 1 or bias.stride(0) == 0 else "full"


def _require(name: str, tensor: Tensor, size: int, dtypes: tuple[str, ...]) -> None:
    """Raises ValueError where it is not (size,) of one of these element types, dense."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tuple(tensor.shape) != (size,) or dtype not in dtypes or not tensor.is_contiguous():
        wanted = " or ".join(dict.fromkeys(dtypes))
        raise ValueError(f"{name} is {tuple(tensor.shape)} of {dtype}, expected ({size},) of {wanted}, dense")


def _layout(inputs: tuple[Tensor, ...]) -> str:
    """Where the tensors lie. Raises ValueError where no layout is like that."""
    if all(tensor.is_contiguous() for tensor in inputs):
        return "bhsd"
    for name, tensor in zip("QKV", inputs, strict=True):
        unit = 16 // tensor.element_size()
        strides = [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
        if tensor.stride(3) != 1 or any(stride % unit for stride in strides[:-1]):
            raise ValueError(
                f"{name} has strides {tensor.stride()}: rows must be dense and the others multiples of {unit} elements;"
                " call .contiguous() first"
            )
    k, v = (tensor.untyped_storage().data_ptr() for tensor in inputs[1:])
    shared = k == v and inputs[1].data_ptr() != inputs[2].data_ptr()
    return "packed qkv" if shared else "bshd"


def _options(problem: Problem) -> dict[str, Any]:
    assert isinstance(problem, SdpaProblem)
    said = {"is_causal": problem.causal, "enable_gqa": problem.grouped}
    named: dict[str, Any] = {name: True for name, value in said.items() if value}
    if problem.softcapped:
        named["softcap"] = problem.softcap
    if problem.windowed:
        named["window"] = (problem.window_left, problem.window_right)
    there = (problem.key_lengths, problem.sinks != "none", problem.bias == "alibi", problem.bias in ("heads", "full"))
    absent = {name: None for name, is_there in zip(MORE, there, strict=True) if not is_there}
    if any(there):
        named |= absent
    return named if problem.corner == "top_left" else {**named, "corner": problem.corner}


def _mask(problem: Problem, tensors: tuple[Tensor, ...]) -> dict[str, Tensor]:
    from autotuner.ops.sdpa import masks

    assert isinstance(problem, SdpaProblem)
    mask = masks.mask(problem, tensors) if problem.bias == "none" else None
    return {} if mask is None else {"attn_mask": mask}


CALL = OpCall(
    problem=problem_of,
    options=_options,
    more=frozenset(OURS),
    reasons=(
        "expected three tensors Q, K and V of (batch, heads, length, head_dim) that fit together",
        "rows must be dense, and the other strides multiples of 16 bytes; call .contiguous() first",
        "K and V have fewer heads than Q: say enable_gqa=True",
        "key_lengths must be (batch,) of int32, dense",
        "no variant was tuned with lengths of keys",
        "V has another head dimension than Q and K, which no kernel serves",
        "sinks must be (heads,) of float32 or of the query's element type, dense",
        "alibi_slopes must be (heads,) of float32, dense, with no bias beside; a bias what expands to (batch, heads,"
        " seq_q, seq_k), of the query's element type, its rows dense and at multiples of 16 bytes",
    ),
    strided=True,
    made_once=_mask,
)
