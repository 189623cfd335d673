"""The layer norm with a weight and a bias."""

import torch

import autotuner

OP = autotuner.op(
    "layernorm",
    inputs={"x": "rows x dim", "weight": "dim", "bias": "dim"},
    scalars={"eps": 1e-5},
    formula=lambda x, weight, bias, eps: torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps),
    distributions={"offset": lambda x, weight, bias: (x + 100, weight, bias)},
)
