"""The example of examples/encoder with a small model: recorded, then served by a variant."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import autotuner
from autotuner.ops.sdpa.problem import SdpaProblem
from tests.helpers.tables import ROOT, built, served, table, write

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("encoder", ROOT / "examples" / "encoder" / "encoder.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_encoder_is_served_but_for_its_padded_batches(tmp_path: Path, example: ModuleType) -> None:
    model, inputs = example.encoder(layers=2, heads=2), example.batches((16, 24))
    with autotuner.record() as calls:
        for batch in inputs:
            example.forward(model, batch)
    assert {str(problem): count for problem, count in calls.problems.items()} == {
        "(2,2,16,64) float32 full bshd": 2,
        "(2,2,24,64) float32 full bshd": 2,
    }
    assert sum(calls.refused.values()) == 2
    recorded = [problem for problem in calls.problems if isinstance(problem, SdpaProblem)]
    artifact = built(recorded[0])
    found = table([served(artifact)], [(problem, artifact.digest) for problem in recorded])
    ours = autotuner.load(write(found, tmp_path / "best.json"))
    result = example.compare(model, ours, inputs, rounds=1)
    assert result["served"] == pytest.approx(4 / 6)
    assert result["counters"][str(artifact.variant)] == 4
    assert result["largest_difference"] < 1e-4
