"""The op sdpa: O = softmax(scale Q K^T) V for every (batch, head), full or causal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from autotuner.ops.op import Op, Output, digest_of_folder
from autotuner.ops.sdpa.call import CALL
from autotuner.ops.sdpa.cases import CASES
from autotuner.ops.sdpa.distance import distance
from autotuner.ops.sdpa.invariants import INVARIANTS
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.words import AXES, WORDS
from autotuner.values import config
from autotuner.values.problem import Problem, Shape

if TYPE_CHECKING:
    from autotuner.ops.op import OpTensors

USUAL_LENGTH = 512
"""Queries and keys of the problem that a library is judged on that was built for any length."""


def _input_shapes(problem: Problem) -> tuple[Shape, ...]:
    """Q, K and V."""
    q, o = cast(SdpaProblem, problem), _output_shapes(problem)[0]
    keys = (q.batch, q.heads, q.seq_k, q.head_dim)
    return o, keys, keys


def _output_shapes(problem: Problem) -> tuple[Shape, ...]:
    """O."""
    of = cast(SdpaProblem, problem)
    return ((of.batch, of.heads, of.seq_q, of.head_dim),)


def _usual(macros: Mapping[str, str]) -> Problem:
    """8 heads, at the lengths that are compiled in or USUAL_LENGTH."""
    return SdpaProblem.model_validate(
        {
            "batch": 1,
            "heads": 8,
            "seq_q": int(macros.get("SEQ_Q", USUAL_LENGTH)),
            "seq_k": int(macros.get("SEQ_K", USUAL_LENGTH)),
            "head_dim": int(macros["HEAD_DIM"]),
            "dtype": macros["DTYPE"],
            "causal": macros["CAUSAL"] == "1",
        }
    )


def _tensors() -> OpTensors:
    from autotuner.ops.sdpa.tensors import SdpaTensors

    return SdpaTensors()


OP = Op(
    name="sdpa",
    problem=SdpaProblem,
    inputs=("Q", "K", "V"),
    outputs=(Output("O", row=1, slice=2, axes=AXES),),
    ordinary="randn",
    cases=CASES,
    invariants=INVARIANTS,
    input_shapes=_input_shapes,
    output_shapes=_output_shapes,
    distance=distance,
    usual=_usual,
    words=WORDS,
    tensors=_tensors,
    abi=lambda: config.kernels_dir() / "sdpa" / "abi",
    default_spaces={"cpu": "sdpa_cpu", "cuda": "sdpa_cuda"},
    digest=digest_of_folder(Path(__file__).parent),
    call=CALL,
)
