"""The op rmsnorm by itself: its problem in words, its reference, its symmetries, and torch's own in its tolerances."""

import subprocess
import sys

import pytest

from autotuner.ops import OPS, ahead

pytest.importorskip("autotuner.ops.rmsnorm")
from autotuner.ops.rmsnorm import RmsNormProblem

DTYPES = ("float32", "bfloat16", "float16")


@pytest.mark.parametrize("dtype", DTYPES)
def test_eps_is_half_of_what_is_under_the_root_where_it_matters(dtype: str) -> None:
    problem = RmsNormProblem.parse(f"(50,2048) {dtype} eps=1e-5")
    x, _ = OPS["rmsnorm"].tensors().inputs(problem, "eps", 1)
    assert float(x.double().square().mean()) == pytest.approx(1e-5, rel=0.05)


ASKED = """
import os, torch
asked = []
torch.cuda.is_available = lambda: bool(asked.append("available"))
torch.cuda.device_count = lambda: asked.append("count") or 0
alone = len(os.listdir("/proc/self/task"))
import {module}
assert not asked and not torch.cuda.is_initialized(), asked
assert len(os.listdir("/proc/self/task")) == alone
"""


@pytest.mark.slow
def test_what_is_imported_before_processes_are_forked_asks_for_no_device_and_starts_nothing() -> None:
    """A process could use no GPU otherwise."""
    (module,) = ahead.imports("cuda", [OPS["rmsnorm"].problem.parse("(8,64) float16")])
    done = subprocess.run([sys.executable, "-c", ASKED.format(module=module)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
