"""Softmax with a temperature, over the rows of a matrix."""

import torch

import autotuner

OP = autotuner.op(
    "softmax",
    inputs={"x": "rows x dim"},
    scalars={"temperature": 1.0},
    formula=lambda x, temperature: torch.softmax(x / temperature, -1),
    distributions={"large": lambda x: 50 * x},
)
