"""The op rmsnorm: Y = X / sqrt(mean(X^2) + eps) * W, over the last dimension."""

from __future__ import annotations

from collections.abc import Mapping

from autotuner.ops.op import Input, Op, Output
from autotuner.ops.rmsnorm.call import CALL
from autotuner.ops.rmsnorm.cases import CASES
from autotuner.ops.rmsnorm.invariants import INVARIANTS
from autotuner.ops.rmsnorm.problem import RmsNormProblem, distance
from autotuner.ops.rmsnorm.words import WORDS
from autotuner.values import config
from autotuner.values.problem import Problem

USUAL_TOKENS, USUAL_HIDDEN_SIZE = 512, 4096
"""Of the problem that a library is judged on that was built for any sizes."""


def _inputs(problem: Problem) -> tuple[Input, ...]:
    dtype = problem.dtype
    return Input("X", dtype, ("tokens", "hidden_size")), Input("W", dtype, ("hidden_size",))


def _outputs(problem: Problem) -> tuple[Output, ...]:
    return (Output("Y", problem.dtype, ("tokens", "hidden_size"), row=1, slice=1),)


def _usual(macros: Mapping[str, str]) -> Problem:
    hidden_size = int(macros.get("HIDDEN_SIZE", USUAL_HIDDEN_SIZE))
    return RmsNormProblem.model_validate(
        {"tokens": USUAL_TOKENS, "hidden_size": hidden_size, "dtype": macros["DTYPE"]}, strict=True
    )


OP = Op(
    name="rmsnorm",
    package=__name__,
    problem=RmsNormProblem,
    inputs=_inputs,
    outputs=_outputs,
    ordinary="randn",
    cases=CASES,
    invariants=INVARIANTS,
    distance=distance,
    usual=_usual,
    words=WORDS,
    abi=lambda: config.kernels_dir() / "rmsnorm" / "abi",
    default_spaces={"cpu": "rmsnorm_cpu", "cuda": "rmsnorm_cuda"},
    call=CALL,
    compiled=lambda problem: True,
)
