"""The baselines as references: what they are asked, and what they are not."""

from __future__ import annotations

import math

import torch

from autotuner.gate.references import answers, names
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs, reference


def test_a_baseline_is_not_asked_about_what_lies_past_a_length() -> None:
    """It is NaN in some cases, and torch multiplies it by zero."""
    problem = SdpaProblem(batch=3, heads=2, seq_q=7, seq_k=20, head_dim=64, dtype="float32", key_lengths=True)
    given = inputs(problem, "ragged", 0)
    assert math.isnan(sum(float(each.sum()) for each in given[1:3]))
    (expected,) = reference(problem, *given)
    found = dict(answers(problem, given, names(problem, "cpu")))
    assert found
    for answer in found.values():
        assert answer is not None
        torch.testing.assert_close(answer[0].double(), expected, atol=1e-5, rtol=1e-5)
