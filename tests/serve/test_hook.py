"""Models of transformers that are hooked by one call, beside the same models with their own attention."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

import autotuner
from autotuner.values.errors import InputError
from tests.helpers.tables import of_defaults

pytestmark = [
    pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Llama", "Mistral", "Gemma 2", "Qwen 3", "gpt-oss", "BERT"])
def test_a_hooked_model_says_what_it_said(name: str) -> None:
    from benchmarks.inference import hooked

    for row in hooked.compared(name):
        assert row["difference"] <= 1e-5 * row["largest"], row
        assert row["calls"] == row["variants_can_serve"] + sum(row["torchs"].values()), row
        if row["run"].startswith("forward"):
            assert set(row["torchs"]) <= {"attn_mask"}
            assert row["torchs"].get("attn_mask", 0) == (2 if row["run"].endswith("left") else 0), row


@pytest.fixture
def served(tmp_path: Path) -> tuple[Any, Any]:
    """A model, and variants that serve it unpadded and padded on the right."""
    from benchmarks.inference import hooked

    model = hooked.model_of("Llama")
    autotuner.use(model)
    with autotuner.record() as calls:
        for padding in ("none", "right"):
            hooked.answered(model, padding)
    assert not calls.refused
    ours = of_defaults(calls.problems, tmp_path / "best.json")
    return model, ours


@pytest.mark.slow
def test_padding_on_the_left_is_right_where_variants_serve(served: tuple[Any, Any]) -> None:
    """The lengths of a batch padded on the left are not how many tokens it has: variants must not be asked."""
    from benchmarks.inference import hooked

    model, ours = served
    for padding, share in (("none", 1.0), ("right", 1.0), ("left", 0.0), ("right", 1.0), ("left", 0.0)):
        model.set_attn_implementation("sdpa")
        expected = hooked.answered(model, padding)
        assert autotuner.use(model, ours) is ours
        ours.reset_counters()
        torch.testing.assert_close(hooked.answered(model, padding), expected, atol=1e-4, rtol=1e-4)
        assert ours.served == share, (padding, ours.counters)


@pytest.mark.slow
def test_an_encoder_under_the_compiler_keeps_its_promise_or_raises() -> None:
    from benchmarks.inference import hooked

    model = hooked.model_of("BERT")

    def forward(ids: Tensor, mask: Tensor) -> Tensor:
        found: Tensor = model(input_ids=ids, attention_mask=mask)[0]
        return found

    batches = {padding: tuple(hooked.batch_of(padding).values()) for padding in ("right", "left")}
    with torch.no_grad():
        expected = {padding: forward(*batch) for padding, batch in batches.items()}
        autotuner.use(model)  # nothing is promised: torch has the mask
        call = torch.compile(forward, backend="aot_eager", fullgraph=True)
        for padding, batch in batches.items():
            seen = batch[1].bool()
            torch.testing.assert_close(call(*batch)[seen], expected[padding][seen], atol=1e-4, rtol=1e-4)
        autotuner.use(model, padding="right")
        call = torch.compile(forward, backend="aot_eager", fullgraph=True)
        seen = batches["right"][1].bool()
        torch.testing.assert_close(call(*batches["right"])[seen], expected["right"][seen], atol=1e-4, rtol=1e-4)
        with pytest.raises(RuntimeError, match="not padded on the right, as was promised"):
            call(*batches["left"])


def test_what_cannot_be_hooked_is_said() -> None:
    with pytest.raises(InputError, match="Linear is no model of transformers"):
        autotuner.use(torch.nn.Linear(2, 2))
    from benchmarks.inference import hooked

    other: Any
    for other in (5, Mock(**{"table.op": "rmsnorm"}), autotuner.function("rms_norm")):
        with pytest.raises(InputError, match="of an export of sdpa"):
            autotuner.use(hooked.model_of("Llama"), other)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_a_position_bias_is_added_beside_what_hides_keys(causal: bool, masked: bool) -> None:
    from torch.nn.functional import scaled_dot_product_attention

    from autotuner.ops.sdpa.hook import computes

    module = torch.nn.Module()
    module.is_causal = causal  # type: ignore[assignment]
    q, k, v = (torch.randn(2, 4, 16, 64) for _ in range(3))
    bias, shown = torch.randn(1, 4, 16, 16), torch.rand(2, 1, 16, 16) < 0.7
    shown[..., 0] = True
    seen = shown if masked else torch.ones(16, 16).tril().bool() if causal else torch.ones(16, 16).bool()
    expected = scaled_dot_product_attention(q, k, v, bias.expand(2, -1, -1, -1).masked_fill(~seen, -torch.inf))
    given = (module, q, k, v, shown if masked else None)
    found, _ = computes(autotuner.function("sdpa"))(*given, scaling=0.125, position_bias=bias)
    torch.testing.assert_close(found, expected.transpose(1, 2), atol=1e-5, rtol=1e-5)
