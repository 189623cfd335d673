"""Programs whose exit code says that something holds, where they have measured nothing of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import holds
from benchmarks.gate import emulated, mutants, op_mutants, view_mutants
from benchmarks.search import replay, transfer
from benchmarks.timing import aa_sweeps, simulated_truth
from tests.emulator.emulator import cuda_include

Main = Callable[[], object]


def test_nothing_and_less_than_was_asked_for_do_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    holds.measured(["a", "b"], "mutant", ["b"])
    for found, asked, told in (([], [], "no mutant was measured"), (["a"], ["a", "c"], "mutant c: there is none")):
        with pytest.raises(SystemExit):
            holds.measured(found, "mutant", asked)
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (view_mutants.main, ["no_such_view", "--json", "OUT"]),
        (op_mutants.main, ["OUT", "--op", "rmsnorm", "--name", "no_such_mutant"]),
        (mutants.main, ["OUT", "--only", "right", "--dtype", "nonsense", "--hold"]),
        (aa_sweeps.main, ["cpu", "--sweeps", "0", "--json", "OUT"]),
        (simulated_truth.main, ["--sweeps", "0", "--json", "OUT"]),
        pytest.param(
            emulated.main,
            ["--name", "no_such_mutant", "--json", "OUT"],
            marks=pytest.mark.skipif(cuda_include() is None, reason="needs the headers of CUDA"),
        ),
    ],
    ids=["views", "ops", "mutants", "nobody", "truth", "emulated"],
)
def test_a_program_that_has_nothing_to_measure_fails_and_writes_over_nothing(
    main: Main, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text('{"cpu": {"right": 1}}')
    monkeypatch.setattr(sys, "argv", ["program", *(str(kept) if word == "OUT" else word for word in words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert kept.read_text() == '{"cpu": {"right": 1}}'


def test_truth_that_was_not_counted_does_not_hold() -> None:
    whole = {name: [19, 20] for name in ("covered", "leader_covered", "5_%_slower_removed")} | {
        "crowned_wrongly": [0, 20]
    }
    equal = {"regime": "ordinary", "one_is_2_percent_better": False, "counts": whole}
    better = {**equal, "one_is_2_percent_better": True, "counts": {**whole, "found": [20, 20]}}
    assert simulated_truth.unmet([equal, better]) == []
    assert simulated_truth.unmet([{**better, "counts": whole}]) == ["ordinary: found 0 of 0"]
    assert simulated_truth.unmet([{**equal, "counts": {**whole, "covered": [0, 0]}}]) == ["ordinary: covered 0 of 0"]


def test_a_sampler_that_the_kept_result_lacks_is_not_passed_over(tmp_path: Path) -> None:
    kept = tmp_path / "replay.json"
    mean = {"sampler": "evolution", "in_flight": 1, "time": {"p": 0.9, "low": 0.89, "high": 0.91}}
    kept.write_text(json.dumps({"means": [mean]}))
    assert replay.lower(kept, [mean]) == []
    assert replay.lower(kept, [{**mean, "in_flight": 2}]) == ["evolution with 2 in flight is not in the kept result"]


@pytest.mark.parametrize(("ratio", "unaided", "unmet"), [(0.3, 0.1, 0), (0.45, 0.1, 1), (0.55, 0.1, 3), (0.3, 0.3, 1)])
def test_what_must_hold_of_related_studies_is_told_where_it_does_not(ratio: float, unaided: float, unmet: int) -> None:
    means = {"ratio": {"ratio": ratio}, "ratio_to_unaided": {"ratio": unaided}}
    rows = [{"source": source, "target": "x", "mean_evaluations": means} for source in ("a", "b")]
    assert len(transfer.unmet(rows)) == unmet
