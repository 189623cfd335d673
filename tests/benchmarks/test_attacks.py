"""The benchmark of attacks: what there is to judge, and one attack through the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotuner.race.statistics import share_interval
from benchmarks.attacks import judged
from benchmarks.attacks.catalogue import copy_families, groups


def test_there_are_attacks_enough_and_no_name_is_there_twice() -> None:
    for found, least in ((groups("cpu"), judged.LEAST), (groups("cuda"), 40)):
        names = [(group.name, each.name) for group in found for each in group.attacks]
        assert len(names) == len(set(names)) >= least


def test_a_share_has_its_exact_interval() -> None:
    assert share_interval(0, 60)[1] == pytest.approx(1 - 0.025 ** (1 / 60))
    assert share_interval(60, 60)[0] == pytest.approx(0.025 ** (1 / 60))
    assert share_interval(0, 0) == (0.0, 1.0)


def test_an_attack_goes_through_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "FINALS_MINUTES", 0.1)  # of the honest variant beside it
    copy_families(tmp_path)
    [group] = judged.wanted("cpu", ["clock_under_another_name"])
    [found] = judged.judged_together(judged.Commands(tmp_path), group, None)
    assert found["judged"]
    assert (found["verdict"], found["code"]) == ("build_failed", "G0.conduct"), found
    assert not any(found[gain] for gain in judged.GAINS)
