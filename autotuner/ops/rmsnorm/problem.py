"""The problem of the op rmsnorm: the sizes of X, its element type, and the number that keeps a row of zeros finite."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from autotuner.ops.rows import RowProblem
from autotuner.values.problem import Dtype

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
