"""The examples with small models: recorded, then served by variants, eager and compiled."""

from importlib.util import find_spec
from pathlib import Path

import pytest

import autotuner
from tests.helpers.tables import of_defaults

pytestmark = [
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),  # it takes a second to import
    pytest.mark.slow,
    pytest.mark.sampled(1, of="whole sweeps"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's compiler imports what torch calls deprecated
]


def test_an_encoder_is_served_with_its_padded_batches(tmp_path: Path) -> None:
    from examples.encoder import encoder as example
    from examples.in_a_model import use

    model, inputs = example.encoder(layers=2, heads=2), example.batches((16, 24))
    use(model, autotuner.function("sdpa"), example.key_lengths)
    with autotuner.record() as calls:
        for batch in inputs:
            example.forward(model, batch)
    assert {str(problem): count for problem, count in calls.problems.items()} == {
        "(2,2,16,64) float32 full bshd": 2,
        "(2,2,24,64) float32 full bshd": 2,
        "(2,2,24,64) float32 full lengths bshd": 2,
    }
    assert not calls.refused
    result = example.compare(model, of_defaults(calls.problems, tmp_path / "best.json"), inputs, rounds=1)
    for way in ("eager", "compiled"):
        assert result[way]["served"] == 1.0
        assert result[way]["largest_difference"] < 1e-4
    full, longer, _ = result["compiled"]["graphs_after_each_batch"]
    assert full == longer, "another length was compiled anew"


def test_a_gpt_is_served_from_prompt_to_last_token(tmp_path: Path) -> None:
    from examples.gpt import gpt as example
    from examples.in_a_model import use

    model, inputs = example.gpt(layers=2, heads=3), example.texts((20, 37, 29), 5)
    use(model, autotuner.function("sdpa"), example.key_lengths)
    cache = example.cache_of(model, 64)
    with autotuner.record() as calls:
        for tokens in inputs:
            example.generate(model, tokens, 5, cache)
    assert {str(problem): count for problem, count in calls.problems.items()} == {
        "(1,3:1,1x64,64) float32 causal bottom_right lengths": 24,
        "(1,3:1,20x64,64) float32 causal bottom_right lengths bshd": 2,
        "(1,3:1,37x64,64) float32 causal bottom_right lengths bshd": 2,
        "(1,3:1,29x64,64) float32 causal bottom_right lengths bshd": 2,
    }
    ours = of_defaults(calls.problems, tmp_path / "best.json")
    result = example.compare(model, ours, inputs, 5, 64, rounds=1)
    for way in ("eager", "compiled"):
        assert result[way]["served"] == 1.0
        assert result[way]["largest_difference"] < 1e-4
    graphs = result["compiled"]["graphs_after_each_prompt"]
    assert len(set(graphs)) == 1, "another length was compiled anew"
