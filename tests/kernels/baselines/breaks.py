"""A baseline that breaks the device, in a process of its own."""

import sys

import torch
from torch import Tensor

from autotuner.ops import OPS
from autotuner.ops.functions import baseline
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import moved
from autotuner.values.errors import InputError


def reads_far(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    where = torch.full(query.shape, 1 << 40, device=query.device)
    return torch.gather(query, 3, where)


def main() -> None:
    problem = SdpaProblem.parse("(1,2,33,64) bfloat16")
    inputs = moved(OPS["sdpa"].tensors().inputs(problem, "randn", 1), "cuda")
    try:
        baseline(reads_far).answer(problem, inputs)
    except InputError as error:
        sys.stdout.write(str(error))
