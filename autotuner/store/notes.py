"""What people note of a study: an attribute of Optuna's study, where its own tools show it, too."""

import json

from sqlalchemy import column, delete, insert, inspect, select, table
from sqlalchemy.orm import Session

from autotuner.store.database import writes
from autotuner.store.store import Store
from autotuner.values.errors import InputError, StoreError

KEY = "note"
LONGEST = 1000
"""Characters of a note."""
_STUDIES = table("studies", column("study_id"), column("study_name"))
_NOTES = table("study_user_attributes", column("study_id"), column("key"), column("value_json"))


def note_in(session: Session, study: str) -> str:
    """The note of a study; "" for none."""
    if not inspect(session.connection()).has_table(_STUDIES.name):  # no driver has made Optuna's tables yet
        return ""
    mine = select(_NOTES.c.value_json).join(_STUDIES, _STUDIES.c.study_id == _NOTES.c.study_id)
    found = session.scalar(mine.where(_STUDIES.c.study_name == study, _NOTES.c.key == KEY))
    return "" if found is None else str(json.loads(found))


@writes
def annotate(store: Store, session: Session, study: str, text: str) -> None:
    """Gives a study another note; "" takes it away. Raises StoreError: no such study, and InputError."""
    if len(text) > LONGEST or not all(each.isprintable() or each == "\n" for each in text):
        raise InputError(f"a note has {LONGEST} printable characters at most")
    of = select(_STUDIES.c.study_id).where(_STUDIES.c.study_name == study)
    found = session.scalar(of) if inspect(session.connection()).has_table(_STUDIES.name) else None
    if found is None:
        raise StoreError(f"{store.label} has no study {study!r} that was begun: `autotuner study list` lists them")
    session.execute(delete(_NOTES).where(_NOTES.c.study_id == found, _NOTES.c.key == KEY))
    if text:
        session.execute(insert(_NOTES).values(study_id=found, key=KEY, value_json=json.dumps(text)))
