"""kill -9 amid the finals, then the same command again: nothing is lost, nothing is judged twice. What kills at random
moments of a search cost, benchmarks/driver/kills.py shows."""

import random
from pathlib import Path

import pytest

from autotuner.race.confirm import PROCESSES
from autotuner.store import Store
from autotuner.tuning.finals import standings
from autotuner.values.verdict import Verdict
from tests.helpers.command_line import PATIENCE, SCRIPT, autotuner, lay_out
from tests.helpers.kills import MARK, kill, recorded, skip_in_vain
from tests.helpers.processes import wait_for_the_rest
from tests.helpers.stores import all_finals

pytestmark = pytest.mark.timed


@pytest.mark.slow
@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.timeout(400)
def test_kills_amid_the_finals_lose_nothing(tmp_path: Path) -> None:
    lay_out(tmp_path)
    command = [str(SCRIPT), "tune", "space.toml", "--trials", "1", "--finals-minutes", "2", *PATIENCE]
    draw = random.Random(21)
    raced = 0
    """Heats that are in the store at least."""
    before: dict[int, tuple[str, str]] = {}
    for after, heats in (("finals: process 2 of", 2), ("finals: judging", 4)):
        kill(command, tmp_path, after, draw.uniform(0.0, 1.0))
        raced += heats
        with Store.open(str(tmp_path / "studies.db"), create=False) as store:
            (study,) = standings.studies(store)
            found = recorded(store)
            assert [verdict for _, verdict in found.values() if Verdict(verdict).judges] == ["measured"]
            assert found == before or not before, "the trial was judged, so a driver that goes on asks for no other"
            before = found
            assert standings.finals(store, study.name) is None, "finals that did not end say nothing"
            assert sum(len(each.heats) for each in all_finals(store, study.name)) >= raced
        shown = autotuner(tmp_path, "leaderboard")
        assert shown.returncode == 0, shown.stderr
        assert "Unconfirmed: an estimate of the search" in " ".join(shown.stdout.split())

    done = autotuner(tmp_path, *command[1:])
    assert done.returncode == 0, done.stderr
    skip_in_vain(done.stdout)
    with Store.open(str(tmp_path / "studies.db"), create=False) as store:
        last, *killed = all_finals(store, study.name)
    assert len(last.heats) == 1 + PROCESSES  # one of the baseline alone, and those of the only finalist
    assert last.standing is not None
    assert [each.finished_at for each in killed] == [None] * len(killed)
    assert sum(len(each.heats) for each in killed) >= raced
    assert (tmp_path / "best.json").exists()
    wait_for_the_rest(MARK)
