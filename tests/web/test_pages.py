"""The pages: what they hold, what they never hold, and that they are drawn only when something has changed."""

import base64
import hashlib
import json
import re
import shutil
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from autotuner.jobs import queue
from autotuner.store import Store, device_health, queries, sweeps
from autotuner.tuning.finals import standings
from autotuner.tuning.workbench import load_space
from autotuner.views.words import ratio
from autotuner.web.reader import FRESH_S
from tests.helpers.recorded import CALIBRATION, deduplicated, measured, raced_out, record_all, rejected, study_record
from tests.helpers.serving import serving

TABS = (
    *("", "/rejects", "/variants", "/leaderboard", "/problems", "/costs", "/beliefs"),
    *("/trials/3", "/saved.html"),
)
HTML = {"Accept": "text/html"}


class _Inline(HTMLParser):
    """What the policy of the pages would refuse: styles and scripts in attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [(tag, name) for name, _ in attrs if name == "style" or name.startswith("on")]


def inline(page: str) -> list[tuple[str, str]]:
    parser = _Inline()
    parser.feed(page)
    return parser.found


@pytest.mark.parametrize("tab", TABS)
def test_every_page_of_a_study(client: TestClient, study: str, tab: str) -> None:
    answer = client.get(f"/studies/{study}{tab}", headers=HTML)
    assert answer.status_code == 200
    assert study in answer.text
    assert inline(answer.text) == []
    assert tab == "/saved.html" or not re.search(r"<script(?![^>]*\ssrc=)", answer.text)
    assert re.findall(r'(?:src|href)="(?:https?:)?//', answer.text) == [], "nothing is loaded from elsewhere"
    figures = re.findall(r"<figure\b(.*?)</figure>", answer.text, re.DOTALL)
    assert [each[:80] for each in figures if "<table" not in each or "aria-label" not in each] == []
    assert answer.text.count('<svg class="figure') == sum(each.count('<svg class="figure') for each in figures)
    assert "<table" in answer.text or tab == "/beliefs"


@pytest.mark.parametrize("path", ["/", "/queue", "/compare", "/api", "/login", "/nothing"])
def test_every_other_page(client: TestClient, path: str) -> None:
    answer = client.get(path, headers=HTML)
    assert answer.status_code == (404 if path == "/nothing" else 200)
    assert "<main" in answer.text
    assert inline(answer.text) == []


def test_the_answers_are_those_of_the_finals(client: TestClient, study: str, made: Path) -> None:
    with Store.open(str(made)) as store:
        best = standings.best(store, study)
    text = client.get(f"/studies/{study}").text
    assert f"{best.confirmed.mid:.3f}x" in text
    assert f"{best.confirmed.low:.3f} to {best.confirmed.high:.3f}" in text
    assert f"Trial {best.entry.number}, confirmed" in text


def test_a_page_is_sent_again_only_when_something_has_changed(client: TestClient, study: str) -> None:
    first = client.get(f"/studies/{study}")
    again = client.get(f"/studies/{study}", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/queue").status_code == 200
    tag = re.search(r"since=([\w-]+)", client.get("/queue").text)
    assert tag is not None
    assert client.get(f"/queue?since={tag[1]}").status_code == 204
    assert client.get("/queue?since=older").status_code == 200


def test_a_saved_page_needs_nothing(client: TestClient, study: str, made: Path) -> None:
    answer = client.get(f"/studies/{study}/saved.html")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', answer.text)
    assert policy is not None
    said = policy[1].replace("&#39;", "'")
    assert "default-src 'none'" in said
    for tag in ("style", "script"):
        (held,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(held.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in said
    ids = re.findall(r'\sid="([^"]+)"', answer.text)
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r'href="#([^"]+)"', answer.text))
    assert targets - set(ids) == set()
    with Store.open(str(made)) as store:
        best = standings.best(store, study)
    assert f'id="trial-{best.entry.number}"' in answer.text


# What a store may hold ------------------------------------------------------------------------------------------------

EVIL = "<img src=x onerror=alert(1)>\"'&{{7*7}}\x07"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose every name and text is markup, with a path for a family."""
    path = tmp_path_factory.mktemp("hostile") / "studies.db"
    variant = {"family": "../../../etc", "impl": EVIL, "parameters": {EVIL: EVIL, "BLOCK_M": 64}}
    with Store.open(str(path)) as store:
        device = study_record().device.model_copy(update={"name": EVIL, "environment": {EVIL: EVIL}})
        record = study_record().model_copy(update={"name": f"x{EVIL}", "device": device, "sampler": EVIL})
        slashed = study_record().model_copy(update={"name": "a/../../b"})
        for each in (slashed, record):
            store.ensure_study(each)
        session = store.start_session(record.name, CALIBRATION, {EVIL: EVIL})
        for number, outcome in enumerate([measured(1, 50.0), rejected(2), rejected(3)]):
            fault = outcome.fault
            changes: dict[str, object] = {"variant": outcome.variant.model_copy(update=variant), "stderr_tail": EVIL}
            changes["variant"] = changes["variant"].model_copy(update={"impl": f"{EVIL}{number}"})  # type: ignore[attr-defined]
            if fault is not None:
                changes["fault"] = fault.model_copy(update={"code": EVIL, "detail": EVIL, "case": EVIL})
            store.record(record.name, session, number, outcome.model_copy(update=changes))
        _queue_of(store, record.name)
    return path


def _queue_of(store: Store, study: str) -> None:
    """A sweep and a device whose every name and text is markup."""
    wanted = {"name": EVIL, "problems": (EVIL,)}
    plain = queue.request_for(load_space("sdpa_cpu"))
    titled = _titled(plain.space_document)
    (asked,), _ = queue.submit(store, plain.model_copy(update={**wanted, "space_document": titled}), key=EVIL)
    assert sweeps.claim(store, asked.id, EVIL) is not None
    sweeps.work(store, asked.id, 60.0, study)
    sweeps.note(store, asked.id, EVIL, EVIL)
    with device_health.serving(store, {EVIL: [EVIL]}, EVIL, "cpu", EVIL, EVIL):
        device_health.quarantine(store, [EVIL], EVIL, EVIL, asked.id)


def _titled(document: str) -> str:
    return json.dumps({**json.loads(document), "title": EVIL})


def test_nothing_in_a_store_is_markup(hostile: Path) -> None:
    with serving(hostile) as found:
        front = found.get("/")
        links = set(re.findall(r'href="(/studies/[^"]+)"', front.text))
        assert len(links) == 1  # a name with a slash can be in no address
        base = links.pop().replace("&amp;", "&").replace("&#39;", "'")
        studies = [f"{base}{tab}" for tab in (*TABS[:7], "/trials/0", "/trials/1", "/saved.html")]
        pages = [front, *(found.get(address) for address in (*studies, "/queue", "/sweeps/1"))]
        data = found.get(f"{base}/variants.json")
        for page in pages:
            assert page.status_code == 200, page.url
            assert "<img" not in page.text
            assert "alert(1)" in page.text
            assert inline(page.text) == []
        assert data.json()["study"] == f"x{EVIL}"
        assert data.headers["content-type"] == "application/json"
        families = list(text_string_to_metric_families(found.get("/metrics").text))
        assert {EVIL} <= {label for family in families for each in family.samples for label in each.labels.values()}


# While it is changed --------------------------------------------------------------------------------------------------


def test_pages_follow_what_is_recorded_and_what_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "studies.db"
    with Store.open(str(path)) as store:
        record = study_record()
        store.ensure_study(record)
        session = store.start_session(record.name, CALIBRATION, {})
        record_all(store, session, [measured(1, 50.0), rejected(2), raced_out(3, 90.0)])
        with serving(path) as found:

            def kinds() -> list[int]:
                time.sleep(FRESH_S)
                answer = found.get(f"/studies/{record.name}/variants.json")
                assert answer.status_code == 200, answer.text
                data = answer.json()
                return [data["kind"].count(place) for place in range(len(data["kinds"]))]

            assert kinds() == [1, 1, 0, 1, 0, 0, 0]
            store.record(record.name, session, 3, deduplicated(4, measured(1, 50.0)))
            assert kinds() == [1, 1, 1, 1, 0, 0, 0]
            store.revoke(record.name, 0, "the finals saw it fail")
            assert kinds() == [0, 1, 0, 3, 0, 0, 0]
            assert "the finals saw it fail" in found.get(f"/studies/{record.name}/trials/0").text
            assert queries.trial(store, record.name, 0).revoked_at is not None


def read(store: Path, *pages: str, seen: dict[str, str] | None = None) -> dict[str, tuple[int, str, str]]:
    """Status, text and ETag of pages, of a server that has read nothing yet. `seen`: the ETags that the reader has."""
    with serving(store) as found:
        asked = {page: {"If-None-Match": seen[page]} if seen else {} for page in pages}
        answers = {page: found.get(page, headers=headers) for page, headers in asked.items()}
    return {page: (each.status_code, each.text, each.headers["etag"]) for page, each in answers.items()}


def since(text: str) -> str:
    """The state that a page shows, as it says so when it asks for what is new."""
    found = re.search(r"since=([\w-]+)", text)
    assert found is not None
    return found[1]


def test_a_revoked_best_is_shown_nowhere(queued: Path, study: str, tmp_path: Path) -> None:
    """Nothing happens to its sweep, and as many trials are judged."""
    path = Path(shutil.copy(queued, tmp_path / "studies.db"))
    pages = ("/", "/queue", "/sweeps/1")
    before = read(path, *pages)
    seen = {page: etag for page, (_, _, etag) in before.items()}
    assert {status for status, *_ in read(path, *pages, seen=seen).values()} == {304}
    with Store.open(str(path)) as store:
        best = standings.best(store, study)
        store.revoke(study, best.entry.number, "it was wrong")
        quoted = standings.quoted(store, study)
    assert quoted is not None
    for page, (status, text, _) in read(path, *pages, seen=seen).items():
        assert status == 200, page
        assert ratio(quoted[0]) in text, page
        assert ratio(quoted[0]) not in before[page][1], page


def test_a_copy_is_read_and_nothing_of_it_is_changed(made: Path, tmp_path: Path, study: str) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(made.read_bytes())
    before = hashlib.sha256(copy.read_bytes()).hexdigest()
    with serving(copy, read_only=True) as found:
        for tab in TABS[:7]:
            assert found.get(f"/studies/{study}{tab}").status_code == 200
        assert found.get("/queue").status_code == 200
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == before
