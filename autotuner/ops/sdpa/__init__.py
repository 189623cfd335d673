"""The op sdpa: O = softmax(scale Q K^T) V for every (batch, head), with masks, groups of heads and views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from autotuner.ops.op import Input, Op, Output
from autotuner.ops.sdpa.call import CALL
from autotuner.ops.sdpa.cases import CASES
from autotuner.ops.sdpa.invariants import INVARIANTS
from autotuner.ops.sdpa.problem import SdpaProblem, distance
from autotuner.ops.sdpa.words import WORDS
from autotuner.values import config
from autotuner.values.problem import Problem

USUAL_LENGTH = 512
"""Queries and keys of the problem that a library is judged on that was built for any length."""

USUAL_WINDOW = 100
"""Keys to either side of such a problem, where the library is for windows."""
USUAL_SOFTCAP = 50.0


def _inputs(problem: Problem) -> tuple[Input, ...]:
    """Q, K and V, and the lengths, the sinks and the bias where there are any."""
    of = cast(SdpaProblem, problem)
    q, *kv = (
        Input(name, of.dtype, ("batch", heads, length, "head_dim"), strided=of.layout != "bhsd")
        for name, heads, length in (("Q", "heads", "seq_q"), ("K", "heads_kv", "seq_k"), ("V", "heads_kv", "seq_k"))
    )
    lengths = (Input("key lengths", "int32", ("batch",), most="seq_k"),) if of.key_lengths else ()
    sinks = (
        (Input("sinks", "float32" if of.sinks == "float32" else of.dtype, ("heads",)),) if of.sinks != "none" else ()
    )
    tensor = Input("bias", of.dtype, ("batch" if of.bias == "full" else 1, "heads", "seq_q", "seq_k"), strided=True)
    bias = {"none": (), "alibi": (Input("alibi_slopes", "float32", ("heads",)),)}.get(of.bias, (tensor,))
    return (q, *kv, *lengths, *sinks, *bias)


def _outputs(problem: Problem) -> tuple[Output, ...]:
    """O, and the log-sum-exps where they are wanted: of these a slice is a row."""
    of = cast(SdpaProblem, problem)
    o = Output("O", of.dtype, ("batch", "heads", "seq_q", "head_dim"), strided=of.layout != "bhsd", row=1, slice=2)
    lse = Output("LSE", "float32", ("batch", "heads", "seq_q"), row=1, slice=1, unit=1.0)
    return (o, lse) if of.lse else (o,)


def _usual(macros: Mapping[str, str]) -> Problem:
    """8 heads, on 2 of K and V in a variant for groups, at the lengths that are compiled in or USUAL_LENGTH."""
    return SdpaProblem.model_validate(
        {
            "batch": 1,
            "heads": 8,
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


OP = Op(
    name="sdpa",
    package=__name__,
    problem=SdpaProblem,
    inputs=_inputs,
    outputs=_outputs,
    ordinary="randn",
    cases=CASES,
    invariants=INVARIANTS,
    distance=distance,
    usual=_usual,
    words=WORDS,
    abi=lambda: config.kernels_dir() / "sdpa" / "abi",
    default_spaces={"cpu": "sdpa_cpu", "cuda": "sdpa_cuda"},
    call=CALL,
    libraries={"flash_attn": "flash-attn", "flashinfer": "flashinfer-python"},
    compiled=lambda problem: cast(SdpaProblem, problem).in_blocks,
)
