"""The API: what it says of studies, and what can be asked of the queue."""

import tomllib
from concurrent.futures import BrokenExecutor
from multiprocessing import active_children, connection
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
from starlette.testclient import TestClient

from autotuner.serve import bundle
from autotuner.spaces.space import SpaceFile
from autotuner.store import Store, figures, sweeps
from autotuner.store.whole_study import data_of
from autotuner.tuning.finals import standings
from autotuner.values.model import json_of
from autotuner.views.figure_tables import costs_table, history_table
from autotuner.views.trials_table import trials_of
from autotuner.web.beliefs_process import BeliefsFinder
from autotuner.web.guard import LONGEST
from tests.helpers.serving import serving
from tests.helpers.stores import sample_store
from tests.web.conftest import TOKEN

API = "/api/v1"


def test_a_study_is_what_the_command_line_says(client: TestClient, study: str, made: Path) -> None:
    with Store.open(str(made)) as store:
        summary, best = standings.summary(store, study), standings.best(store, study)
        board = standings.leaderboard(store, study, 5)
    found = client.get(f"{API}/studies/{study}").json()
    said = json_of(summary)
    same = ("name", "problems", "judged", "by_verdict", "by_fault", "running", "best_speedup", "best_us", "disturbed")
    assert {name: found[name] for name in same} == {name: said[name] for name in same}
    assert found["best_trial"] == summary.best_number
    assert found["finals"]["leader"] == best.finals.leader if best.finals else found["finals"] is None
    ranked = client.get(f"{API}/studies/{study}/leaderboard?limit=5").json()
    assert ranked["baseline"] == "SDPA"
    assert [each["trial"] for each in ranked["variants"]] == [each.number for each in board]
    for one, entry in zip(ranked["variants"], board, strict=True):
        assert one["parameters"] == entry.variant.point
        assert one["search"] == one["search_interval"]["mid"] == entry.speedup.mid
        assert one["confirmed"] == (entry.confirmed.mid if entry.confirmed else None)
    assert client.get(f"{API}/studies/{study}/best").json()["variant"]["trial"] == best.entry.number


def test_figures_are_what_the_command_line_says(client: TestClient, study: str, made: Path) -> None:
    with Store.open(str(made)) as store:
        confirmed, costs = standings.every_confirmed(store, study), figures.costs(store, study)
        said = {
            "history": history_table(figures.history(store, study), confirmed).json(),
            "costs": costs_table(costs).json(),
        }
        lines = trials_of(store, study).json()
    found = {name: client.get(f"{API}/studies/{study}/{name}").json() for name in said}
    keys = {"history": "improvements", "costs": "by_verdict"}
    assert {name: found[name][key] for name, key in keys.items()} == said
    assert found["costs"]["pace"] == (None if costs.pace is None else json_of(costs.pace))
    some = client.get(f"{API}/studies/{study}/trials?after=9&limit=7").json()
    assert (some["count"], some["trials"]) == (80, lines[10:17])


FIELDS: dict[str, str] = tomllib.loads((Path(__file__).parent / "fields.toml").read_text())


def test_what_the_api_calls_things_stays(client: TestClient) -> None:
    """Whatever a column of the store or a field of a record is called."""
    schemas = client.get(f"{API}/openapi.json").json()["components"]["schemas"]
    assert {name: [*schemas[name]["properties"]] for name in FIELDS} == {name: FIELDS[name].split() for name in FIELDS}


@pytest.mark.slow
def test_beliefs_that_are_being_found_do_not_keep_a_server_from_its_end(made: Path, study: str) -> None:
    finder, before = BeliefsFinder(str(made)), active_children()
    finder.ask(study, "now")
    (process,) = (each for each in active_children() if each not in before)
    finder.close()
    assert connection.wait([process.sentinel], 60)
    assert process.exitcode in (-SIGTERM, None)  # None where the pool's own thread has waited for it before


def test_beliefs_are_found_after_their_process_was_lost(made: Path, study: str) -> None:
    """Whatever is asked for next: another revision of the study, or the same again."""
    finder, before = BeliefsFinder(str(made)), active_children()
    lost = finder.ask(study, "one")
    (process,) = (each for each in active_children() if each not in before)
    process.kill()
    assert isinstance(lost.exception(), BrokenExecutor)
    begun = [finder.ask(study, tag) for tag in ("two", "one")]
    assert not any(each.done() and not each.cancelled() and each.exception() for each in begun)
    finder.close()
    assert lost not in begun


@pytest.mark.parametrize(
    "path",
    ["studies/nothing", "studies/nothing/best", "studies/{study}/trials/99999", "sweeps/7", "sweeps/7/events", "no"],
)
def test_what_is_not_there_is_404(client: TestClient, study: str, path: str) -> None:
    answer = client.get(f"{API}/{path.format(study=study)}")
    assert answer.status_code == 404
    assert answer.json()["error"]


# The queue ------------------------------------------------------------------------------------------------------------

ASKED = {"space": "sdpa_cpu", "trials": 5, "minutes": 2.5}


def test_a_sweep_is_asked_for_once_under_a_key(writable: TestClient, shown: dict[str, str]) -> None:
    headers = {**shown, "Idempotency-Key": "one"}
    first = writable.post(f"{API}/sweeps", headers=headers, json=ASKED)
    again = writable.post(f"{API}/sweeps", headers=headers, json=ASKED)
    other = writable.post(f"{API}/sweeps", headers=headers, json={**ASKED, "trials": 6})
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert first.headers["location"] == again.headers["location"] == "/api/v1/sweeps/1"
    sweep = first.json()
    assert (sweep["state"], sweep["trials"], sweep["minutes"]) == ("queued", 5, 2.5)
    assert len(writable.get(f"{API}/sweeps").json()["sweeps"]) == 1


WRONG: tuple[dict[str, object], ...] = (
    {"space": "../search_spaces/sdpa_cpu"},
    {"space": "/etc/passwd"},
    {"space": "sdpa_cpu.toml"},
    {"problems": ["(1,2"]},
    {"problems": ["(1,4,99999999999,64) float32"]},
    {"sampler": "none"},
)


def test_a_sweep_that_cannot_be_is_refused_in_a_line(writable: TestClient, shown: dict[str, str]) -> None:
    for wrong in WRONG:
        answer = writable.post(f"{API}/sweeps", headers=shown, json={**ASKED, **wrong})
        assert answer.status_code == 400, wrong
        assert answer.json()["error"].count("\n") == 0


def test_no_file_can_be_sent(writable: TestClient, shown: dict[str, str]) -> None:
    for field in ("space_document", "sources", "flags", "path"):
        answer = writable.post(f"{API}/sweeps", headers=shown, json={**ASKED, field: "x"})
        assert answer.status_code == 422, field


def test_a_sweep_is_paused_resumed_cancelled_and_retried(writable: TestClient, shown: dict[str, str]) -> None:
    number = writable.post(f"{API}/sweeps", headers=shown, json=ASKED).json()["number"]

    def change(verb: str) -> object:
        answer = writable.post(f"{API}/sweeps/{number}:{verb}", headers=shown)
        return answer.json()["state"] if answer.status_code == 200 else answer.status_code

    assert [change(verb) for verb in ("pause", "resume", "cancel", "retry")] == [
        "paused",
        "queued",
        "cancelled",
        "queued",
    ]
    assert change("resume") == 409
    path, budget = f"{API}/sweeps/{number}", {"trials": 7, "minutes": 4.0, "priority": 3}
    changed = writable.patch(path, headers=shown, json=budget).json()
    assert {name: changed[name] for name in budget} == budget
    assert [change("cancel"), writable.patch(path, headers=shown, json=budget).status_code] == ["cancelled", 409]
    again = writable.post(f"{path}:retry", headers=shown, json={"trials": 9}).json()
    assert (again["trials"], again["minutes"], again["state"], again["detail"]) == (9, 4.0, "queued", "")
    assert writable.patch(path, headers=shown, json={"minutes": 0.01, "trials": None}).status_code == 200
    assert writable.patch(path, headers=shown, json={}).status_code == 400


def test_all_that_submit_takes_can_be_asked_for(writable: TestClient, tmp_path: Path, shown: dict[str, str]) -> None:
    more = {"each": True, "threads": 1, "devices": "cpu", "start": ["IMPL=simd"], "cold": True, "first_points": "none"}
    problems = ["(1,2,64,64) float32 full", "(1,2,64,64) float32 causal"]
    made = writable.post(f"{API}/sweeps", headers=shown, json={**ASKED, **more, "problems": problems}).json()
    found = writable.get(f"{API}/sweeps").json()["sweeps"]
    assert [(each["group"], each["problems"], each["minutes"]) for each in found] == [
        (made["number"], [one], 1.25) for one in problems
    ]
    weighed = {**ASKED, "problems": ["(1,2,64,64) float32", "(1,2,96,64) float32"], "weights": [3, 1]}
    assert writable.post(f"{API}/sweeps", headers=shown, json=weighed).status_code == 201
    with Store.open(str(tmp_path / "studies.db")) as store:
        assert SpaceFile.stored(sweeps.every(store)[-1].request.space_document).objective == (3.0, 1.0)
    for refused in ({"from": "none"}, {"from": "/tmp/a.t4.json"}, {"weights": [1, 2, 3]}):
        assert writable.post(f"{API}/sweeps", headers=shown, json={**ASKED, **refused}).status_code == 400


def test_a_study_is_renamed_noted_and_deleted(tmp_path: Path, shown: dict[str, str]) -> None:
    study, page = sample_store(tmp_path / "studies.db"), "/studies/nightly"
    other = tmp_path / "other.db"
    with serving(tmp_path / "studies.db", token=TOKEN, copies=(str(other),)) as found:
        copies = f"{API}/studies/{study}:copy"
        assert found.post(copies, json={"to": str(other)}).status_code == 401
        assert str(other) in found.post(copies, headers=shown, json={"to": str(tmp_path / "x.db")}).json()["error"]
        assert found.post(copies, headers=shown, json={"to": str(other)}).json() == {"to": str(other)}
        with Store.open(str(other)) as there, Store.open(str(tmp_path / "studies.db")) as here:
            assert data_of(there, study) == data_of(here, study)
        (tmp_path / "study.tar.gz").write_bytes(found.get(f"{API}/studies/{study}/bundle").content)
        assert bundle.read(tmp_path / "study.tar.gz").manifest.study == study
        asked = {"name": "nightly", "note": "too warm"}
        assert found.patch(f"{API}/studies/{study}", json=asked).status_code == 401
        changed = found.patch(f"{API}/studies/{study}", headers=shown, json=asked).json()
        assert {name: changed[name] for name in asked} == asked
        assert found.get(f"{API}/studies/{study}").status_code == 404
        found.post("/login", data={"token": TOKEN})
        text = found.get(page).text
        assert "too warm" in text
        form = {"form": text.split('name="form" value="')[1].split('"')[0]}
        assert found.post(f"{page}/delete", data={**form, "name": "x"}).status_code == 400
        assert found.post(f"{page}/copy", data={**form, "to": str(other)}).url.path == page
        assert found.post(f"{page}/copy", data={**form, "to": str(other)}).status_code == 409, "it is there already"
        done = found.post(
            "/studies/nightly/change", data={**form, "name": "weekly", "note": ""}, follow_redirects=False
        )
        assert done.headers["location"] == "/studies/weekly"
        assert "too warm" not in found.get("/studies/weekly").text
        assert found.delete(f"{API}/studies/weekly", headers=shown).status_code == 204
        assert found.get(f"{API}/studies").json()["studies"] == []


def test_events_are_listed_after_any_of_them(writable: TestClient, shown: dict[str, str]) -> None:
    path = f"{API}/sweeps/{writable.post(f'{API}/sweeps', headers=shown, json=ASKED).json()['number']}"
    writable.post(f"{path}:cancel", headers=shown)
    found = writable.get(f"{path}/events").json()["events"]
    assert [each["kind"] for each in found] == ["submitted", "cancel_asked"]
    assert writable.get(f"{path}/events?after={found[0]['number']}").json()["events"] == found[1:]


def test_every_answer_is_one_that_the_description_names(writable: TestClient, shown: dict[str, str]) -> None:
    document = writable.get(f"{API}/openapi.json").json()
    assert "HTTPValidationError" not in document["components"]["schemas"]

    def declared(path: str, method: str, answer: Any) -> str:
        found = document["paths"][f"{API}{path}"][method]["responses"][str(answer.status_code)]
        return str(found["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1])

    headers = {**shown, "Idempotency-Key": "one"}
    made = [writable.post(f"{API}/sweeps", headers=headers, json=ASKED) for _ in range(2)]
    assert [(each.status_code, declared("/sweeps", "post", each)) for each in made] == [
        (201, "SweepNow"),
        (200, "SweepNow"),
    ]
    refused = {422: writable.get(f"{API}/sweeps?all=perhaps"), 414: writable.get(f"{API}/sweeps?{'a' * LONGEST}")}
    for status, answer in refused.items():
        assert (answer.status_code, declared("/sweeps", "get", answer)) == (status, "Refusal")
        assert set(answer.json()) == {"error"}
    assert "all" in refused[422].json()["error"]
