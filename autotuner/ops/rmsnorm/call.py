"""torch's rms_norm: the problem of a call, and what exports say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotuner.ops.op import OpCall
from autotuner.ops.rmsnorm.problem import USUAL_EPS, RmsNormProblem
from autotuner.values.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor


def problem_of(inputs: tuple[Tensor, ...], options: Mapping[str, Any]) -> RmsNormProblem:
    """Of X, (..., hidden_size), and W, (hidden_size,), both dense: all dimensions of X but the last are tokens. Raises
    ValueError."""
    others = [name for name in options if name != "eps"]
    RmsNormProblem.refuse_not_served(others)
    if others:
        raise ValueError(f"{others[0]} is not supported")
    if len(inputs) != 2 or inputs[0].dim() < 1 or inputs[1].dim() != 1:
        raise ValueError("expected X of (..., hidden_size) and W of (hidden_size,)")
    x, w = inputs
    if x.shape[-1] != w.shape[0] or x.dtype != w.dtype:
        raise ValueError(f"X {tuple(x.shape)} of {x.dtype} and W {tuple(w.shape)} of {w.dtype} do not fit together")
    if not (x.is_contiguous() and w.is_contiguous()):
        raise ValueError("X and W must be dense; call .contiguous() first")
    fields = {"tokens": x.numel() // w.shape[0], "hidden_size": w.shape[0]}
    dtype, eps = str(x.dtype).removeprefix("torch."), options.get("eps", USUAL_EPS)
    return RmsNormProblem.model_validate({**fields, "dtype": dtype, "eps": eps})


def _options(problem: Problem) -> dict[str, Any]:
    assert isinstance(problem, RmsNormProblem)
    return {"eps": problem.eps}


CALL = OpCall(
    problem=problem_of,
    options=_options,
    reasons=(
        "expected X of (..., hidden_size) and W of (hidden_size,)",
        "X and W must be dense; call .contiguous() first",
    ),
)
