"""Every question is answered from every store that an earlier release wrote. What would build or time kernels of
another version of the kernel ABI is refused."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from starlette.routing import BaseRoute
from starlette.testclient import TestClient

from autotuner.devices import DEVICES, Wishes
from autotuner.store import Store, queries
from autotuner.tuning import standings
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Verdict
from autotuner.web import api, figures_api, pages
from autotuner.web.app import create_app
from autotuner.web.settings import Settings
from tests.cli.messages import said
from tests.helpers.stores import STORES, old_store

FIXTURES = sorted(path.stem for path in STORES.glob("*.sql"))
OF_VERSION_1 = "v0003_abi1"
"""A sweep of the last release whose kernels were of version 1 of the ABI, with its finals."""
QUESTIONS = (
    ("status",),
    ("status", "--json"),
    ("leaderboard",),
    ("leaderboard", "--json"),
    ("best",),
    ("best", "--json"),
    ("trials",),
    ("trials", "--csv"),
    ("trials", "--json"),
    ("show", "0"),
    ("show", "0", "--json"),
    ("show", "2"),
    ("explain",),
    ("explain", "--json"),
    ("history",),
    ("costs",),
    ("coverage",),
    ("coverage", "--json"),
    ("baselines",),
    ("baselines", "--json"),
    ("sweeps", "--all"),
    ("devices",),
    ("page", "--out", "study.html"),
    ("export", "--out", "best.json", "--estimates"),
    ("export", "--out", "-"),
)
DELIVERS = {"page": "study.html", "export": "best.json"}
BUILDS = (("race",), ("race", "--trial", "1"), ("race", "--aa"), ("gate", "0"), ("gate", "1"), ("finals",))
VALIDATES = ("validate", "--lengths", "64-256")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder and a cache of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNER_CACHE", str(tmp_path / "cache"))


def test_there_is_a_store_of_each_version() -> None:
    assert {"v0001", "v0003", OF_VERSION_1} <= {*FIXTURES}


@pytest.mark.parametrize("fixture", FIXTURES)
@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_an_old_store_answers_every_question(tmp_path: Path, fixture: str, question: tuple[str, ...]) -> None:
    old_store(tmp_path / "studies.db", fixture)
    answer = said((*question, "--store", str(tmp_path / "studies.db")))
    assert "[exit code" not in answer, answer
    assert answer.strip()
    file = DELIVERS.get(question[0])
    if file in question:
        assert (tmp_path / str(file)).stat().st_size > 100
    if "--json" in question:
        json.loads(answer)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_two_old_studies_are_compared(tmp_path: Path, fixture: str) -> None:
    path = tmp_path / "studies.db"
    name = old_store(path, fixture)
    with closing(sqlite3.connect(path)) as raw, raw:
        kept = [row[1] for row in raw.execute("PRAGMA table_info(at_study)") if row[1] not in ("id", "name")]
        raw.execute(f"INSERT INTO at_study (name, {', '.join(kept)}) SELECT 'other', {', '.join(kept)} FROM at_study")
    answer = said(("compare", name, "other", "--store", str(path)))
    assert "[exit code" not in answer, answer


@pytest.mark.parametrize("fixture", FIXTURES)
def test_every_page_of_an_old_store_is_drawn(tmp_path: Path, fixture: str) -> None:
    path = tmp_path / "studies.db"
    name = old_store(path, fixture)
    addresses = [*answered(name)]
    assert len(addresses) > 20
    with TestClient(create_app(Settings(store=str(path))), base_url="http://localhost") as client:
        for address in addresses:
            found = client.get(address, headers={"accept": "text/html"})
            assert found.status_code == 200, (address, found.text[:400])


def answered(study: str) -> Iterator[str]:
    """The address of each page and each answer of a study."""
    routes: list[BaseRoute] = [*pages.router.routes, *api.router.routes, *figures_api.router.routes]
    for route in routes:
        path, methods = getattr(route, "path", ""), getattr(route, "methods", None) or ()
        if "GET" not in methods or path in ("/login", "/api"):
            continue
        address = path.format(study=study, number=0)
        yield f"{address}?a={study}&b={study}&first={study}&second={study}" if path.endswith("/compare") else address


def test_a_server_that_may_not_write_says_how_an_old_store_is_read(tmp_path: Path) -> None:
    old_store(tmp_path / "studies.db")
    answer = said(("serve", "--read-only", "--port", "0", "--store", str(tmp_path / "studies.db")))
    assert answer.count("\n") == 2
    assert "written by an older autotuner" in answer
    assert "open it once without --read-only" in answer


# Version 1 of the kernel ABI -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [*BUILDS, VALIDATES], ids=" ".join)
def test_nothing_of_version_1_of_the_abi_is_built_or_timed(tmp_path: Path, call: tuple[str, ...]) -> None:
    name = old_store(tmp_path / "studies.db", OF_VERSION_1)
    _of_this_device(tmp_path / "studies.db")
    answer = said((*call, "--store", str(tmp_path / "studies.db")))
    assert answer.splitlines()[-2:] == [
        f"autotuner: {name} is of version 1 of the kernel ABI, which is read and not gone on with: `autotuner tune"
        f" sdpa_cpu_small --from {name}` begins a study of version 2 with its best points",
        "[exit code 2]",
    ]
    assert not [*(tmp_path / "cache").rglob("*.so")]


def _of_this_device(path: Path) -> None:
    """Makes its study one of this machine's CPU: finals and validations look at that first."""
    here = DEVICES["cpu"].choose(Wishes(threads=1)).device
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE at_study SET device = ?", (here.model_dump_json(),))


def test_a_trial_that_the_gate_never_asked_is_of_its_study_version(tmp_path: Path) -> None:
    """As one that was not built, or that has the program of another."""
    path = tmp_path / "studies.db"
    name = old_store(path, OF_VERSION_1)
    with closing(sqlite3.connect(path)) as raw, raw:
        (text,) = raw.execute("SELECT outcome FROM at_trial WHERE number = 1").fetchone()
        outcome = Outcome.model_validate_json(text)
        assert outcome.artifact is not None
        same = {"verdict": Verdict.DEDUPLICATED, "gate": None, "original": outcome.artifact.digest}
        told = outcome.model_copy(update=same).model_dump_json()
        raw.execute("UPDATE at_trial SET outcome = ?, verdict = 'deduplicated' WHERE number = 1", (told,))
    for call in (("race", "--trial", "1"), ("gate", "1")):
        assert f"{name} is of version 1 of the kernel ABI" in said((*call, "--store", str(path)))


def test_what_is_read_of_version_1_is_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "studies.db"
    name = old_store(path, OF_VERSION_1)
    with closing(sqlite3.connect(path)) as raw:
        before = [Outcome.model_validate_json(text) for (text,) in raw.execute("SELECT outcome FROM at_trial")]
    with Store.open(str(path), create=False) as store:
        assert [outcome for _, outcome in store.outcomes(name)] == before
        best = standings.best(store, name)
        assert best is not None
        assert best.confirmed is not None
        assert queries.finals(store, name) is not None
