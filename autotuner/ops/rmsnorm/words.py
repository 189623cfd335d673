"""rmsnorm in words."""

from __future__ import annotations

from collections.abc import Mapping

from autotuner.ops.op import Words
from autotuner.values.problem import Shape

AXES = ("row", "column")

DISTRIBUTIONS = {
    "randn": "standard normal",
    "magnitudes": "normal, each row times a power of two of its own: the sum of another row shows at full size",
    "giant": "normal, with one element a row that outweighs the rest",
    "eps": "normal, times the square root of eps: half of what is under the root",
    "zeros": "normal, but every second row is zero",
    "huge": "normal, X times 2^50, in float16 2^13: squares overflow an element type that sums them itself",
    "tiny": "normal, X times 2^-50, in float16 2^-12",
    "equal": "each row holds one number",
}


def case(shape: Shape, macros: Mapping[str, str]) -> str:
    """The sizes, and the element type that the artifact is compiled for."""
    words = f"{shape[0]} rows of {shape[1]}"
    return f"{words}, {macros['DTYPE']}" if macros else words


WORDS = Words(
    baseline="rms_norm",
    axes=AXES,
    distributions=DISTRIBUTIONS,
    case=case,
    nonfinite=(
        "the squares overflowed the type they were summed in, eps is missing where a row is zero, or memory was read"
        " before it was written"
    ),
    every_row="something that they share: eps, the divisor of the mean, the reciprocal root, W",
    some_columns="a part of W, or of the row's tail, is wrong",
)
