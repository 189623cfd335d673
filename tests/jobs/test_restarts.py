"""A worker whose server is restarted while its study is new; benchmarks.driver.restarts does it 20 times."""

import random
from pathlib import Path

import pytest

from benchmarks.driver import restarted
from tests.helpers.postgresql import Server

pytestmark = [pytest.mark.slow, pytest.mark.timed, pytest.mark.sampled(1, of="struck workers")]

TRIALS = 25
"""A sweep of this length does not end before the second restart, on a quick machine either."""


def test_a_worker_outlives_restarts_of_its_server_on_a_new_database(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarted, "FIRST_S", 2.0)
    for name in ("BETWEEN_S", "GONE_S"):
        monkeypatch.setattr(restarted, name, (0.5, 2.0))
    found = restarted.restarted_sweep(tmp_path, server, 2, TRIALS, random.Random())
    assert found.restarts == 2
    assert found.judged == TRIALS
