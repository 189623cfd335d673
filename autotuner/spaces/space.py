"""Space: the valid points of a space file on one device, all of them enumerated.

`Space.enumerate` adds the facts of a device and of the problems to a `SpaceFile`, and lists every point at which all
constraints hold, for every problem.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import PydanticCustomError

from autotuner.spaces.enumeration import Enumeration
from autotuner.spaces.expectations import doublings, expected_latency
from autotuner.spaces.expression import ExpressionError
from autotuner.spaces.fields import EXPECTED, Facts
from autotuner.spaces.space_file import SpaceFile
from autotuner.values.errors import SpaceError
from autotuner.values.validation import refuse, show
from autotuner.values.variant import Value, digest_of

__all__ = ["Space", "SpaceFile"]

Array = NDArray[Any]

_AT_ONCE = 1 << 17


@dataclass(frozen=True, eq=False)
class Space:
    """Every valid point of a space file on one device, in lexicographic order of value indices; N points, d parameters.

    `rows` (N, d), int16, read-only: for each point the indices of its values, -1 where the parameter does not exist.
    `raw_count`: the points before any constraint; a parameter counts only where it exists.
    `applied`: the constraints (by their place in the file) in the order in which they were applied.
    `removed`: for each constraint of the file, the raw points that it removed and none applied before it had, so that
    `raw_count - sum(removed) == len(space)`.
    """

    file: SpaceFile
    facts: dict[str, int | str | bool]
    rows: NDArray[np.int16]
    raw_count: int
    applied: tuple[int, ...]
    removed: tuple[int, ...]

    @classmethod
    def enumerate(cls, file: SpaceFile, facts: Facts) -> Space:
        """List the valid points on a device with these `facts`; each problem adds its own.

        Raises SpaceError, one line that names the file and the key, when an expression names an unknown fact or has no
        value, when no point is valid, and when the points are too many.
        """
        try:
            return cls._enumerate(file, facts)
        except PydanticCustomError as error:
            raise SpaceError(f"{file.where}: {(error.context or {})['key']}: {error.message()}") from None

    @classmethod
    def _enumerate(cls, file: SpaceFile, facts: Facts) -> Space:
        work = Enumeration(file, facts)
        radices = [len(item.values) + (item.when is not None) for item in file.parameters.values()]
        if math.prod(radices) >= 2**63:
            raise refuse("the product of the numbers of values exceeds 64 bits; expected fewer", "parameters")
        file.check_default({**facts, **file.shared_facts})
        columns = work.run()
        rows = np.asfortranarray(np.stack([columns[name] for name in file.parameters], axis=1))
        counts = work.completions({}, file.order), tuple(work.applied), tuple(work.removed)
        space = cls(file, dict(facts), rows, *counts)
        order = np.argsort(space._keys_of(rows), kind="stable")
        rows[:] = rows[order]
        rows.flags.writeable = False
        space._check_derived()
        return space

    def _check_derived(self) -> None:
        try:
            nowhere = [bool(np.isnan(each).all()) for each in self.derived.T]
        except ExpressionError as error:
            raise refuse(f"{show(error.text)}: {error.reason}", "derived") from None
        for name, never in zip(self.file.derived, nowhere, strict=True):
            if never:
                raise refuse("positive at no valid point; expected an amount of something", f"derived.{name}")
        try:
            if self.expected is not None and np.isnan(self.expected).all():
                raise refuse("positive at no valid point; expected a time", EXPECTED)
        except ExpressionError as error:
            raise refuse(f"{show(error.text)}: {error.reason}", EXPECTED) from None

    @cached_property
    def derived(self) -> NDArray[np.float64]:
        """(N, q): the derived quantities of the points, in doublings; NaN where there is none."""
        return doublings(self.file, self.facts, self.file.problems, self.rows)

    @cached_property
    def expected(self) -> NDArray[np.float64] | None:
        """(N,): the logarithm of the latency that the file expects of the points, in a unit of its own; NaN where it
        expects none."""
        return expected_latency(self.file, self.facts, self.file.problems, self.rows)

    @property
    def expected_spread(self) -> float | None:
        """How many times as long as the fastest point the slowest one is expected to take; None where the file expects
        nothing."""
        return None if self.expected is None else float(np.exp(np.nanmax(self.expected) - np.nanmin(self.expected)))

    @property
    def derived_ranges(self) -> dict[str, tuple[float, float]]:
        """The least and the greatest that each derived quantity comes to."""
        ranges = [(2 ** float(np.nanmin(each)), 2 ** float(np.nanmax(each))) for each in self.derived.T]
        return dict(zip(self.file.derived, ranges, strict=True))

    @property
    def name(self) -> str:
        """The name of the space file, without folder and suffix."""
        return self.file.name

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the d parameters, in the order of the file and of the columns of `rows`."""
        return tuple(self.file.parameters)

    @cached_property
    def values(self) -> dict[str, tuple[Value, ...]]:
        """The values of each parameter, in the order of the file; an entry of `rows` is an index into them."""
        return {name: parameter.values for name, parameter in self.file.parameters.items()}

    @cached_property
    def alone(self) -> tuple[int | None, ...]:
        """For each constraint the raw points that it forbids by itself; None where counting them would be too much."""
        work = Enumeration(self.file, self.facts)
        return tuple(work.alone(i) for i in range(len(self.file.constraints)))

    @cached_property
    def default_index(self) -> int:
        """The index of the file's default point; where that is not valid here, of the nearest point that has the same
        parameters, or of the nearest."""
        row = self.row_of(self.file.default)
        index = int(self.indices_of(row[None])[0])
        if index >= 0:
            return index
        others = ((self.rows >= 0) != (row >= 0)).any(axis=1)
        return self.nearest(row, exclude=None if others.all() else others)

    @cached_property
    def default(self) -> dict[str, Value]:
        """The point at that index."""
        return self.point(self.default_index)

    @cached_property
    def why_another_default(self) -> str | None:
        """Which constraint the file's default point breaks here, with its reason; None where it is valid."""
        if self.index_of(self.file.default) is not None:
            return None
        row, work = self.row_of(self.file.default), Enumeration(self.file, self.facts)
        columns = {name: row[[column]] for column, name in enumerate(self.parameters)}
        broken = (
            f"{key} {constraint.expression!r} ({constraint.reason})"
            for i, constraint in enumerate(self.file.constraints)
            if not work.holds(f"{(key := self.file.constraint_key(i))}.expression", columns, absent=True)[0]
        )
        return f"default: not valid here: {next(broken)}; the nearest valid point takes its place"

    @cached_property
    def digest(self) -> str:
        """Identity of the space, 64 hex digits: what is computed and how, the parameters, and which points are valid.

        The wording of conditions, constraints, reasons and title does not matter; which points they leave does.
        """
        content = self.file.model_dump(mode="json", include={"family", "backend", "threads", "cache", "default"})
        content["problems"] = [problem.identity for problem in self.file.problems]
        if self.file.objective != "mean":  # what says nothing of it has the digest that it always had
            content["objective"] = self.file.objective
        content["parameters"] = [[name, list(values)] for name, values in self.values.items()]
        content["points"] = hashlib.sha256(np.ascontiguousarray(self.rows, dtype="<i2").tobytes()).hexdigest()
        return digest_of(content)

    def __len__(self) -> int:
        return len(self.rows)

    def point(self, index: int) -> dict[str, Value]:
        """The parameters that exist at a point, in the order of the file. Raises IndexError outside 0..N-1."""
        if not 0 <= index < len(self):
            raise IndexError(f"point {index} of a space of {len(self)} points")
        pairs = zip(self.values.items(), self.rows[index], strict=True)
        return {name: values[place] for (name, values), place in pairs if place >= 0}

    def row_of(self, point: Mapping[str, Value]) -> NDArray[np.int16]:
        """The value indices (d,) of a point, valid or not, -1 for what it lacks. KeyError for unknown content."""
        row = np.full(len(self.parameters), -1, dtype=np.int16)
        for name, value in point.items():
            row[self._column_of[name]] = self._index_of_value[name][value]
        return row

    def index_of(self, point: Mapping[str, Value]) -> int | None:
        """The index of a point; None when it is not a valid point of this space."""
        try:
            index = int(self.indices_of(self.row_of(point)[None])[0])
        except KeyError:
            return None
        return index if index >= 0 else None

    def completed(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The valid point nearest to the default one, or to the first of that IMPL, among those with these values.

        Where there is none, what was given: no valid point.
        """
        places = {name: self._index_of_value[name][value] for name, value in values.items()}
        fits = np.ones(len(self), dtype=np.bool_)
        for name, place in places.items():
            fits &= self.rows[:, self._column_of[name]] == place
        found = np.flatnonzero(fits)
        if not len(found):
            return dict(values)
        return self.point(int(found[np.argmin(self._distances(self.rows[found], self.rows[self.default_index]))]))

    def indices_of(self, rows: Array) -> NDArray[np.int64]:
        """The indices (m,) of points given as value indices (m, d), -1 for what is not a valid point."""
        digits = np.asarray(rows).astype(np.int64) + self._offsets
        inside = ((digits >= 0) & (digits < self._radices)).all(axis=1)
        keys = self._keys_of(rows)
        found = np.minimum(np.searchsorted(self._keys, keys), len(self) - 1)
        return np.where(inside & (self._keys[found] == keys), found, -1)

    def neighbours(self, index: int, radius: int = 1) -> NDArray[np.int64]:
        """The sorted indices of the valid points that differ from this one in one parameter.

        A number moves by up to `radius` places in its list, a string to any other value. Where that makes parameters
        appear or vanish, the neighbour is the nearest valid point with the new value: what stays is kept as far as
        possible, what appears takes the default point's value where that has one.
        """
        row = self.rows[index]
        plain: list[Array] = [row[None][:0]]
        switched: list[int] = []
        for column in np.flatnonzero(row >= 0):
            for value in self._moves(int(column), int(row[column]), radius):
                changed = row.copy()
                changed[column] = value
                if self._same_parameters(int(column), changed):
                    plain.append(changed[None])
                else:
                    switched.append(self._switched(int(column), changed))
        found = np.concatenate([self.indices_of(np.concatenate(plain)), np.array(switched, dtype=np.int64)])
        return np.unique(found[found >= 0])

    def nearest(self, row: Array, exclude: NDArray[np.bool_] | None = None) -> int:
        """The nearest valid point to value indices (d,), itself if valid; the lowest index among equals.

        The distance adds up, over the parameters that exist at both, the steps between the values of a number and 1 for
        a different string. `exclude` (N,) is true for points not to return; ValueError when that is all of them.
        """
        distances = self._distances(self.rows, np.asarray(row))
        if exclude is not None:
            if exclude.all():
                raise ValueError("every point of the space is excluded")
            distances[exclude] = np.iinfo(distances.dtype).max
        return int(np.argmin(distances))

    def _moves(self, column: int, place: int, radius: int) -> Iterable[int]:
        size = len(self.values[self.parameters[column]])
        if self._is_string[column]:
            return (other for other in range(size) if other != place)
        return (other for other in range(max(0, place - radius), min(size, place + radius + 1)) if other != place)

    def _same_parameters(self, column: int, row: Array) -> bool:
        """Whether the same parameters exist after the change of one."""
        pairs = zip(self.values.items(), row, strict=True)
        point = {name: values[place] for (name, values), place in pairs if place >= 0}
        dependents = self._dependents[self.parameters[column]]
        return all(self.file.exists(name, point, self._shared_facts) == (name in point) for name in dependents)

    def _switched(self, column: int, changed: Array) -> int:
        candidates = np.flatnonzero(self.rows[:, column] == changed[column])
        if not len(candidates):
            return -1
        wanted = np.where(changed >= 0, changed, self.rows[self.default_index])
        return int(candidates[np.argmin(self._distances(self.rows[candidates], wanted))])

    def _distances(self, rows: Array, row: Array) -> NDArray[np.int64]:
        total = np.zeros(len(rows), dtype=np.int64)
        for column in np.flatnonzero(row >= 0):
            places = rows[:, column]
            steps = places != row[column] if self._is_string[column] else np.abs(places - row[column])
            total += np.where(places >= 0, steps, 0)
        return total

    def _keys_of(self, rows: Array) -> NDArray[np.int64]:
        """Mixed-radix numbers (m,) of rows (m, d); they sort as the rows do."""
        keys = np.empty(len(rows), dtype=np.int64)
        for first in range(0, len(rows), _AT_ONCE):  # at a time: the product needs every digit as 64 bits
            some = slice(first, first + _AT_ONCE)
            keys[some] = (rows[some] + self._offsets) @ self._weights
        return keys

    @cached_property
    def _weights(self) -> NDArray[np.int64]:
        """(d,): what one more of each digit adds."""
        return np.append(np.cumprod(self._radices[:0:-1])[::-1], 1)

    @cached_property
    def _keys(self) -> NDArray[np.int64]:
        return self._keys_of(self.rows)

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        """1 for a conditional parameter, whose -1 is a digit too."""
        return np.array([parameter.when is not None for parameter in self.file.parameters.values()], dtype=np.int64)

    @cached_property
    def _radices(self) -> NDArray[np.int64]:
        return np.array([len(values) for values in self.values.values()], dtype=np.int64) + self._offsets

    @cached_property
    def _is_string(self) -> list[bool]:
        return [isinstance(values[0], str) for values in self.values.values()]

    @cached_property
    def _column_of(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.parameters)}

    @cached_property
    def _index_of_value(self) -> dict[str, dict[Value, int]]:
        return {name: {value: index for index, value in enumerate(values)} for name, values in self.values.items()}

    @cached_property
    def _shared_facts(self) -> dict[str, int | str | bool]:
        return {**self.facts, **self.file.shared_facts}

    @cached_property
    def _dependents(self) -> dict[str, list[str]]:
        """For each parameter the conditional ones that depend on it, directly or through others, in order."""
        work = Enumeration(self.file, self.facts)
        return {
            name: [other for other in self.file.order if other != name and name in work.closure([other])]
            for name in self.parameters
        }
