"""Every command quotes what finals confirmed once there is something, and what is believed is corrected by it."""

import contextlib
import io
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autotuner.cli.app import app
from autotuner.store import Store
from autotuner.tuning.finals import standings
from tests.helpers import simulated
from tests.helpers.simulated_finals import confirmed, executor, flatter, swept

FLATTERED = 50.0
"""A speedup that only the search's estimate of the flattered trial is above."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Store, str]]:
    """A folder with a store, and a study there whose best trial looks 55 times as fast as it is, before any finals."""
    folder = tmp_path_factory.mktemp("user")
    with closing(Store.open(str(folder / "studies.db"))) as store:
        name = swept(store, simulated.truth, 40)
        best = standings.best(store, name)
        assert best is not None
        with closing(sqlite3.connect(folder / "studies.db")) as raw, raw:
            flatter(raw, best.entry.number)
        yield folder, store, name


def said(folder: Path, *words: str) -> str:
    """What a command prints: in this process, as each of its own imports all anew."""
    out = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
        app(args=[*words])
    assert not ended.value.code
    return " ".join(out.getvalue().split())


def told(folder: Path, *words: str) -> Any:
    """A document that a command prints."""
    return json.loads(said(folder, *words, "--json"))


def speedups(text: str) -> list[float]:
    """All of `1.234x` in a text."""
    return [float(each) for each in re.findall(r"(\d+\.?\d*)x", text)]


@pytest.mark.slow
def test_every_command_quotes_the_confirmed_figure_and_explain_believes_it(study: tuple[Path, Store, str]) -> None:
    folder, store, name = study
    lucky = standings.best(store, name)
    number = str(lucky.entry.number)
    before = told(folder, "explain")
    assert before["beliefs"]["best"]["speedup"] > FLATTERED
    (summary,) = told(folder, "status")
    assert (summary["best_speedup"] > FLATTERED, summary["best_confirmed"]) == (True, False)

    confirmed(store, name, executor(simulated.truth))
    best = standings.best(store, name)
    figure = best.confirmed.mid
    assert figure < FLATTERED / 10
    (summary,) = told(folder, "status")
    assert (summary["best_speedup"], summary["best_confirmed"]) == (pytest.approx(figure), True)
    assert f"{figure:.3f}x SDPA confirmed" in said(folder, "status")
    assert told(folder, "show")["trial"]["confirmed"] == pytest.approx(figure)
    exported = json.loads(said(folder, "export", "--format", "json", "--out", "-"))
    assert exported["confirmed"]["mid"] == pytest.approx(figure)

    true = standings.every_confirmed(store, name).get(lucky.entry.number)
    assert f"Confirmed by the last finals: {true.mid:.3f} times as fast" in said(folder, "show", number)
    after = told(folder, "explain")
    assert after["beliefs"]["best"]["speedup"] < FLATTERED / 10
    assert all(belief["speedup"] < FLATTERED / 10 for belief in after["beliefs"]["promising"])
    assert max(speedups(said(folder, "explain"))) < FLATTERED / 10
