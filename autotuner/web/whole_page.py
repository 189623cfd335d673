"""A study's pages as one HTML file: the same drawings, nothing loaded from anywhere, to mail or to keep."""

import base64
import hashlib

from markupsafe import Markup

from autotuner.views.beliefs import StudyBeliefs
from autotuner.views.drawings.links import SavedLinks
from autotuner.views.drawings.sections import SECTIONS, TABS, Lead, Part, believed as parts_of, by_cause, cards
from autotuner.views.drawings.trial import trial_page
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


def render(snapshot: Snapshot, store: str, believed: StudyBeliefs | str) -> str:
    """The file's text. It holds the trial to use and the last reject of each cause in full. `believed`: what the study
    has shown of its space, or why that was not found."""
    best, causes = snapshot.best, by_cause(snapshot.trials)
    numbers = dict.fromkeys([*([] if best is None else [best.entry.number]), *causes.values()])
    links = SavedLinks(numbers, causes)
    said: tuple[Part, ...] = (
        (Lead(f"The beliefs were not found: {believed}"),) if isinstance(believed, str) else parts_of(believed)
    )
    return templates.render(
        "saved.html",
        study=snapshot,
        links=links,
        policy=POLICY,
        style=Markup(templates.static_text(STYLE)),
        script=Markup(_script()),
        tabs=[each for each in TABS if each[0] != "variants"],
        cards=cards(snapshot, store),
        sections=[*((each.key, each.parts(snapshot, links, None)) for each in SECTIONS), ("beliefs", said)],
        trials=[trial_page(snapshot, number, store) for number in numbers],
    )
