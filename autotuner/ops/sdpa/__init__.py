"""The op sdpa: O = softmax(scale Q K^T) V for every (batch, head), with masks, groups of heads and views."""

from collections.abc import Mapping
from functools import partial
from typing import cast

from autotuner.ops.op import Input, Invariant, Op, Output, Words, imported_when_called
from autotuner.ops.sdpa.call import CALL
from autotuner.ops.sdpa.cases import CASES, INVARIANT, few_keys
from autotuner.ops.sdpa.problem import SdpaProblem, distance
from autotuner.values import config
from autotuner.values.problem import Problem, Shape

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
            "causal": macros["CAUSAL"] == "1",
            "corner": macros.get("CORNER", "top_left"),
            "window_left": USUAL_WINDOW * int(macros.get("WINDOWED", 0)),
            "window_right": USUAL_WINDOW * int(macros.get("WINDOWED", 0)) * (macros["CAUSAL"] == "0"),
            "softcap": USUAL_SOFTCAP * int(macros.get("SOFTCAPPED", 0)),
            "sinks": macros.get("SINKS", "none"),
            "bias": macros.get("BIAS", "none"),
            "key_lengths": macros.get("KEY_LENGTHS") == "1",
            "layout": macros.get("LAYOUT", "bhsd"),
            "lse": macros.get("LSE") == "1",
        }
    )


AXES = ("batch", "head", "row", "column")

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
    axes=AXES,
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
        INVARIANT,
    ),
    Invariant(
        "G3.permute",
        "permuting the (batch, head) slices permutes the output, nothing else",
        "the addressing of batch or head, or a result that depends on the order of blocks",
        _relations("permute"),
        INVARIANT,
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
        INVARIANT,
        applies=lambda problem: cast(SdpaProblem, problem).key_lengths,
    ),
    Invariant(
        "G3.ones",
        "V = 1 gives O = 1: the weights of each row sum to 1",
        "the normaliser is not the sum of the weights in use: keys lost or counted twice, or padding counted",
        _relations("ones"),
        INVARIANT,
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
        INVARIANT,
    ),
)
"""In order of cost."""

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
