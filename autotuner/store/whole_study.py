"""A study with all its rows, ours and Optuna's: as data for another store, renamed, annotated, and deleted.

As data a row is a list of plain values. Keys are counted from 1 in each table, so that a study is the same data in
whichever store it lies.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, cast

import sqlalchemy as sa
from optuna.storages._rdb.models import BaseModel as OptunaBase
from pydantic import JsonValue
from sqlalchemy.orm import Session

from autotuner.store.database import reads, writes
from autotuner.store.queries import NOTE
from autotuner.store.store import Store, study_id
from autotuner.store.tables import Base, Document, StudyRow, SweepRow, UtcDateTime
from autotuner.values.errors import InputError, StoreError

Data = Mapping[str, Sequence[Sequence[JsonValue]]]
"""By table its rows, each with the values of the table's columns in their order."""

OURS = [
    Base.metadata.tables[f"at_{name}"]
    for name in ("study", "session", "trial", "parameter", "block", "finals", "heat", "validation", "profile")
]
OPTUNAS = [
    OptunaBase.metadata.tables[name]
    for name in (
        *("studies", "study_directions", "study_system_attributes", "study_user_attributes", "trials", "trial_params"),
        *("trial_values", "trial_system_attributes", "trial_user_attributes"),
    )
]
TABLES = {table.name: table for table in (*OURS, *OPTUNAS)}
"""Each after those that its rows point to."""
BEATS = OptunaBase.metadata.tables["trial_heartbeats"]
PICKLED = "cma"
"""How the keys begin under which Optuna keeps pickled objects, which may run anything when they are read: they stay
where they are, and `cmaes` begins its generations anew."""


@reads
def data_of(store: Store, session: Session, name: str) -> Data:
    """All rows of a study. Raises StoreError: no such study."""
    connection, places, found = session.connection(), dict[str, dict[int, int]](), dict[str, list[list[JsonValue]]]()
    roots = _roots(store, session, name)
    for table in _there(connection):
        mine = sa.select(table).where(_mine(table, roots)).order_by(*table.primary_key.columns)
        rows = [dict(row._mapping) for row in connection.execute(mine)]
        kept = [each for each in rows if not _is_pickled(table, each)]
        key = _key(table)
        if key is not None:
            places[table.name] = {row[key.name]: place for place, row in enumerate(kept, start=1)}
        found[table.name] = [_plain(table, row, places) for row in kept]
    return found


def _plain(table: sa.Table, row: Mapping[str, Any], places: Mapping[str, Mapping[int, int]]) -> list[JsonValue]:
    found: list[JsonValue] = []
    for column in table.columns:
        value, parent = row[column.name], _parent(column)
        if column is _key(table):
            found.append(places[table.name][value])
        elif parent is not None and value is not None:
            found.append(places[parent][value])
        elif isinstance(column.type, Document):
            found.append(column.type.process_bind_param(value, cast(Any, None)))
        elif isinstance(value, datetime):
            found.append(value.isoformat())
        else:
            found.append(value.name if isinstance(value, Enum) else value)
    return found


def add(store: Store, data: Data) -> str:
    """Writes a study that the store lacks, whole or not at all; its name.

    Raises InputError where the data are not what `data_of` gives, and StoreError where the store has one of this name.
    """
    try:
        if data.keys() - TABLES.keys():
            raise ValueError("another table")
        rows = {name: [_row(TABLES[name], each) for each in found] for name, found in data.items()}
        (study,), (optunas,) = rows["at_study"], rows["studies"]
        name = str(study["name"])
        if optunas["study_name"] != name:
            raise ValueError("Optuna's study has another name")
        _require_name(name)
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"its rows are not those of a study: {' '.join(str(error).split())[:200]}") from None
    store.optuna_storage()  # makes its tables
    _add(store, name, rows)
    return name


@writes
def _add(store: Store, session: Session, name: str, rows: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    if session.scalar(sa.select(StudyRow.id).where(StudyRow.name == name)) is not None:
        raise StoreError(f"{store.label} has {name} already: delete or rename it first")
    keys: dict[str, list[int]] = {}
    Base.metadata.create_all(session.connection(), OURS)
    for table in TABLES.values():
        key = _key(table)
        if not rows.get(table.name):
            continue
        given = [_placed(table, row, keys) for row in rows[table.name]]
        if key is None:
            session.execute(sa.insert(table), given)
        else:
            added = sa.insert(table).returning(key, sort_by_parameter_order=True)
            keys[table.name] = list(session.scalars(added, given))


def _row(table: sa.Table, values: Sequence[JsonValue]) -> dict[str, Any]:
    """A row as the database takes it; references are as they were."""
    pairs = zip(table.columns, values, strict=True)
    row = {column.name: _value(column, value) for column, value in pairs}
    if _is_pickled(table, row):
        raise ValueError("a pickled object")
    return row


def _value(column: sa.Column[Any], value: JsonValue) -> Any:
    if value is None:
        return None
    if not isinstance(value, str | int | float):
        raise ValueError(f"{column}: no plain value")
    if isinstance(column.type, Document):
        return column.type.process_result_value(str(value), cast(Any, None))
    if isinstance(column.type, sa.DateTime | UtcDateTime):
        return datetime.fromisoformat(str(value))
    if isinstance(column.type, sa.Enum):
        return cast(Any, column.type.enum_class)[str(value)]
    kind = column.type.impl_instance if isinstance(column.type, sa.TypeDecorator) else column.type
    if isinstance(kind, sa.Integer) and not isinstance(value, int):
        raise ValueError(f"{column}: no whole number")
    return value


def _placed(table: sa.Table, row: Mapping[str, Any], keys: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The row with the keys that what it points to has got here, and without its own."""
    found = {column.name: row[column.name] for column in table.columns if column is not _key(table)}
    for column in table.columns:
        parent = _parent(column)
        if parent is not None and row[column.name] is not None:
            place = row[column.name]
            if not 1 <= place <= len(keys.get(parent, ())):
                raise InputError(f"its rows are not those of a study: {column} points nowhere")
            found[column.name] = keys[parent][place - 1]
    return found


def remove(store: Store, name: str) -> None:
    """Deletes a study with all its rows. Sweeps that made it stay, without it. Raises StoreError: no such study, or a
    living driver has it."""
    with store.lease(name):
        _remove(store, name)
    store.study_ids.pop(name, None)


@writes
def _remove(store: Store, session: Session, name: str) -> None:
    connection, roots = session.connection(), _roots(store, session, name)
    session.execute(sa.update(SweepRow).where(SweepRow.study == name).values(study=None))
    for table in reversed([*_there(connection), *([BEATS] if "trials" in roots or "studies" in roots else [])]):
        session.execute(sa.delete(table).where(_mine(table, roots)))


def _require_name(name: str) -> None:
    """Raises InputError for what cannot be shown, or be part of an address or of a file's name."""
    if not name.isprintable() or not name.strip() or len(name) > 200 or "/" in name:
        raise InputError("a study's name has 1 to 200 printable characters, and no /")


def rename(store: Store, name: str, new: str) -> None:
    """Gives a study another name. Raises StoreError: no such study, a living driver has it, or the new name is taken;
    and InputError for a name that is none."""
    _require_name(new)
    with store.lease(name):
        _rename(store, name, new)
    store.study_ids.pop(name, None)


@writes
def _rename(store: Store, session: Session, name: str, new: str) -> None:
    if session.scalar(sa.select(StudyRow.id).where(StudyRow.name == new)) is not None:
        raise StoreError(f"{store.label} has a study {new!r} already: choose another name")
    session.execute(sa.update(StudyRow).where(StudyRow.id == study_id(session, store, name)).values(name=new))
    session.execute(sa.update(SweepRow).where(SweepRow.study == name).values(study=new))
    studies = TABLES["studies"]
    if sa.inspect(session.connection()).has_table(studies.name):
        session.execute(sa.update(studies).where(studies.c.study_name == name).values(study_name=new))


LONGEST = 1000
"""Characters of a note."""


@writes
def annotate(store: Store, session: Session, study: str, text: str) -> None:
    """Gives a study another note; "" takes it away. Raises StoreError: no such study, and InputError."""
    if len(text) > LONGEST or not all(each.isprintable() or each == "\n" for each in text):
        raise InputError(f"a note has {LONGEST} printable characters at most")
    key, notes = _roots(store, session, study).get("studies", -1), TABLES["study_user_attributes"]
    if key == -1:
        raise StoreError(f"{store.label} has no study {study!r} that was begun: `autotuner study list` lists them")
    session.execute(sa.delete(notes).where(notes.c.study_id == key, notes.c.key == NOTE))
    if text:
        session.execute(sa.insert(notes).values(study_id=key, key=NOTE, value_json=json.dumps(text)))


# Keys -----------------------------------------------------------------------------------------------------------------


def _there(connection: sa.Connection) -> list[sa.Table]:
    """The tables of the store: Optuna's, and that of profiles, are made when they are first needed."""
    there = {*sa.inspect(connection).get_table_names()}
    return [table for table in TABLES.values() if table.name in there]


def _roots(store: Store, session: Session, name: str) -> dict[str, int]:
    """The key of the study in our table and in Optuna's."""
    found = {"at_study": study_id(session, store, name)}
    studies = TABLES["studies"]
    if sa.inspect(session.connection()).has_table(studies.name):
        key = session.scalar(sa.select(studies.c.study_id).where(studies.c.study_name == name))
        found["studies"] = -1 if key is None else key
    return found


def _key(table: sa.Table) -> sa.Column[Any] | None:
    """The column that numbers the rows; None where several columns are the key."""
    columns = list(table.primary_key.columns)
    return columns[0] if len(columns) == 1 else None


def _parent(column: sa.Column[Any]) -> str | None:
    return next((each.column.table.name for each in column.foreign_keys), None)


def _mine(table: sa.Table, roots: Mapping[str, int]) -> sa.ColumnElement[bool]:
    if table.name in roots:
        key = _key(table)
        assert key is not None
        return key == roots[table.name]
    parents = {parent: column for column in table.columns if (parent := _parent(column)) is not None}
    root = next((each for each in parents if each in roots), None)
    if root is not None:
        return parents[root] == roots[root]
    above, column = next(iter(parents.items()))
    return column.in_(sa.select(_key(TABLES[above])).where(_mine(TABLES[above], roots)))  # type: ignore[arg-type]


def _is_pickled(table: sa.Table, row: Mapping[str, Any]) -> bool:
    return table.name.endswith("_system_attributes") and str(row["key"]).startswith(PICKLED)
