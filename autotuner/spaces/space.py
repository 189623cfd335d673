"""Space: the valid points of a space file on one device, all of them enumerated, branch by branch.

`Space.enumerate` adds the facts of a device and of the problems to a `SpaceFile`, and lists every point at which all
constraints of its branch hold, for every problem. A branch without any is left out.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic_core import PydanticCustomError

from autotuner.spaces.branch_points import BranchPoints, NoPoints, nearest_row
from autotuner.spaces.fields import EXPECTED, Facts
from autotuner.spaces.space_file import SpaceFile
from autotuner.values.errors import SpaceError
from autotuner.values.validation import refuse
from autotuner.values.variant import Value, digest_of

__all__ = ["BranchPoints", "Space", "SpaceFile"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Space:
    """Every valid point of a space file on one device: those of the first branch, then those of the next; N points.

    `branches`: those that have points here, that of the default point first. `left_out`: by implementation, why a
    branch has none.
    """

    file: SpaceFile
    facts: dict[str, int | str | bool]
    branches: tuple[BranchPoints, ...]
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def enumerate(cls, file: SpaceFile, facts: Facts) -> Self:
        """List the valid points on a device with these `facts`; each problem adds its own.

        Raises SpaceError, one line that names the file and the key, when an expression names an unknown fact or has no
        value, when no point is valid, and when the points are too many.
        """
        try:
            return cls._enumerate(file, facts)
        except PydanticCustomError as error:
            raise SpaceError(f"{file.path}: {(error.context or {})['key']}: {error.message()}") from None

    @classmethod
    def _enumerate(cls, file: SpaceFile, facts: Facts) -> Self:
        found, left_out = [], {}
        for branch in file.branches:
            try:
                found.append(BranchPoints.enumerate(branch, facts, file.problems))
            except NoPoints as none:
                left_out[branch.impl] = f"{none.reason} ({none.key.removesuffix('.expression')})"
                last = none
        if not found and len(left_out) == 1:
            message = f"no valid point: this constraint removed the last ones ({last.reason})"
            raise refuse(message, last.key.removesuffix(".expression"))
        if not found:
            each = "; ".join(f"{impl}: {why}" for impl, why in left_out.items())
            raise refuse(f"no implementation has a valid point: {each}", "parameters.IMPL")
        space = cls(file, dict(facts), tuple(found), left_out)
        space._check_expectations()
        return space

    def _check_expectations(self) -> None:
        """Refuses a quantity that is positive at no valid point of any branch that has it."""
        for name, (_, greatest) in self.derived_ranges.items():
            if np.isnan(greatest):
                raise refuse("positive at no valid point; expected an amount of something", f"derived.{name}")
        expecting = [each.expected for each in self.branches if each.expected is not None]
        if expecting and all(np.isnan(each).all() for each in expecting):
            raise refuse("positive at no valid point; expected a time", EXPECTED)

    @property
    def raw_count(self) -> int:
        """The points of all branches before any constraint."""
        return sum(each.raw_count for each in self.branches)

    @cached_property
    def first(self) -> tuple[int, ...]:
        """The index of the first point of each branch, and N."""
        return tuple(np.cumsum([0, *map(len, self.branches)]).tolist())

    def placed(self, index: int) -> tuple[int, int]:
        """Of a point its branch, by place among `branches`, and its index there. Raises IndexError outside 0..N-1."""
        if not 0 <= index < len(self):
            raise IndexError(f"point {index} of a space of {len(self)} points")
        place = int(np.searchsorted(self.first, index, side="right")) - 1
        return place, index - self.first[place]

    @cached_property
    def rows(self) -> NDArray[np.int16]:
        """(N, d): for each point the indices of its values in `values`, -1 for a parameter that its branch has not."""
        rows = np.full((len(self), len(self.parameters)), -1, dtype=np.int16, order="F")
        for place, branch in enumerate(self.branches):
            mine = slice(self.first[place], self.first[place + 1])
            rows[mine, 0] = self._places["IMPL"][branch.impl]
            for column, name in enumerate(branch.parameters):
                places = np.array([self._places[name][value] for value in branch.values[name]], dtype=np.int16)
                rows[mine, self.parameters.index(name)] = places[branch.rows[:, column]]
        rows.flags.writeable = False
        return rows

    @cached_property
    def derived_ranges(self) -> dict[str, tuple[float, float]]:
        """The least and the greatest that each derived quantity comes to in the branches that have it."""
        ranges: dict[str, list[float]] = {}
        for branch in self.branches:
            for name, column in zip(branch.branch.derived, branch.derived.T, strict=True):
                known = column[np.isfinite(column)]
                ranges.setdefault(name, []).extend([known.min(), known.max()] if len(known) else [])
        return {n: (2.0 ** min(e), 2.0 ** max(e)) if e else (np.nan, np.nan) for n, e in ranges.items()}

    @property
    def name(self) -> str:
        """The name of the space file, without folder and suffix."""
        return self.file.name

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the d parameters: IMPL, then those of the branches; the columns of `rows`."""
        return tuple(self.file.parameters)

    @property
    def values(self) -> dict[str, tuple[Value, ...]]:
        """The values of each parameter in any branch; an entry of `rows` is an index into them."""
        return self.file.parameters

    @property
    def default_index(self) -> int:
        """The index of the default point of the first branch, which begins the space."""
        return self.branches[0].default_index

    @cached_property
    def default(self) -> dict[str, Value]:
        """The point at that index."""
        return self.point(self.default_index)

    @property
    def why_another_default(self) -> str | None:
        """Why the file's default point is not that of the space; None where it is."""
        asked = self.file.branches[0].impl
        if asked in self.left_out:
            return f"default: {asked} has no valid point here: {self.left_out[asked]}; {self.branches[0].impl} is first"
        return self.branches[0].why_another_default

    @cached_property
    def digest(self) -> str:
        """Identity of the space, 64 hex digits: what is computed and how, the parameters, and which points are valid.

        The wording of constraints, reasons and title does not matter; which points they leave does.
        """
        content = self.file.model_dump(mode="json", include={"family", "backend", "threads", "cache"})
        content["problems"] = [problem.identity for problem in self.file.problems]
        if self.file.objective != "mean":  # what says nothing of it has the digest that it always had
            content["objective"] = self.file.objective
        if self.file.baselines:
            content["baselines"] = [each.digest for each in self.file.baselines]
        content["branches"] = [
            [
                each.impl,
                [[name, list(values)] for name, values in each.values.items()],
                each.branch.default,
                hashlib.sha256(np.ascontiguousarray(each.rows, dtype="<i2").tobytes()).hexdigest(),
            ]
            for each in self.branches
        ]
        return digest_of(content)

    def __len__(self) -> int:
        return self.first[-1]

    def point(self, index: int) -> dict[str, Value]:
        """IMPL and the parameters of its branch at a point. Raises IndexError outside 0..N-1."""
        place, inside = self.placed(index)
        return self.branches[place].point(inside)

    def branch_of(self, impl: object) -> tuple[BranchPoints, int] | None:
        """The branch of an implementation and the index of its first point; None where it has no points here."""
        found = ((each, self.first[place]) for place, each in enumerate(self.branches) if each.impl == impl)
        return next(found, None)

    def index_of(self, point: Mapping[str, Value]) -> int | None:
        """The index of a point; None when it is not a valid point of this space."""
        found = self.branch_of(point.get("IMPL"))
        index = None if found is None else found[0].index_of(point)
        return None if found is None or index is None else found[1] + index

    def completed(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The valid point nearest to the default point of its branch among those with these values: of the IMPL that
        they name, or else of the first branch that has one. Where there is none, what was given: no valid point."""
        for branch in self.branches:
            if branch.impl != values.get("IMPL", branch.impl) or not {*values} - {"IMPL"} <= branch.values.keys():
                continue
            fits = np.ones(len(branch), dtype=np.bool_)
            for name in branch.values.keys() & values.keys():
                known = branch.values[name]
                place = known.index(values[name]) if values[name] in known else -1
                fits &= branch.rows[:, branch.parameters.index(name)] == place
            if fits.any():
                return branch.point(branch.nearest(branch.rows[branch.default_index], exclude=~fits))
        return dict(values)

    def nearest(self, row: Array, exclude: NDArray[np.bool_] | None = None) -> int:
        """The valid point that is nearest to indices (d,) of `values`, as `nearest_row` says."""
        return nearest_row(self.rows, row, tuple(self.values.values()), exclude)

    def neighbours(self, index: int, radius: int = 1) -> NDArray[np.int64]:
        """The sorted indices of the valid points that differ from this one in one parameter of its branch."""
        place, inside = self.placed(index)
        return self.branches[place].neighbours(inside, radius) + self.first[place]

    def parts(self, indices: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.bool_], NDArray[np.int64]]]:
        """For each branch its place, which of these points are its own, and the indices of those there."""
        for place in range(len(self.branches)):
            mine = (indices >= self.first[place]) & (indices < self.first[place + 1])
            yield place, mine, indices[mine] - self.first[place]

    @cached_property
    def _places(self) -> dict[str, dict[Value, int]]:
        return {name: {value: place for place, value in enumerate(values)} for name, values in self.values.items()}
