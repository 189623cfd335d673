"""The dual reference: torch's SDPA backends, pinned one at a time, against float64 on the gate's own cases."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from autotuner.gate.cases import Case, Matrix
from autotuner.gate.tolerance import Truths, judge
from autotuner.ops.sdpa.attention import sdpa
from autotuner.ops.sdpa.problem import Problem
from autotuner.values.gate_report import ReferenceCheck
from autotuner.values.outcome import Say

USUAL_TILES = (64, 64)
"""No variant is being judged: lengths around a usual tile stand for those around its own."""


def versions() -> dict[str, str]:
    """The versions that the answers of torch's backends depend on."""
    found = {"torch": str(torch.__version__)}
    if torch.cuda.is_available():
        found |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    return found


def answers(case: Case, tensors: Sequence[Tensor], backends: Sequence[str]) -> Iterator[tuple[str, Tensor | None]]:
    """What each backend answers; None where it does not take the case."""
    q, k, v = tensors
    for backend in backends:
        try:
            with warnings.catch_warnings(action="ignore"):  # torch says at length why a backend does not take it
                yield backend, sdpa(case.problem, backend)(q, k, v)
        except RuntimeError:
            yield backend, None


def reference_checks(
    like: Problem, backends: Sequence[str], truths: Truths, seed: int, say: Say
) -> tuple[ReferenceCheck, ...]:
    """Every backend on every case of the matrix for this dtype, head_dim and mask."""
    matrix = Matrix(like)
    checks: list[ReferenceCheck] = []
    for case in (*matrix.quick(), *matrix.full(USUAL_TILES)):
        say(f"reference case {case.name}")
        expected = truths(case, seed)
        for backend, answer in answers(case, expected[:3], backends):
            errors = None if answer is None else judge(answer, expected)
            checks.append(ReferenceCheck(backend=backend, case=case.name, errors=errors))
    return tuple(checks)
