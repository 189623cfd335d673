"""Calls of an export from a program."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import autotuner


def loaded(path: Path, **options: Any) -> Any:
    """The counters are of the process, whichever test has made the calls."""
    found = autotuner.load(path, **options)
    found.reset_counters()
    return found


def qkv(length: int = 32, heads: int = 2, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.randn(1, heads, length, 64, **options) for _ in range(3))
    return q, k, v


def close(found: Tensor, expected: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, atol=atol, rtol=1e-4)
