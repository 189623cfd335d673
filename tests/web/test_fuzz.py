"""The API under made-up requests, by its own description: no call ends in a fault of ours, and every answer is what the
description says. Some examples in every run, many by `make proof PART=tests`."""

import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from autotuner.store import Store, queries
from autotuner.tuning.run.driver import Budget
from autotuner.web.access import Settings
from autotuner.web.app import create_app
from autotuner.web.reader import FRESH_S
from tests.helpers import simulated
from tests.helpers.driven import WIDE, driver
from tests.helpers.serving import serving
from tests.web.conftest import TOKEN

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HEADERS = {"Host": "localhost", "Authorization": f"Bearer {TOKEN}"}
ELSEWHERE = ("/api/v1/studies/{study}/beliefs",)
"""A call that is for a process of its own; tests/web/test_api.py makes it."""


def fuzz(store: Path, study: str, examples: int) -> int:
    """Makes that number of calls of each operation; how many operations there are."""
    app = create_app(Settings(store=str(store), token=TOKEN))
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=HEADERS)
    every: list[Any] = list(schema.get_all_operations())
    operations = [each.ok() for each in every if each.ok().path not in ELSEWHERE]
    quiet = settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck]
    )

    def known(case: Any) -> Any:
        """Half of the calls are about something that is there."""
        parameters = case.path_parameters or {}
        if "study" in parameters and len(parameters["study"]) % 2:
            parameters["study"] = study
        if "number" in parameters and isinstance(parameters["number"], int):
            parameters["number"] %= 100
        (case.query or {}).pop("wait", None)
        return case

    for operation in operations:

        @quiet
        @given(case=operation.as_strategy())
        def call(case: Any) -> None:
            known(case).call_and_validate(headers=HEADERS, checks=CHECKS)

        call()
    return len(operations)


@pytest.mark.parametrize("examples", [3, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.sampled(0)])])
def test_no_call_ends_in_a_fault_of_ours(made: Path, study: str, tmp_path: Path, examples: int) -> None:
    copy = Path(shutil.copy(made, tmp_path / "studies.db"))
    assert fuzz(copy, study, examples) > 15


# Readers beside a sweep -----------------------------------------------------------------------------------------------


READERS, TRIALS = 8, 24
PATHS = ("/", "/queue", "/api/v1/studies", "/studies/{}", "/studies/{}/variants", "/studies/{}/costs")


def test_readers_lock_nothing_and_a_sweep_beside_them_loses_nothing(tmp_path: Path) -> None:
    path, answers, over = str(tmp_path / "studies.db"), Counter[int](), threading.Event()
    with Store.open(path) as store:
        sweep = driver(store, simulated.backend(), width=WIDE)
        sweep.run(Budget(trials=1))
        with serving(path, read_only=True) as client:

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
            time.sleep(FRESH_S)
            last = client.get(f"/api/v1/studies/{sweep.name}").json()
        assert set(answers) == {200}
        assert last["judged"] == queries.judged_count(store, sweep.name) == TRIALS
        assert sorted(each.number for each in queries.listed(store, sweep.name)) == list(range(TRIALS))
