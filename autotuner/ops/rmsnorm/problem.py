"""The problem of the op rmsnorm: the sizes of X, its element type, and the number that keeps a row of zeros finite."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Literal, Self, cast

from pydantic import Field, PositiveInt

from autotuner.values.problem import ITEM_BYTES, Dtype, Problem, doublings
from autotuner.values.validation import show
from autotuner.values.variant import Value

SIZES = re.compile(r"\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)(.*)")
EXAMPLE = '"(512,4096) float32" or "(1,8192) bfloat16 eps=1e-05"'
USUAL_EPS = 1e-6


class RmsNormProblem(Problem):
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

    FORM: ClassVar[str] = "(tokens,hidden_size) dtype [eps=NUMBER]"
    NOT_SERVED: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("bias", "beta"), "there is a weight and no bias"),
        **dict.fromkeys(("residual", "add"), "X alone is normalised"),
        **dict.fromkeys(("elementwise_affine", "no_weight"), "there is always a weight"),
        **dict.fromkeys(("layout", "strides"), "tensors are dense, (tokens, hidden_size)"),
    }

    @classmethod
    def parse(cls, text: str) -> Self:
        """As `str` writes it; eps is USUAL_EPS where it is not said."""
        found = SIZES.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"found {show(text)}, expected {cls.FORM}, such as {EXAMPLE}")
        tokens, hidden_size, rest = found.groups()
        sizes = {"tokens": int(tokens), "hidden_size": int(hidden_size)}

        def read(word: str) -> dict[str, object]:
            name, _, value = word.partition("=")
            return {"eps": _number(value, text)} if name.lower() == "eps" else {}

        return cls.of_words(text, sizes, rest, read, ["eps"])

    @property
    def scalars(self) -> tuple[float, ...]:
        return (self.eps,)

    @property
    def flops(self) -> int:
        """Four an element: the square and its sum, two products."""
        return 4 * self.tokens * self.hidden_size

    @property
    def bytes(self) -> int:
        """The fewest bytes to move: X and W read once, Y written once."""
        return (2 * self.tokens + 1) * self.hidden_size * ITEM_BYTES[self.dtype]

    def facts(self) -> dict[str, Value | bool]:
        """Without eps: constraints are over whole numbers and words, and no kernel depends on it."""
        return {name: value for name, value in super().facts().items() if name != "EPS"}

    def __str__(self) -> str:
        eps = "" if self.eps == USUAL_EPS else f" eps={self.eps:g}"
        return f"({self.tokens},{self.hidden_size}) {self.dtype}{eps}"


def _number(value: str, text: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{show(text)}: eps: found {show(value)}, expected a number such as 1e-05") from None


TOKENS, HIDDEN_SIZE = 0.5, 1.0
"""What a doubling counts: of the rows, which are only more of the same work until they fill the machine; of the row,
which changes what fits into registers and caches."""
DTYPE, DTYPE_BYTES = 0.5, 2.0
"""What a change of the element type counts; and each doubling of its size, on top."""


def distance(one: Problem, other: Problem) -> float:
    """How far two problems are apart, counted in doublings and changes; 0 for the same. No kernel is chosen by eps."""
    a, b = cast(RmsNormProblem, one), cast(RmsNormProblem, other)
    return (
        TOKENS * doublings(a.tokens, b.tokens)
        + HIDDEN_SIZE * doublings(a.hidden_size, b.hidden_size)
        + DTYPE * (a.dtype != b.dtype)
        + DTYPE_BYTES * doublings(ITEM_BYTES[a.dtype], ITEM_BYTES[b.dtype])
    )
