"""Tables of a study, each made once: a terminal prints them, a page shows them, and a program reads them as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, Field, JsonValue, create_model

from autotuner.values.model import Model, json_of
from autotuner.values.variant import Value
from autotuner.views import words
from autotuner.views.drawings.links import LINKS, Links

T = TypeVar("T")
Raw = JsonValue | datetime | BaseModel | Mapping[str, Any] | tuple[Any, ...]
"""What a cell holds."""
Where = Literal["always", "table", "wide", "full", "data"]
"""Where a column is shown: always; in tables; in those of pages and of a terminal with long lines; where one line is
told in full; to programs alone."""


class Column(NamedTuple, Generic[T]):
    """One column of a view: what it holds of each line, how that reads, and what the API says of it."""

    key: str
    """Its name for programs."""
    type: Any
    """What programs read; or null, which any column may hold."""
    says: str = ""
    """What the API's description adds to the name."""
    of: Callable[[T], Raw] | str | None = None
    """What it holds of a line, or the path of attributes there, such as `sweep.name`; None: its attribute of that
    name."""
    head: str | None = None
    """What stands above it; None: its name for programs."""
    reads: Callable[[Any], str] = words.plain
    """What a person reads of a value."""
    none: str = ""
    """What is read where there is no value."""
    text: Callable[[T], str] | None = None
    """What a person reads of a line, where that is not of the value alone."""
    right: bool | None = None
    """Set to the right; None: where it holds numbers."""
    where: Where = "always"
    href: Callable[[T], str | None] | None = None
    """The page that a cell leads to."""
    look: Callable[[T], str] | None = None
    """On a page the value is a chip: its colour."""
    inner: Iterable[Column[Any]] = ()
    """Columns of what it holds, which programs read as an object."""

    @property
    def title(self) -> str:
        """What stands above it."""
        return self.key.replace("_", " ") if self.head is None else self.head

    @property
    def is_right(self) -> bool:
        """Whether it is set to the right."""
        return self.type in (int, float) if self.right is None else self.right

    def cell(self, line: T) -> Cell:
        """What stands in the row of a line."""
        value = self.of(line) if callable(self.of) else value_at(line, self.of or self.key)
        if self.inner and value is not None:
            value = row_of(self.inner, value)
        text = self.text(line) if self.text is not None else self.none if value is None else self.reads(value)
        href, look = (None if made is None else made(line) for made in (self.href, self.look))
        return Cell(value, text, href, look)


class Cell(NamedTuple):
    """What stands in a row of a column."""

    value: Raw
    text: str
    href: str | None = None
    look: str | None = None


class Row(NamedTuple):
    """A line."""

    cells: tuple[Cell, ...]
    sign: str = ""
    """What it is; "" where there is nothing to say of it."""
    title: str = ""
    """What stands above the line where it is told in full."""


class Table(NamedTuple):
    """A view of a study with the notes above and below it."""

    columns: tuple[Column[Any], ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    above: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        columns: Iterable[Column[T]],
        lines: Iterable[T],
        notes: Iterable[str] = (),
        sign: Callable[[T], str] = lambda _: "",
        above: Iterable[str] = (),
        title: Callable[[T], str] = lambda _: "",
    ) -> Table:
        """A row a line."""
        every = tuple(columns)
        rows = (Row(tuple(each.cell(line) for each in every), sign(line), title(line)) for line in lines)
        return cls(every, tuple(rows), tuple(notes), tuple(above))

    @classmethod
    def plain(
        cls, titles: tuple[str, ...], rows: Iterable[tuple[str | datetime | Cell, ...]], right: Iterable[int] = ()
    ) -> Table:
        """A table whose cells are what is read; `right`: places of the columns that are set to the right."""
        places = {*right}
        columns = tuple(Column[Any](title, str, head=title, right=at in places) for at, title in enumerate(titles))
        read = [[each if isinstance(each, Cell) else Cell(each, words.plain(each)) for each in row] for row in rows]
        return cls(columns, tuple(Row(tuple(row)) for row in read))

    def shown(self, *where: Where) -> Table:
        """The columns for people: those that always are shown, and `where`."""
        places = [place for place, each in enumerate(self.columns) if each.where in ("always", *where)]
        rows = (row._replace(cells=tuple(row.cells[place] for place in places)) for row in self.rows)
        return self._replace(columns=tuple(self.columns[place] for place in places), rows=tuple(rows))

    @property
    def in_full(self) -> Table:
        """The only row on its side: a row for each column that is not empty."""
        told = self.shown("full")
        (row,) = told.rows
        pairs = zip(told.columns, row.cells, strict=True)
        return Table.plain(("what", "value"), [(column.title, cell) for column, cell in pairs if cell.text])

    def lines(self) -> list[dict[str, Raw]]:
        """What stands in the columns of each row, by their keys."""
        return [{c.key: cell.value for c, cell in zip(self.columns, row.cells, strict=True)} for row in self.rows]

    def json(self) -> list[dict[str, JsonValue]]:
        """The rows for programs, each an object; times are ISO 8601, in UTC, and numbers that are not finite null."""
        return [{key: _json(value) for key, value in line.items()} for line in self.lines()]


class Fields(Generic[T]):
    """Makes columns of the lines of one model: its fields say what each column holds, and what the API says of it."""

    def __init__(self, model: type[T]) -> None:
        self._model = model

    def __call__(
        self, key: str, path: str | None = None, of: Callable[[T], Raw] | None = None, **more: Any
    ) -> Column[T]:
        """A column; `path`: of its field, if not its name; `of`: what it holds instead; `more` as of `Column`."""
        kind: Any = self._model
        says = ""
        for name in (path or key).split("."):
            field = kind.model_fields[name]
            others = [each for each in get_args(field.annotation) if each is not type(None)]
            is_optional = type(None) in get_args(field.annotation) and len(others) == 1
            kind, says = others[0] if is_optional else field.annotation, field.description or says
        return Column(key, **{"type": kind, "says": says, "of": of or path, **more})

    def data(self, *keys: str, **of: str) -> list[Column[T]]:
        """Columns for programs alone: fields by their names, and others by their paths."""
        return [self(key, path, where="data") for key, path in [*((key, None) for key in keys), *of.items()]]


def value_at(line: Any, path: str) -> Any:
    """What stands there; None where something on the way is missing."""
    for name in path.split("."):
        line = None if line is None else getattr(line, name)
    return line


def row_of(columns: Iterable[Column[T]], line: T) -> dict[str, JsonValue]:
    """A line for programs."""
    return {each.key: _json(each.cell(line).value) for each in columns}


def model_of(name: str, says: str, columns: Iterable[Column[Any]]) -> type[Model]:
    """What programs read of a line of these columns, for the API's description."""
    fields: dict[str, Any] = {each.key: (each.type | None, Field(description=each.says or None)) for each in columns}
    return create_model(name, __base__=Model, __doc__=says, **fields)


def _json(value: Any) -> JsonValue:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, BaseModel):
        return json_of(value)
    if isinstance(value, Mapping):
        return {key: _json(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_json(each) for each in value]
    found: JsonValue = None if isinstance(value, float) and not math.isfinite(value) else value
    return found


def trial_column(study: str, links: Links = LINKS) -> Column[Any]:
    """The number of a trial, which on a page leads to its own."""
    return Column("trial", int, "its number", "number", reads=str, href=lambda line: links.trial(study, line.number))


def points_column(point: str) -> Column[Any]:
    """The parameters, at that path: IMPL first, then by name. A terminal shows of each what tells it from the first."""
    return Column(words.POINTS, dict[str, Value], "IMPL first, then by name", point, reads=words.point)


def data(key: str, type: Any, says: str = "", of: Callable[[Any], Raw] | str | None = None) -> Column[Any]:
    """A column for programs alone."""
    return Column(key, type, says, of, where="data")
