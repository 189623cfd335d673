"""The op sdpa: O = softmax(scale Q K^T) V for every (batch, head), with masks, groups of heads and views."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from autotuner.ops.op import Input, Invariant, Op, OpCall, Output, Words, imported_when_called
from autotuner.ops.sdpa.cases import CASES, few_keys
from autotuner.ops.sdpa.problem import SdpaProblem, distance
from autotuner.values import config
from autotuner.values.problem import Problem, Shape

if TYPE_CHECKING:
    from torch import Tensor


USUAL_LENGTH = 512
"""Queries and keys of the problem that a library is judged on that was built for any length."""

USUAL_WINDOW = 100
"""Keys to either side of such a problem, where the library is for windows."""
USUAL_SOFTCAP = 50.0


def qkv(of: SdpaProblem, dtype: str) -> tuple[Input, ...]:
    """Q, K and V of that element type."""
    named = (("Q", "heads", "seq_q"), ("K", "heads_kv", "seq_k"), ("V", "heads_kv", "seq_k"))
    return tuple(
        Input(name, dtype, ("batch", heads, length, "head_dim"), strided=of.layout != "bhsd")
        for name, heads, length in named
    )


def lengths(of: SdpaProblem) -> tuple[Input, ...]:
    """Those of the keys, where there are any."""
    return (Input("key lengths", "int32", ("batch",), most="seq_k"),) if of.key_lengths else ()


def _inputs(problem: Problem) -> tuple[Input, ...]:
    """Q, K and V, and the lengths, the sinks and the bias where there are any."""
    of = cast(SdpaProblem, problem)
    sinks = (
        (Input("sinks", "float32" if of.sinks == "float32" else of.dtype, ("heads",)),) if of.sinks != "none" else ()
    )
    tensor = Input("bias", of.dtype, ("batch" if of.bias == "full" else 1, "heads", "seq_q", "seq_k"), strided=True)
    bias = {"none": (), "alibi": (Input("alibi_slopes", "float32", ("heads",)),)}.get(of.bias, (tensor,))
    return (*qkv(of, of.dtype), *lengths(of), *sinks, *bias)


def outputs(problem: Problem) -> tuple[Output, ...]:
    """O, and the log-sum-exps where they are wanted: of these a slice is a row."""
    of = cast(SdpaProblem, problem)
    o = Output("O", of.dtype, ("batch", "heads", "seq_q", "head_dim"), strided=of.layout != "bhsd", row=1, slice=2)
    lse = Output("LSE", "float32", ("batch", "heads", "seq_q"), row=1, slice=1, unit=1.0)
    return (o, lse) if of.lse else (o,)


def usual(macros: Mapping[str, str], kind: type[SdpaProblem] = SdpaProblem) -> Problem:
    """8 heads, on 2 of K and V in a variant for groups, at the lengths that are compiled in or USUAL_LENGTH."""
    return kind.model_validate(
        {
            **{"batch": 1, "heads": 8},
            "heads_kv": 2 if macros.get("GROUPED") == "1" else 8,
            "seq_q": int(macros.get("SEQ_Q", USUAL_LENGTH)),
            "seq_k": int(macros.get("SEQ_K", USUAL_LENGTH)),
            "head_dim": int(macros["HEAD_DIM"]),
            "dtype": macros["DTYPE"],
            **{name: macros.get(name.upper()) == "1" for name in ("causal", "key_lengths", "lse")},
            **{name: macros[name.upper()] for name in ("corner", "sinks", "bias", "layout") if name.upper() in macros},
            "window_left": USUAL_WINDOW * int(macros.get("WINDOWED", 0)),
            "window_right": USUAL_WINDOW * int(macros.get("WINDOWED", 0)) * (macros["CAUSAL"] == "0"),
            "softcap": USUAL_SOFTCAP * int(macros.get("SOFTCAPPED", 0)),
        }
    )


DISTRIBUTIONS = {
    "randn": "standard normal",
    "large": "normal, Q times 5, K and V times 3",
    "huge": "normal, Q and K times 16: exp overflows unless the maximum is subtracted",
    "enormous": "as one_hot, Q and K times 30000, in float16 4000: powers of two lose the digits of such scores",
    "equal_enormous": "Q and K are 20000: all weights are equal, however large the scores are",
    "negative": "as one_hot, Q times 256 and every score 2^17 smaller",
    "outlier_key": "as one_hot, one key 60 to 300 times as large",
    "outlier_row": "as one_hot, one row of Q 60 to 300 times as large",
    "outlier_channel": "normal, one column of K 60 to 300 times as large",
    "one_hot": "each row attends to one key: a single wrong key shows at full size",
    "edges": "as one_hot, where the keys are the last ones in a row's window and the first ones outside",
    "big_v": "normal, V times 1000",
    "tiny_v": "normal, V times 1e-6",
    "zero_q": "Q = 0: every weight is equal",
    "uniform01": "uniform between 0 and 1",
    "const_v": "V constant",
    "slopes": "scores rise along the keys in even rows and fall in odd ones, so that each tile has another maximum",
    "gaps": "standard normal; rows, heads and batches lie apart, each tensor in its own way, with NaN in between",
    "expanded": "standard normal; all batches share one K and V, which lie in memory once",
    "one_head": "standard normal; all heads share one K and V, which lie in memory once",
    "one_query": "standard normal; all batches share one Q, which lies in memory once",
    "gaps_in_v": "standard normal; rows, heads and batches of V alone lie apart",
    "ragged": "standard normal; among the lengths of the keys are none, 1 and all, and past them is NaN",
    "far_sinks": "standard normal; the sinks of the heads in turn are far above and below all scores, -infinity",
    "hiding": "standard normal; the bias is -infinity, the least number, 30 and -30 among others; some rows hide all",
    "shared": "standard normal; all heads and rows share one row of the bias, which lies in memory once",
    "sink": "the first key draws most of the weight, in odd rows all of it",
}


def case(shape: Shape, macros: Mapping[str, str]) -> str:
    """The sizes, and what the artifact is compiled for."""
    batch, heads, seq_q, seq_k, *heads_kv = shape
    groups = f" ({heads_kv[0]} of K and V)" if heads_kv and heads_kv[0] != heads else ""
    words = f"batch {batch}, heads {heads}{groups}, {seq_q} query rows, {seq_k} keys"
    if not macros:
        return words
    mask = "causal" if macros["CAUSAL"] == "1" else "no mask"
    corner = " at the bottom right" if macros.get("CORNER") == "bottom_right" else ""
    more = ", lengths of keys" if macros.get("KEY_LENGTHS") == "1" else ""
    layout = macros.get("LAYOUT", "bhsd")
    views = "" if layout == "bhsd" else f", {layout}"
    window = ", a window" if macros.get("WINDOWED") == "1" else ""
    window += ", capped scores" if macros.get("SOFTCAPPED") == "1" else ""
    bias = macros.get("BIAS", "none")
    window += f", a bias ({bias})" if bias != "none" else ""
    window += ", sinks" if macros.get("SINKS", "none") != "none" else ""
    return f"{words}, head_dim {macros['HEAD_DIM']}, {macros['DTYPE']}, {mask}{window}{corner}{more}{views}"


def tail(macros: Mapping[str, str], row: int) -> str | None:
    """Under a causal mask a row's place says which keys it sees."""
    if macros.get("CAUSAL") != "1":
        return None
    return (
        f"every row from {row} on is wrong and none before: those that see keys from about position {row} on,"
        " so keys there are lost, shifted or masked wrongly"
    )


WORDS = Words(
    baseline="SDPA",
    axes=("batch", "head", "row", "column"),
    distributions=DISTRIBUTIONS,
    case=case,
    nonfinite=(
        "exp overflowed (the row's maximum is not subtracted, or not the current one), a row with no visible key"
        " was divided by 0, or memory was read before it was written"
    ),
    every_row="something that they share: scale, normaliser, a lost key, a wrong tensor",
    some_columns="a part of V, or of the accumulator, is wrong or written twice",
    tail=tail,
)

_relations = partial(imported_when_called, f"{__name__}.invariants")
INVARIANTS = (
    Invariant(
        "G3.scale_v",
        "4 V gives exactly 4 O",
        "a constant in the arithmetic (an epsilon, a clamp), or a result that does not come from V",
        _relations("scale_v"),
    ),
    Invariant(
        "G3.permute",
        "permuting the (batch, head) slices permutes the output, nothing else",
        "the addressing of batch or head, or a result that depends on the order of blocks",
        _relations("permute"),
    ),
    Invariant(
        "G3.future",
        "under a causal mask, later keys and values do not reach earlier rows",
        "the causal mask lets later keys through",
        _relations("hidden"),
        (2, 3, 203, 203),
        applies=lambda problem: cast(SdpaProblem, problem).causal and not cast(SdpaProblem, problem).windowed,
    ),
    Invariant(
        "G3.window",
        "keys and values outside a row's window do not reach it",
        "the window is applied to whole tiles only, or on one side",
        _relations("hidden"),
        (2, 3, 203, 203),
        applies=lambda problem: cast(SdpaProblem, problem).windowed,
    ),
    Invariant(
        "G3.lengths",
        "keys and values past the lengths do not reach the output",
        "the lengths are ignored, read on the host, or applied to whole tiles only",
        _relations("stale"),
        applies=lambda problem: cast(SdpaProblem, problem).key_lengths,
    ),
    Invariant(
        "G3.ones",
        "V = 1 gives O = 1: the weights of each row sum to 1",
        "the normaliser is not the sum of the weights in use: keys lost or counted twice, or padding counted",
        _relations("ones"),
    ),
    Invariant(
        "G3.one_tensor",
        "K and V, or all three, may be one tensor, or overlap",
        "an input is written to, or read where another one was to be read",
        _relations("one_tensor"),
        (2, 3, 113, 113),
    ),
    Invariant(
        "G3.spread",
        "a number that is NaN or infinite comes out where the definition has it, and reaches no other slice",
        "a maximum or a clamp that drops NaN, or values that are cleaned before they are used",
        _relations("spread"),
    ),
)
"""In order of cost."""


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


OP = Op(
    name="sdpa",
    package=__name__,
    problem=SdpaProblem,
    inputs=_inputs,
    outputs=outputs,
    ordinary="randn",
    cases=CASES,
    invariants=INVARIANTS,
    distance=distance,
    usual=usual,
    words=WORDS,
    abi=lambda: config.kernels_dir() / "sdpa" / "abi",
    default_spaces={"cpu": "sdpa_cpu", "cuda": "sdpa_cuda"},
    call=CALL,
    libraries={"flash_attn": "flash-attn", "flashinfer": "flashinfer-python"},
    compiled=lambda problem: cast(SdpaProblem, problem).in_blocks,
    equals_baseline=few_keys,
)
