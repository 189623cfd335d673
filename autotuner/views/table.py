"""Tables of a study, each made once: a terminal prints them, a page shows them, and a program reads them as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pydantic import JsonValue

from autotuner.values.model import json_of
from autotuner.values.ratio import Speedup
from autotuner.views import words

if TYPE_CHECKING:
    from autotuner.views.drawings.links import Links

T = TypeVar("T")
Raw = JsonValue | datetime | Speedup | Mapping[str, Any]
"""What a cell holds."""


class Column(NamedTuple, Generic[T]):
    """One column of a view: what it holds of each line, and how that reads."""

    key: str
    """Its name for programs."""
    head: str
    of: Callable[[T], Raw]
    reads: Callable[[Any], str] = words.plain
    """What a person reads of a value."""
    none: str = ""
    """What is read where there is no value."""
    right: bool = True
    """Set to the right, as numbers are."""
    wide: bool = False
    """A terminal leaves it out where lines are short."""
    href: Callable[[T], str | None] | None = None
    """The page that a cell leads to."""
    mark: Callable[[T], str] | None = None
    """A sign that stands before what is read, of an estimate, say."""
    after: bool = False
    """The sign stands behind it."""


class Cell(NamedTuple):
    """What stands in a row of a column."""

    value: Raw
    text: str
    href: str | None = None

    @property
    def json(self) -> JsonValue:
        """The value for programs; times are ISO 8601, in UTC."""
        if isinstance(self.value, datetime):
            return self.value.astimezone(UTC).isoformat()
        if isinstance(self.value, Speedup):
            return json_of(self.value)
        return dict(self.value) if isinstance(self.value, Mapping) else self.value


class Row(NamedTuple):
    """A line, and the sign of what it is; "" where there is nothing to say of it."""

    cells: tuple[Cell, ...]
    sign: str = ""


class Head(NamedTuple):
    """What a renderer knows of a column."""

    key: str
    text: str
    right: bool = False
    wide: bool = False


class Table(NamedTuple):
    """A view of a study with the notes below it."""

    columns: tuple[Head, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    signed: bool = False
    """Its rows may have signs."""

    @classmethod
    def of(
        cls,
        columns: Iterable[Column[T]],
        lines: Iterable[T],
        notes: Iterable[str] = (),
        sign: Callable[[T], str] | None = None,
    ) -> Table:
        """A row a line."""
        every = tuple(columns)
        signs = sign or (lambda _: "")
        rows = tuple(Row(tuple(_cell(column, line) for column in every), signs(line)) for line in lines)
        titles = tuple(Head(each.key, each.head, each.right, each.wide) for each in every)
        return cls(titles, rows, tuple(notes), sign is not None)

    @classmethod
    def plain(
        cls, titles: tuple[str, ...], rows: Iterable[tuple[str | datetime | Cell, ...]], right: Iterable[int] = ()
    ) -> Table:
        """A table whose cells are what is read; `right`: places of the columns that are set to the right."""
        places = {*right}
        columns = tuple(Head(text.replace(" ", "_"), text, place in places) for place, text in enumerate(titles))
        return cls(columns, tuple(Row(tuple(map(_read, row))) for row in rows))

    def json(self) -> list[JsonValue]:
        """The rows for programs, each an object with what stands in its columns, and what its sign says."""
        keys = [column.key for column in self.columns]
        rows = [dict(zip(keys, (cell.json for cell in row.cells), strict=True)) for row in self.rows]
        if self.signed:
            rows = [{**of, "sign": words.SIGNS.get(row.sign)} for of, row in zip(rows, self.rows, strict=True)]
        return list(rows)


def _cell(column: Column[T], line: T) -> Cell:
    value = column.of(line)
    text = column.none if value is None else column.reads(value)
    mark = column.mark(line) if column.mark is not None else ""
    read = f"{text}{mark}" if column.after else f"{mark}{text}"
    return Cell(value, text if value is None else read, None if column.href is None else column.href(line))


def _read(value: str | datetime | Cell) -> Cell:
    if isinstance(value, Cell):
        return value
    return Cell(value, words.moment(value) if isinstance(value, datetime) else value)


def trial_column(number: Callable[[T], int], study: str, links: Links | None) -> Column[T]:
    """The number of a trial, which leads to its page where there are pages."""
    href = None if links is None else lambda line: links.trial(study, number(line))
    return Column("trial", "trial", number, str, href=href)


def linked(text: str, href: str | None) -> Cell:
    """A cell that leads to a page; `href` None: there is no such page here."""
    return Cell(text, text, href)
