"""Readers of the pages beside a sweep: nothing is locked, and nothing of the sweep is lost.

What readers cost is measured by benchmarks/service/readers.py.
"""

import threading
from collections import Counter
from pathlib import Path

from starlette.testclient import TestClient

from autotuner.store import Store, queries, trials
from autotuner.tuning.run.driver import Budget
from autotuner.web.app import create_app
from autotuner.web.settings import Settings
from tests.helpers import simulated
from tests.helpers.driven import WIDE, driver

READERS, TRIALS = 8, 24
PATHS = ("/", "/queue", "/api/v1/studies", "/studies/{}", "/studies/{}/variants", "/studies/{}/costs")


def test_readers_lock_nothing_and_a_sweep_beside_them_loses_nothing(tmp_path: Path) -> None:
    path, answers, over = str(tmp_path / "studies.db"), Counter[int](), threading.Event()
    with Store.open(path) as store:
        sweep = driver(store, simulated.backend(), width=WIDE)
        sweep.run(Budget(trials=1))
        with TestClient(create_app(Settings(store=path, read_only=True)), base_url="http://localhost") as client:

            def read(place: int) -> None:
                while not over.is_set() or not answers:
                    answers[client.get(PATHS[place % len(PATHS)].format(sweep.name)).status_code] += 1
                    place += 1

            readers = [threading.Thread(target=read, args=(place,)) for place in range(READERS)]
            for each in readers:
                each.start()
            try:
                driver(store, simulated.backend(), width=WIDE).run(Budget(trials=TRIALS))
            finally:
                over.set()
                for each in readers:
                    each.join()
            last = client.get(f"/api/v1/studies/{sweep.name}").json()
        assert set(answers) == {200}
        assert last["judged"] == queries.judged_count(store, sweep.name) == TRIALS
        assert sorted(each.number for each in trials.listed(store, sweep.name)) == list(range(TRIALS))
