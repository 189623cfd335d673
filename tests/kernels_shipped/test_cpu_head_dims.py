"""The shipped CPU kernels at head dimensions that no space has, in each element type: views, groups, log-sum-exps; and
in windows."""

import pytest
import torch

from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.cases import Case
from autotuner.gate.tolerance import compute_truth, judge
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact

POINTS = [
    pytest.param(impl, f"(1,4:2,70x91,{dim}) {dtype} {mask} bshd lse", id=f"{impl}-{dim}-{dtype}")
    for place, dim in enumerate((80, 96, 192, 256))
    for dtype in ("float32", "float16", "bfloat16")
    for impl, mask in zip(("scalar", "simd"), (("full", "causal"), ("causal", "full"))[place % 2], strict=True)
]
WINDOWS = [
    pytest.param(impl, f"(1,4:2,{sizes},64) {dtype} {mask} lse", id=f"{impl}-{sizes}-{mask}")
    for sizes, dtype, mask in (
        ("300", "float32", "causal window=100"),
        ("170x203", "bfloat16", "full window=70,20 bottom_right lengths"),
        ("203x60", "float16", "causal window=20 bshd"),
        ("113x203", "float32", "causal window=70 softcap=20"),
        ("70x203", "bfloat16", "causal bottom_right lengths sinks=float32"),
        ("203x60", "float16", "causal window=20 sinks bshd"),
        ("70x203", "bfloat16", "causal bottom_right lengths bias=alibi"),
        ("113x203", "float32", "full bias=full"),
        ("70x91", "float16", "causal softcap=20 bias=heads sinks bshd"),
    )
    for impl in ("scalar", "simd")
]


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize("distribution", ["gaps", "huge"])
@pytest.mark.parametrize(("impl", "text"), POINTS)
def test_outputs_are_within_tolerance(impl: str, text: str, distribution: str) -> None:
    require_right(impl, text, distribution)


@pytest.mark.parametrize(("impl", "text"), WINDOWS)
def test_windows_are_within_tolerance(impl: str, text: str) -> None:
    with_numbers = "bias=full" in text or "bias=heads" in text
    require_right(impl, text, "hiding" if with_numbers else "far_sinks" if "sinks" in text else "edges")


def require_right(impl: str, text: str, distribution: str) -> None:
    workbench = Workbench(load_space("sdpa_cpu", problems=[text]))
    index = workbench.space.index_of(workbench.space.completed({"IMPL": impl}))
    assert index is not None
    (built,) = workbench.build_all([index])
    assert isinstance(built, Artifact), built
    problem = SdpaProblem.parse(text)
    truth = compute_truth(Case(name=text, problem=problem, distribution=distribution), 1, "cpu")
    outputs = op_of(problem).tensors().outputs(problem, truth.inputs)
    for each in outputs:
        each.fill_(torch.nan)
    variant = LoadedVariant(built)
    wanted = variant.workspace_bytes(problem)
    workspace = torch.empty(wanted + 64, dtype=torch.uint8)
    assert variant.prepared(problem, truth.inputs, outputs, -(-workspace.data_ptr() // 64) * 64, wanted)(0) == 0
    for found, expected in zip(outputs, truth.outputs, strict=True):
        errors = judge(found, expected)
        assert errors.failed_rule is None, (text, errors)
