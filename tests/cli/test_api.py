"""The Python interface, as a script uses it."""

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import autotuner
from autotuner.values.errors import InputError
from tests.cli.messages import forget_trials
from tests.helpers.command_line import lay_out
from tests.helpers.refusing import refused
from tests.helpers.stores import sample_store

SCRIPT = """
import autotuner

print("started")
heard = []
study = autotuner.tune(
    ["(1,2,33x70,64) float32"], "space.toml", trials=4, finals=False, patience_minutes=0.5, callbacks=[heard.append]
)
trials = study.rows()
assert len(trials) == 4
assert study.trials().set_index("number").loc[study.best().entry.number, "MUTANT"] == "none"
assert {trial["MUTANT"] for trial in trials} == {"none", "o_not_rescaled", "k_and_v_swapped", "last_row_unwritten"}
rejected = [trial for trial in trials if trial["verdict"] == "incorrect"]
assert len(rejected) == 3
assert all(trial["speedup"] is None and trial["fault"] for trial in rejected)
best = study.best()
assert best.entry.variant.point["MUTANT"] == "none"
assert study.leaderboard()[0].number == best.entry.number
assert study.summary().judged == 4
assert study.trial(best.entry.number).outcome.verdict == "measured"
assert study.export("mine.json").exists()
assert study.beliefs()
assert autotuner.open_store().study(study.name[:8]) == study
print(len(heard), "events")
"""


@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.slow
@pytest.mark.timed
def test_a_script_without_a_main_guard_tunes(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("started") == 1
    assert "events" in done.stdout
    assert json.loads((tmp_path / "mine.json").read_text())["problems"][0]["problem"]["seq_k"] == 70


SETS = """
from pathlib import Path

import autotuner

with autotuner.record() as calls:
    import torch

    q = torch.zeros(1, 2, 33, 64)
    for causal in (False, True):
        torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=causal)
study = autotuner.tune(calls.write(), "space.toml", trials=1, finals=False, patience_minutes=0.5)
(other,) = study.beside
assert {study.summary().name, other.summary().name} == {each.name for each in autotuner.open_store().studies()}
assert study.export("mine.json").exists()
"""


@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.slow
@pytest.mark.timed
def test_problems_that_no_variant_serves_together_are_a_study_each(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "script.py").write_text(SETS)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_tuned_is_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no sampler 'magic'"):
        autotuner.tune("(1,2,33,64) float32", sampler="magic")
    assert not list(tmp_path.iterdir()), "no store is made"
    with pytest.raises(InputError, match="no op 'conv'"):
        autotuner.tune_like("conv")
    with pytest.raises(AttributeError):
        autotuner.nothing  # noqa: B018


def test_a_sweep_that_measured_nothing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = sample_store(tmp_path / "studies.db")
    forget_trials(tmp_path / "studies.db")
    monkeypatch.setattr("autotuner.api.run_here", lambda *_: name)
    with pytest.warns(UserWarning, match=f"^{name}: no variant was judged yet; `autotuner tune` goes on.$"):
        assert autotuner.tune("(1,2,33,64) float32", store=tmp_path / "studies.db").best() is None


Q, K = torch.zeros(2, 3, 5, 64), torch.zeros(2, 3, 9, 64)


LENGTHS = torch.tensor([9, 2], dtype=torch.int32)


@pytest.mark.parametrize(
    ("inputs", "options", "said"),
    [
        ((Q, K), {}, "sdpa: missing a required argument: 'value'"),
        ((Q, K, K), {"query": Q}, "sdpa: multiple values for argument 'query'"),
        ((Q, K, K), {"is_causal": True, "corner": "bottom"}, "sdpa: corner is 'bottom', expected top_left or bottom_"),
        ((Q, K, K), {"key_lengths": [9, 2]}, r"sdpa: key_lengths: found \[9, 2\] \(a list\), expected a tensor"),
        ((Q, K, K), {"key_lengths": LENGTHS.long()}, r"sdpa: key_lengths is \(2,\) of int64, expected \(2,\) of int32"),
        ((Q.int(), K.int(), K.int()), {}, "sdpa: dtype: found 'int32', expected "),
    ],
)
def test_a_call_that_cannot_be_is_refused_in_one_line(
    inputs: tuple[torch.Tensor, ...], options: dict[str, object], said: str
) -> None:
    with refused(InputError, f"^{said}"):
        autotuner.tune_like("sdpa", *inputs, **options)


def test_no_room_takes_the_place_of_a_name_of_the_interface() -> None:
    """A package that is imported becomes an attribute of the one it lies in."""
    rooms = {each.name for each in pkgutil.iter_modules(autotuner.__path__)}
    assert not rooms & set(autotuner.__all__)
