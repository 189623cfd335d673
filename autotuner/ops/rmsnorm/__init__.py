"""The op rmsnorm: Y = X / sqrt(mean(X^2) + eps) * W, over the last dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from autotuner.ops.op import OpCall, OpCase, Relation, invariant
from autotuner.ops.rows import RowProblem, row_op, scaled_by
from autotuner.values import config
from autotuner.values.problem import Dtype, Problem

if TYPE_CHECKING:
    from torch import Tensor

    from autotuner.ops.tensors import Tensors


USUAL_EPS = 1e-6


class RmsNormProblem(RowProblem):
    """Y = X / sqrt(mean(X^2) + eps) * W, the mean over the last dimension: X, Y are (tokens, hidden_size), W is
    (hidden_size,)."""

    op: Literal["rmsnorm"] = "rmsnorm"
    tokens: PositiveInt
    hidden_size: PositiveInt
    dtype: Dtype
    eps: float = Field(default=USUAL_EPS, gt=0, le=1, description="added to the mean of squares")

    DIMS: ClassVar[tuple[str, ...]] = ("tokens", "hidden_size")
    LENGTHS: ClassVar[tuple[str, ...]] = ("hidden_size",)
    SCALARS: ClassVar[tuple[str, ...]] = ("eps",)
    TENSORS: ClassVar[Mapping[str, tuple[str, ...]]] = {"X": DIMS, "W": LENGTHS, "Y": DIMS}

    FORM: ClassVar[str] = "(tokens,hidden_size) dtype [eps=NUMBER]"
    NOT_SERVED: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("bias", "beta"), "there is a weight and no bias"),
        **dict.fromkeys(("residual", "add"), "X alone is normalised"),
        **dict.fromkeys(("elementwise_affine", "no_weight"), "there is always a weight"),
        **dict.fromkeys(("layout", "strides"), "tensors are dense, (tokens, hidden_size)"),
    }

    @property
    def flops(self) -> int:
        """Four an element: the square and its sum, two products."""
        return 4 * self.tokens * self.hidden_size


DISTRIBUTIONS = {
    "randn": "standard normal",
    "magnitudes": "normal, each row times a power of two of its own: the sum of another row shows at full size",
    "giant": "normal, with one element a row that outweighs the rest",
    "eps": "normal, times the square root of eps: half of what is under the root",
    "zeros": "normal, but every second row is zero",
    "huge": "normal, X times 2^50, in float16 2^13: squares overflow an element type that sums them itself",
    "tiny": "normal, X times 2^-50, in float16 2^-12",
    "equal": "each row holds one number, W powers of two: exact but for the factor, so that a rounded one shows",
}
QUICK = (
    OpCase((37, 1000), "magnitudes", "Q1 "),
    OpCase((12, 4097), "giant", "Q2 "),
    OpCase((19, 509), "eps", "Q3 "),
    OpCase((200, 203), "randn", "Q4 "),
    OpCase((16, 1024), "zeros", "Q5 "),
)
FULL = tuple(
    OpCase(shape, distribution)
    for distribution, shapes in {
        "randn": ((512, 64), (33, 4096), (3, 16384), (1, 8192), (64, 1), (1, 1), (2, 63)),
        "giant": ((3, 16384), (40, 320)),
        "huge": ((129, 768),),
        "tiny": ((65, 515),),
        "equal": ((65, 515),),
        "eps": ((31, 2048),),
        "magnitudes": ((7, 1536),),
    }.items()
    for shape in shapes
)


@invariant(
    "G3.equal",
    "a row of equal numbers under W = 1 gives equal numbers",
    "a part of the row, such as its tail, is rounded differently or takes another sum",
)
def equal(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    import torch

    x, w = inputs
    same = x[:, :1].expand_as(x).contiguous(), torch.ones_like(w)
    broken = "a row of equal numbers gives numbers that differ"
    yield Relation(same, lambda _, other: (other[0], other[0][:, :1].expand_as(other[0])), broken)


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

OP = row_op(
    RmsNormProblem,
    "rms_norm",
    DISTRIBUTIONS,
    QUICK,
    FULL,
    "magnitudes",
    own=(scaled_by("W", 1), equal),
    package=__name__,
    abi=lambda: config.kernels_dir() / "rmsnorm" / "abi",
    default_spaces={"cpu": "rmsnorm_cpu", "cuda": "rmsnorm_cuda"},
    call=CALL,
)
