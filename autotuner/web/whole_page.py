"""A study's pages as one HTML file: the same drawings, nothing loaded from anywhere, to mail or to keep."""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress
from pathlib import Path

from markupsafe import Markup

from autotuner.values.errors import InputError
from autotuner.views.beliefs import StudyBeliefs
from autotuner.views.drawings import (
    answer,
    beliefs,
    costs,
    coverage,
    history,
    leaderboard,
    problems,
    rejects,
    scatter,
    timeline,
)
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.links import SavedLinks
from autotuner.views.drawings.trial import head, trial_page
from autotuner.views.snapshot import Snapshot
from autotuner.web import templates

SCRIPTS = ("times.js", "copy.js")
STYLE = "pages.css"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _script() -> str:
    return "".join(map(templates.static_text, SCRIPTS))


POLICY = (
    f"default-src 'none'; style-src {_hash(templates.static_text(STYLE))};"
    f" script-src {_hash(_script())}; base-uri 'none'; form-action 'none'"
)
"""Content-Security-Policy of the file, by the hashes of its own style and script."""


def render(snapshot: Snapshot, store: str, believed: StudyBeliefs | str, roots: tuple[Path, ...] = ()) -> str:
    """The file's text. It holds the trial to use and the last reject of each cause in full. `believed`: what the study
    has shown of its space, or why that was not found."""
    best, causes = snapshot.best, rejects.by_cause(snapshot.trials)
    numbers = dict.fromkeys([*([] if best is None else [best.entry.number]), *causes.values()])
    links = SavedLinks(numbers, causes)
    figure, every, _ = timeline.timeline(snapshot)
    trials = [trial_page(snapshot, number, store, roots) for number in numbers]
    return templates.render(
        "saved.html",
        study=snapshot,
        running=snapshot.running,
        links=links,
        policy=POLICY,
        style=Markup(templates.static_text(STYLE)),
        script=Markup(_script()),
        cards=answer.cards(snapshot, store),
        rejects=rejects.rejects(snapshot, links),
        history=history.history(snapshot, links),
        board=leaderboard.leaderboard(snapshot, links, 30),
        problems=problems.problems(snapshot, links),
        scatter=scatter.scatter(snapshot, links, scatter.Choice("number", "speedup", "kind", {})),
        timeline=figure,
        runs=timeline.runs(every),
        costs=(*costs.costs(snapshot.costs), *costs.baselines(snapshot.baselines)),
        coverage=_coverage(snapshot),
        believed=None if isinstance(believed, str) else beliefs.page(believed),
        unbelieved=believed,
        trials=[(each, head(snapshot, each)) for each in trials],
    )


def _coverage(snapshot: Snapshot) -> tuple[Figure, ...]:
    """Nothing where this version cannot read the study's space."""
    with suppress(InputError):
        return (coverage.coverage(snapshot.coverage),)
    return ()
