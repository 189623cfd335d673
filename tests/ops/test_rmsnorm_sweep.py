"""rmsnorm through the whole line: points of its spaces pass the gate, a sweep ends in an export, and what follows it
speaks of it; for CUDA, which needs a device, points are compiled."""

import json
import random
from contextlib import closing
from pathlib import Path

import pytest
import torch

from autotuner.ops import OPS, ahead
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.errors import ToolchainError
from autotuner.values.outcome import Artifact
from tests.helpers.command_line import autotuner
from tests.helpers.files import text
from tests.helpers.judging import judged
from tests.mutants.expectations import SEEDS

pytest.importorskip("autotuner.ops.rmsnorm")
SPACE = text("short_rows.toml")


def run(folder: Path, *arguments: str) -> str:
    """What the command prints."""
    done = autotuner(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(1, of="whole sweeps")
def test_a_sweep_ends_in_an_export_and_its_results_can_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(SPACE)
    run(tmp_path, "tune", "short.toml", "--trials", "2", "--finals-minutes", "0.5", "--out", "best.json")
    best = json.loads((tmp_path / "best.json").read_text())
    problem = {"op": "rmsnorm", "tokens": 32, "hidden_size": 512, "dtype": "float32", "eps": 1e-6}
    assert [each["problem"] for each in best["problems"]] == [problem]
    assert {invariant.code for invariant in OPS["rmsnorm"].invariants} <= {*best["gate"]["passed"]}
    assert "rms_norm" in run(tmp_path, "leaderboard")
    assert run(tmp_path, "explain")
    assert "G3.scale_w" in run(tmp_path, "gate", "0")


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(1, of="compiled baselines")
def test_a_variant_is_timed_beside_the_compiled_baseline_in_the_cage() -> None:
    problem = OPS["rmsnorm"].problem.parse("(64,4096) float32")
    OPS["rmsnorm"].tensors().BASELINES["compiled"].forward(problem)(torch.ones(64, 4096), torch.ones(4096))  # makes it
    here = Workbench(load_space("rmsnorm_cpu", problems=[str(problem)]))
    conditions = here.conditions.model_copy(
        update={"baselines": ("compiled",), "min_blocks": 2, "max_blocks": 2, "seeds": SEEDS}
    )
    with closing(here.executor()) as executor:
        outcome = judged(executor, here.variant(here.space.default_index), conditions, soak="never")
    assert outcome.fault is None, outcome.fault
    assert outcome.measurement is not None


def require_right(space: str, dtype: str, part: int) -> None:
    """Two random points of the space pass the gate."""
    here = Workbench(load_space(space, problems=[f"(37,1024) {dtype}"]))
    points = random.Random(f"{dtype} {part}").sample(range(len(here.space)), 2)
    conditions = here.conditions.model_copy(
        update={"baselines": ("rms_norm",), "min_blocks": 2, "max_blocks": 2, "cache": "warm", "seeds": SEEDS}
    )
    with closing(here.executor()) as executor:
        for point in points:
            outcome = judged(executor, here.variant(point), conditions, soak="never")
            assert outcome.fault is None, (outcome.variant, outcome.fault)


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("part", range(4))
def test_random_points_pass_the_gate(dtype: str, part: int) -> None:
    require_right("rmsnorm_cpu", dtype, part)


@pytest.mark.gpu
@pytest.mark.timed
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_random_points_pass_the_gate_on_a_gpu(dtype: str) -> None:
    require_right("rmsnorm_cuda", dtype, part=0)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_random_points_for_cuda_compile(arch: str, dtype: str) -> None:
    if config.nvcc() is None:
        pytest.skip("needs nvcc")
    try:
        here = Workbench(load_space("rmsnorm_cuda", problems=[f"(128,4096) {dtype}"]), arch)
    except ToolchainError as error:
        pytest.skip(str(error))
    points = random.Random(f"{arch} {dtype}").sample(range(len(here.space)), 2)
    for point, built in zip(points, here.build_all(points), strict=True):
        assert isinstance(built, Artifact), (here.space.point(point), built)
        assert built.resources["registers"] > 0


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(1, of="compiled baselines")
def test_torchs_compiler_begins_early_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNER_CACHE", str(tmp_path))
    problem = OPS["rmsnorm"].problem.parse("(64,512) float32")
    ahead.begin("cpu", [problem])
    run = OPS["rmsnorm"].tensors().BASELINES["compiled"].forward(problem)
    monkeypatch.setattr(ahead, "latest", 0.0)
    with pytest.raises(RuntimeError, match=ahead.LATE):
        run(torch.ones(64, 512), torch.ones(512))
    for process in ahead._begun:
        process.wait()
    assert len(list((tmp_path / "compiled").iterdir())) == 1, "it was not made"
    (found,) = run(torch.ones(64, 512), torch.ones(512))
    torch.testing.assert_close(found, torch.ones(64, 512))
    ahead.begin("cpu", [problem])
    assert not ahead._begun, "it is made again"
