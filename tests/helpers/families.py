"""Variants and problems for the families in tests/kernels."""

import stat
from pathlib import Path

import pytest

from autotuner.forge import compiling
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.variant import Value, Variant

PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=8, seq_k=16, head_dim=64, dtype="float32")


def tiny(impl: str = "plain", **parameters: Value) -> Variant:
    """A variant of the family tiny; for IMPL=plain all parameters have a value."""
    values: dict[str, Value] = {"SIZE": 3}
    if impl == "plain":
        values |= {"MODE": "whole", "DEAD": 1}
    return Variant(family="tiny", backend="cpu", impl=impl, parameters={**values, **parameters})


def wrapper(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that does `body` (shell; "$@" are its arguments) and then what g++ does. Its runs are counted, in its
    own folder, where it may write."""
    path = folder / "cxx"
    path.write_text(f'#!/bin/sh\necho "$*" >> "{folder}/runs"\n{body}\nexec g++ "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(compiling, "WRITES", (*compiling.WRITES, str(folder)))
    return path


def runs(folder: Path) -> list[str]:
    """The arguments of each run of that compiler so far."""
    log = folder / "runs"
    return log.read_text().splitlines() if log.exists() else []
