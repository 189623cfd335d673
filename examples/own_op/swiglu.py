"""The gate of a model's feed-forward layers."""

import torch

import autotuner

OP = autotuner.op(
    "swiglu",
    inputs={"a": "rows x dim", "b": "rows x dim"},
    formula=lambda a, b: torch.nn.functional.silu(a) * b,
    distributions={"large": lambda a, b: (20 * a, b)},
)
