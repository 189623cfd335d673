"""From a file of recorded problems to an export that a program loads."""

import json
from pathlib import Path

import jsonschema
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import autotuner as package
from tests.helpers.command_line import SPACE, autotuner, lay_out, one_line

pytestmark = pytest.mark.timed
SCHEMA = json.loads((Path(__file__).parent.parent.parent / "docs" / "best.schema.json").read_text())


def attend(lengths: tuple[int, ...]) -> None:
    for length in lengths:
        q = torch.zeros(1, 2, length, 64)
        scaled_dot_product_attention(q, q, q)
        scaled_dot_product_attention(q, q, q, is_causal=length == 16)


@pytest.mark.sampled(2, of="whole sweeps")
@pytest.mark.slow
def test_recorded_tuned_exported_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path)
    (tmp_path / "space.toml").write_text(SPACE)
    with package.record() as calls:
        attend((16, 33))
    calls.write(tmp_path / "problems.toml")
    budget = ("--trials", "1", "--finals-minutes", "0.05", "--cold")
    done = autotuner(tmp_path, "tune", "space.toml", "--problems", "problems.toml", *budget)
    assert done.returncode == 0, done.stderr
    assert "2 studies, one for each set of problems that one variant can serve" in done.stdout
    document = json.loads((tmp_path / "best.json").read_text())
    jsonschema.validate(document, SCHEMA)
    problems = [entry["problem"] for entry in document["table"]["entries"]]
    assert sorted((each["seq_q"], each["causal"]) for each in problems) == [(16, False), (16, True), (33, False)]

    studies = [each["name"] for each in json.loads(autotuner(tmp_path, "status", "--json").stdout)]
    for study in studies:
        tried_between(tmp_path, study)
    named = autotuner(tmp_path, "export", studies[0], "--with", studies[1], "--loss", "0", "--out", "both.json")
    assert named.returncode == 0, named.stderr
    assert "The table serves 3 problems" in named.stdout
    one_line(autotuner(tmp_path, "export", studies[0], "--loss", "2"), "--loss")

    ours = package.load(tmp_path / "both.json")
    q, k, v = (torch.randn(1, 2, 33, 64) for _ in range(3))
    torch.testing.assert_close(ours(q, k, v), scaled_dot_product_attention(q, k, v), atol=1e-5, rtol=1e-4)
    assert sum(ours.counters.values()) == 1


def tried_between(folder: Path, study: str) -> None:
    """Of a study with two lengths the variant is tried between them; of one with a single length nothing can be."""
    done = autotuner(folder, "validate", study, "--minutes", "0.01")
    if done.returncode:
        one_line(done)
        assert any(why in done.stderr for why in ("such as --lengths 128-2048", "no variant to try"))
        return
    assert "An export of this study serves beside the tuned problems:" in done.stdout
    table = json.loads(autotuner(folder, "export", study, "--json").stdout)["table"]
    served = [each["problem"] for one in table["ranges"] for each in one["validated"]]
    tried = {each["seq_q"] for each in [*served, *(each["problem"] for each in table["left_out"])]}
    assert tried
    assert all(16 < each < 33 for each in tried)
