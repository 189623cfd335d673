"""The benchmark of attacks: what there is to judge."""

import pytest

from benchmarks.attacks import judged
from benchmarks.attacks.catalogue import groups


def test_there_are_attacks_enough_and_no_name_is_there_twice() -> None:
    for found, least in ((groups("cpu"), judged.LEAST), (groups("cuda"), 40)):
        names = [(group.name, each.name) for group in found for each in group.attacks]
        assert len(names) == len(set(names)) >= least


def test_a_share_has_its_exact_interval() -> None:
    assert judged.share_interval(0, 60)[1] == pytest.approx(1 - 0.025 ** (1 / 60))
    assert judged.share_interval(60, 60)[0] == pytest.approx(0.025 ** (1 / 60))
    assert judged.share_interval(0, 0) == (0.0, 1.0)
