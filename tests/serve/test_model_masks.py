"""A model of the examples where torch serves every call: a mask is made once for all layers, as without us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import autotuner
from tests.helpers.operations import operations
from tests.helpers.tables import built, problem, served, table, write

pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

MADE_WITH = ("aten.lt.Tensor", "aten.le.Tensor", "aten.arange.default", "aten.arange.start")
"""What masks are made with."""


@pytest.fixture
def serves_nothing(tmp_path: Path) -> Any:
    artifact = built(problem(32))
    return autotuner.load(write(table([served(artifact)], [(problem(32), artifact.digest)]), tmp_path / "best.json"))


def of_a_forward(layers: int, attention: str, ours: Any) -> int:
    from examples.gpt import gpt as example
    from examples.in_a_model import switch

    model, (tokens,) = example.gpt(layers=layers, heads=3), example.texts((20,), 1)
    switch(model, attention, ours, example.key_lengths)
    cache = example.cache_of(model, 64)
    ran = operations(lambda: example.step(model, tokens, cache))
    return sum(ran[name] for name in MADE_WITH)


def test_more_layers_make_no_more_masks(serves_nothing: Any) -> None:
    """A cache counts where it writes, in each layer, whoever computes attention."""
    ours, torchs = ([of_a_forward(layers, name, serves_nothing) for layers in (1, 3)] for name in ("autotuner", "sdpa"))
    assert serves_nothing.served == 0.0
    assert sum(serves_nothing.counters.values()) == 4
    assert ours[1] - ours[0] == torchs[1] - torchs[0]
    assert ours[0] > 0
