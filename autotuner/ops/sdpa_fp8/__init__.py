"""The op sdpa_fp8: attention whose Q, K and V are FP8 (e4m3), each head of them with a float32 factor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from autotuner.ops.op import Input, Op, Output
from autotuner.ops.sdpa.problem import distance
from autotuner.ops.sdpa_fp8.cases import CASES
from autotuner.ops.sdpa_fp8.invariants import INVARIANTS
from autotuner.ops.sdpa_fp8.problem import DESCALES, ELEMENT, SdpaFp8Problem
from autotuner.ops.sdpa_fp8.words import WORDS
from autotuner.values import config
from autotuner.values.problem import Problem

USUAL_LENGTH = 512
"""Queries and keys of the problem that a library is judged on."""


def _inputs(problem: Problem) -> tuple[Input, ...]:
    """Q, K and V, the descales of each, and the lengths where there are any."""
    of = cast(SdpaFp8Problem, problem)
    qkv = (
        Input(name, ELEMENT, ("batch", heads, length, "head_dim"), strided=of.layout != "bhsd")
        for name, heads, length in (("Q", "heads", "seq_q"), ("K", "heads_kv", "seq_k"), ("V", "heads_kv", "seq_k"))
    )
    descales = (Input(name, "float32", ("batch", "heads_kv")) for name in DESCALES)
    lengths = (Input("key lengths", "int32", ("batch",), most="seq_k"),) if of.key_lengths else ()
    return (*qkv, *descales, *lengths)


def _outputs(problem: Problem) -> tuple[Output, ...]:
    of = cast(SdpaFp8Problem, problem)
    return (Output("O", of.dtype, ("batch", "heads", "seq_q", "head_dim"), strided=of.layout != "bhsd"),)


def _usual(macros: Mapping[str, str]) -> Problem:
    """8 heads, on 2 of K and V in a variant for groups."""
    return SdpaFp8Problem.model_validate(
        {
            "batch": 1,
            "heads": 8,
            "heads_kv": 2 if macros["GROUPED"] == "1" else 8,
            "seq_q": USUAL_LENGTH,
            "seq_k": USUAL_LENGTH,
            "head_dim": int(macros["HEAD_DIM"]),
            "dtype": macros["DTYPE"],
            "causal": macros["CAUSAL"] == "1",
            "corner": macros["CORNER"],
            "key_lengths": macros["KEY_LENGTHS"] == "1",
            "layout": macros["LAYOUT"],
        }
    )


OP = Op(
    name="sdpa_fp8",
    package=__name__,
    problem=SdpaFp8Problem,
    inputs=_inputs,
    outputs=_outputs,
    ordinary="randn",
    cases=CASES,
    invariants=INVARIANTS,
    distance=distance,
    usual=_usual,
    words=WORDS,
    abi=lambda: config.kernels_dir() / "sdpa_fp8" / "abi",
    default_spaces={"cuda": "sdpa_fp8_cuda"},
)
