"""The CUDA implementation of rmsnorm without a GPU: its logic on the emulator, and every kind of point compiled."""

from typing import Any

import pytest
import torch

from autotuner.gate.cases import Case
from autotuner.gate.tolerance import compute_truth, judge
from autotuner.ops import OPS
from autotuner.values import config
from tests.emulator.emulator import emulate_rows
from tests.helpers import needs

pytest.importorskip("autotuner.ops.rmsnorm")
pytestmark = needs.emulator

SOURCE = config.kernels_dir() / "rmsnorm" / "lanes.cu"
PLAIN = {"LANES": 64, "ROWS": 1, "TURNS": 1, "CLUSTER": 1, "VEC_WIDTH": 4}
PLAIN |= {"HOLD": 0, "HOLD_W": 0, "STAGES": 1, "REGISTERS": 64, "STREAM": 0}
POINTS: list[tuple[dict[str, int], str, list[str]]] = [
    ({"LANES": 16, "ROWS": 4, "VEC_WIDTH": 8, "HOLD": 2}, "float16", ["(7,520)", "(1,64)", "(6,67)"]),
    (
        {"LANES": 32, "ROWS": 2, "TURNS": 3, "HOLD": 1, "HOLD_W": 1, "STAGES": 2, "STREAM": 1},
        "bfloat16",
        ["(11,260)", "(3,515)"],
    ),
    ({"LANES": 128, "HOLD": 2, "TURNS": 2}, "float32", ["(5,1500)", "(2,129)"]),
    ({"LANES": 128, "CLUSTER": 4, "TURNS": 2, "HOLD": 1, "VEC_WIDTH": 2}, "bfloat16", ["(5,2048)", "(2,1003)"]),
    ({"LANES": 64, "ROWS": 2, "TURNS": 2, "STREAM": 1}, "float16", ["(9,1024)", "(4,77)"]),
]


def name(value: Any) -> str:
    return " ".join(f"{key}={each}" for key, each in value.items()) if isinstance(value, dict) else ""


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("parameters", "dtype", "shapes"), POINTS, ids=name)
def test_rows_are_right_under_every_schedule(parameters: dict[str, int], dtype: str, shapes: list[str]) -> None:
    """Compared with the reference by the gate's rules, and from schedule to schedule bit by bit."""
    for shape in shapes:
        problem = OPS["rmsnorm"].problem.parse(f"{shape} {dtype}")
        for distribution in ("magnitudes", "giant"):
            truth = compute_truth(Case(name=str(problem), problem=problem, distribution=distribution), 1)
            x, w = truth.inputs
            first = emulate_rows(SOURCE, {**PLAIN, **parameters}, problem, x, w, 0)
            assert judge(first, truth.outputs[0]).failed_rule is None, (shape, distribution)
            for seed in (1, 2, 3):
                again = emulate_rows(SOURCE, {**PLAIN, **parameters}, problem, x, w, seed)
                assert torch.equal(first, again), (shape, distribution, seed)
