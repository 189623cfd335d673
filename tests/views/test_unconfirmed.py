"""Wherever an estimate of the search is quoted that no finals have confirmed, the word stands beside it."""

import contextlib
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.routing import Route
from starlette.testclient import TestClient

import autotuner
from autotuner.cli import app as command_line
from autotuner.cli.output import out
from autotuner.jobs import queue
from autotuner.serve.table import table_of
from autotuner.store import Store, queries, sweeps
from autotuner.tuning.finals import standings
from autotuner.tuning.workbench import load_space
from autotuner.values.ratio import UNCONFIRMED
from autotuner.web import api, pages
from benchmarks.service.made_up import PROBLEMS, SPACE, write
from tests.helpers import tables
from tests.helpers.serving import serving
from tests.helpers.tuned_studies import record, tuned

JUDGED = 40
TIMES_AGAIN = {"regress", "verify", "profile", "tune", "finals", "validate", "gate", "worker"}
"""Commands that build and time, whose words tests/views/test_progress.py and test_trial_words.py look at."""
OF_NO_STUDY = {"bundle", "study", "doctor", "serve", "submit", "devices", "space", "cache", "sweep"}
LOOKS: dict[str, tuple[tuple[str, ...], ...]] = {
    "status": ((), ("STUDY",), *(("STUDY", "--show", each) for each in ("history", "costs"))),
    "leaderboard": (("STUDY",),),
    "trials": (("STUDY",),),
    "show": ((), ("BEST",)),
    "explain": (("STUDY",),),
    "compare": (("STUDY", "OTHER"),),
    "export": (("STUDY", "--estimates", "--out", "best.json"),),
}
"""The others, with what each is asked."""


class Known:
    """A store of two studies without finals."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "studies.db"
        with Store.open(str(self.path)) as store:
            self.study, self.other = (write(store, JUDGED, finals=False, problems=PROBLEMS[at:][:1]) for at in (0, 1))
            best = standings.best(store, self.study)
            self.best = best.entry.number
            estimates = [
                trial.speedup.mid
                for name in (self.study, self.other)
                for trial in queries.listed(store, name)
                if trial.speedup is not None
            ]
            asked = queue.request_for(load_space(SPACE, problems=PROBLEMS[:1]), trials=100)
            self.sweep = queue.submit(store, asked)[0][0].id
            assert sweeps.claim(store, self.sweep, "sweep 1") is not None
            sweeps.work(store, self.sweep, 60.0, self.study)
        self.figures = {f"{each:.3f}" for each in estimates} - {"1.000"}
        self.values = {round(each, 6) for each in estimates} - {1.0}
        self.quoted = re.compile(rf"(?<![\d.])(?:{'|'.join(map(re.escape, self.figures))})(?:x| times as fast)")

    def has(self, document: Any) -> bool:
        """Whether an estimate is in a document."""
        inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
        return (isinstance(document, float) and round(document, 6) in self.values) or any(map(self.has, inner))

    def named(self, words: tuple[str, ...]) -> list[str]:
        names = {"STUDY": self.study, "OTHER": self.other, "BEST": str(self.best)}
        return [names.get(word, word) for word in words]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    return Known(tmp_path_factory.mktemp("searched"))


# A terminal -----------------------------------------------------------------------------------------------------------


def said(known: Known, command: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(out, "width", 250)
    found = io.StringIO()
    args = [command, *known.named(words), "--store", str(known.path)]
    with contextlib.chdir(known.path.parent), contextlib.redirect_stdout(found), pytest.raises(SystemExit) as ended:
        command_line.app(args=args)
    assert not ended.value.code, found.getvalue()
    return found.getvalue()


def bare(known: Known, text: str) -> list[str]:
    """Lines with an estimate and without the word: neither in them nor in the head of the table that they are of."""
    found, head = [], ""
    for line in text.splitlines():
        if not line.strip():
            head = ""
        elif not known.quoted.search(line):
            head += line
        elif UNCONFIRMED not in f"{head}{line}".lower():
            found.append(line)
    return found


def test_no_command_is_forgotten() -> None:
    every = {name for names in command_line.COMMANDS.values() for each in names if (name := each.__name__)}
    assert every | {*command_line.GROUPS, "devices"} == LOOKS.keys() | TIMES_AGAIN | OF_NO_STUDY


@pytest.mark.parametrize(("command", "words"), [(name, words) for name, each in LOOKS.items() for words in each])
def test_a_command_says_it(known: Known, command: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(known, command, words, monkeypatch)
    assert bare(known, text) == []
    if command not in ("export",) and words[-1:] != ("costs",):
        assert UNCONFIRMED in text.lower()


# Pages and documents --------------------------------------------------------------------------------------------------


TABS = ("rejects", "variants", "leaderboard", "problems", "costs")


class Places(HTMLParser):
    """The texts of a page, each with the elements around it."""

    WHOLE = ("tr", "table", "figure", "p", "li", "dd", "article", "section", "text", "g")
    """What a reader takes in at one look."""

    def __init__(self) -> None:
        super().__init__()
        self._open: list[tuple[str, list[str]]] = []
        self.texts: list[tuple[str, list[list[str]]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.WHOLE:
            self._open.append((tag, []))

    def handle_endtag(self, tag: str) -> None:
        if tag in self.WHOLE:
            while self._open and self._open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        around = [each for _, each in self._open]
        for each in around:
            each.append(data)
        self.texts.append((data, around))


def bare_on(known: Known, page: str) -> list[str]:
    """Texts with an estimate that nothing around them says to be one."""
    places = Places()
    places.feed(re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL))
    return [
        text.strip()
        for text, around in places.texts
        if known.quoted.search(text)
        and UNCONFIRMED not in text.lower()
        and not any(UNCONFIRMED in " ".join(each).lower() for each in around)
    ]


def bare_in(known: Known, document: Any, around: tuple[dict[str, Any], ...] = ()) -> list[Any]:
    """Numbers of a document that are estimates, where no object around them says so."""
    if isinstance(document, dict):
        inner = (*around, document)
        return [found for each in document.values() for found in bare_in(known, each, inner)]
    if isinstance(document, list):
        return [found for each in document for found in bare_in(known, each, around)]
    if not known.has(document):
        return []
    says = (
        ("confirmed" in key and not value) or (isinstance(value, str) and UNCONFIRMED in value.lower())
        for each in around
        for key, value in each.items()
    )
    return [] if any(says) else [(document, around[-1] if around else None)]


@pytest.fixture(scope="module")
def client(known: Known) -> Iterator[TestClient]:
    with serving(known.path) as found:
        yield found


def paths(known: Known) -> list[str]:
    """All that the service answers, about these studies."""
    found = []
    for route in (route for each in (api.router, api.sweep_router, pages.router) for route in each.routes):
        if isinstance(route, Route) and "GET" in (route.methods or ()):
            number = str(known.sweep if "/sweeps" in route.path else known.best)
            path = route.path.replace("{study}", known.study).replace("{number}", number)
            found += [path.replace("{tab}", tab) for tab in (TABS if "{tab}" in path else ("",))]
    return [f"{each}?a={known.study}&b={known.other}" if each.endswith("/compare") else each for each in found]


def test_every_page_and_every_answer_says_it(known: Known, client: TestClient) -> None:
    bare_ones: dict[str, list[Any]] = {}
    pages_looked_at, documents = set[str](), set[str]()
    for path in paths(known):
        answer = client.get(path, headers={} if path.startswith("/api/v1") else {"Accept": "text/html"})
        if "json" in answer.headers["content-type"]:
            bare_ones[path] = bare_in(known, answer.json())
            documents |= {path} if known.has(answer.json()) else set()
        else:
            bare_ones[path] = bare_on(known, answer.text)
            pages_looked_at |= {path} if known.quoted.search(answer.text) else set()
    assert not {path: found[:3] for path, found in bare_ones.items() if found}
    assert len(pages_looked_at) >= 8, pages_looked_at
    assert len(documents) >= 8, documents


def test_the_metrics_say_it(known: Known, client: TestClient) -> None:
    lines = [line for line in client.get("/metrics").text.splitlines() if "best_speedup{" in line]
    assert lines
    assert all(f'by="{UNCONFIRMED}"' in line for line in lines)


@pytest.mark.slow
def test_what_is_carried_away_says_it(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "studies.db")) as store:
        tuned(store, record())
        (entry,) = table_of(store, ["scalar-abc"], estimates=True).entries
    assert UNCONFIRMED in entry.why
    plain = tables.one(tables.problem(32))
    entries = tuple(each.model_copy(update={"why": entry.why}) for each in plain.entries)
    of = plain.model_copy(update={"estimates": True, "entries": entries})
    tables.in_c(of, tmp_path / "in-c")
    tables.packed(of, tmp_path / "packed")
    for name in ("in-c/autotuner_in_c.h", "in-c/export.json", "packed/README.md"):
        assert UNCONFIRMED in (tmp_path / name).read_text().lower(), name
    inputs = [torch.randn(1, 2, 32, 64) for _ in range(3)]
    said = autotuner.load(tables.write(of, tmp_path / "best.json")).explain(*inputs)
    assert said.variant == str(of.variants[0].variant)
    assert UNCONFIRMED in said.why
