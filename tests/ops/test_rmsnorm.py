"""The op rmsnorm by itself: its problem in words, its reference, its symmetries, and torch's own in its tolerances."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autotuner.ops import OPS

pytest.importorskip("autotuner.ops.rmsnorm")
from autotuner.ops.rmsnorm.problem import RmsNormProblem

DTYPES = ("float32", "bfloat16", "float16")
PROBLEMS = st.builds(
    RmsNormProblem,
    tokens=st.integers(1, 5000),
    hidden_size=st.integers(1, 5000),
    dtype=st.sampled_from(DTYPES),
    eps=st.sampled_from([1e-6, 1e-5, 1e-12, 0.25]),
)


@given(PROBLEMS)
def test_what_is_printed_can_be_typed(problem: RmsNormProblem) -> None:
    assert RmsNormProblem.parse(str(problem)) == problem


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("(1,2,3) float32", r"expected \(tokens,hidden_size\) dtype"),
        ("(1,2)", "the dtype is missing"),
        ("(1,2) float23", "did you mean float32"),
        ("(1,2) float32 eps=small", "expected a number such as 1e-05"),
        ("(1,2) float32 bias", "bias is not supported: there is a weight and no bias"),
        ("(0,2) float32", "greater than 0"),
        ("(1,2) float32 eps=0", "greater than 0"),
    ],
)
def test_what_is_not_served_is_refused_by_name(typed: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RmsNormProblem.parse(typed)


def test_the_reference_is_what_torch_computes_in_float64() -> None:
    tensors, problem = OPS["rmsnorm"].tensors(), RmsNormProblem.parse("(7,65) float32 eps=1e-3")
    x, w = tensors.inputs(problem, "eps", 3)
    (found,) = tensors.reference(problem, (x, w))
    expected = torch.nn.functional.rms_norm(x.double(), (65,), w.double(), 1e-3)
    assert torch.allclose(found, expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eps_is_half_of_what_is_under_the_root_where_it_matters(dtype: str) -> None:
    problem = RmsNormProblem.parse(f"(50,2048) {dtype} eps=1e-5")
    x, _ = OPS["rmsnorm"].tensors().inputs(problem, "eps", 1)
    assert float(x.double().square().mean()) == pytest.approx(1e-5, rel=0.05)


def test_a_symmetry_moves_the_reference_as_it_says() -> None:
    tensors, problem = OPS["rmsnorm"].tensors(), RmsNormProblem.parse("(6,33) float32")
    plain = tensors.inputs(problem, "randn", 1)
    symmetry = tensors.symmetry(problem, 5, 3, torch.device("cpu"))
    moved = tuple(torch.empty(3, *tensor.shape) for tensor in plain)
    symmetry.inputs(plain, moved)
    due = torch.empty(3, 6, 33, dtype=torch.float64)
    symmetry.outputs(tensors.reference(problem, plain), (due,))
    for index in range(3):
        assert torch.equal(tensors.reference(problem, (moved[0][index], moved[1][index]))[0], due[index])
    assert not torch.equal(moved[0][0], moved[0][1])
    assert not torch.equal(moved[0][0], plain[0])


ASKED = """
import os, torch
asked = []
torch.cuda.is_available = lambda: bool(asked.append("available"))
torch.cuda.device_count = lambda: asked.append("count") or 0
import {module}
assert not asked and not torch.cuda.is_initialized(), asked
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.slow
def test_what_is_imported_before_processes_are_forked_asks_for_no_device_and_starts_nothing() -> None:
    """A process could use no GPU otherwise."""
    (module,) = OPS["rmsnorm"].preload["cuda"]
    alone = subprocess.run([sys.executable, "-c", ASKED.format(module="torch")], capture_output=True, text=True)
    whole = subprocess.run([sys.executable, "-c", ASKED.format(module=module)], capture_output=True, text=True)
    assert whole.stdout == alone.stdout != "", whole.stderr
