"""The enumeration of a branch: parameter by parameter, each constraint applied as soon as all its names are bound."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotuner.spaces.branch import Branch
from autotuner.spaces.expression import ExpressionError
from autotuner.spaces.fields import Facts
from autotuner.values.validation import refuse, show, suggestion

Array = NDArray[Any]
Columns = dict[str, Array]

MAX_POINTS = 20_000_000
"""Enumeration stops, with an error, when more partial or whole points than this survive."""

_CHUNK = 1 << 20


class NoPoints(Exception):
    """No point of a branch is valid: the key of the constraint that removed the last ones, and its reason."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key, self.reason = key, reason


class Enumeration:
    """The work of `BranchPoints.enumerate`: tables of value indices, an int16 column a parameter."""

    def __init__(self, branch: Branch, facts: Sequence[Facts]) -> None:
        """`facts`: of the device and a problem, for each problem."""
        self.branch = branch
        self.values = branch.arrays
        self.facts = [{**each, "IMPL": branch.impl} for each in facts]
        self.removed = [0] * len(branch.constraints)
        self.applied: list[int] = []
        self._check_facts()

    def _check_facts(self) -> None:
        for name, value in self.facts[0].items():
            if name in self.values:
                raise refuse("the device already has a fact of this name; expected another", f"parameters.{name}")
            if not isinstance(value, int | str):
                raise TypeError(f"the fact {name} is {value!r}, not an integer, a string or a truth value")
        known = {*self.values, *self.facts[0]}
        for key, expression in self.branch.expressions.items():
            above = self.branch.steps_before(key)
            for name in sorted(expression.names - known - above):
                hint = suggestion(name, known | above)
                raise refuse(f"{name} is no parameter and no fact of this device or the problem{hint}", key)

    def holds(self, index: int, columns: Columns) -> Array:
        """Where a constraint holds in a table that has its parameters, bool (n,)."""
        key = self.branch.constraint_key(index)
        expression = self.branch.expressions[key]
        try:
            return expression.holds(self.values, columns or {"": np.zeros(1)}, self.facts)
        except ExpressionError as error:
            raise refuse(f"{show(expression.text)}: {error.reason}", key) from None

    def bind(self, name: str, columns: Columns) -> Columns:
        """The table with one more parameter: each row once for every value."""
        height, count = _height(columns), len(self.values[name])
        value = np.tile(np.arange(count, dtype=np.int16), height)
        return {**{other: np.repeat(column, count) for other, column in columns.items()}, name: value}

    def combinations(self, names: Iterable[str]) -> int:
        """How many points these parameters span."""
        return math.prod(len(self.values[name]) for name in names)

    def binding_order(self) -> tuple[str, ...]:
        """The parameters, those of the constraint with the fewest combinations of values first."""
        groups = [self._named(index) for index in range(len(self.branch.constraints))]
        bound: dict[str, None] = {}
        while groups:
            group = min(groups, key=lambda names: self.combinations(name for name in names if name not in bound))
            groups.remove(group)
            bound |= dict.fromkeys(group)
        return tuple(bound | dict.fromkeys(self.values))

    def _named(self, index: int) -> list[str]:
        """The parameters that a constraint names, in the order of the branch."""
        return [name for name in self.values if name in self.branch.rule(index).names]

    def run(self) -> Columns:
        """The valid points. Binds one parameter after the other and applies each constraint as soon as it can be.

        Raises NoPoints when there is none.
        """
        order = self.binding_order()
        columns = self._kept({}, self._due(order), order)
        for position, name in enumerate(order):
            unbound = order[position + 1 :]
            columns = self._step(name, columns, self._due(unbound), unbound)
        return columns

    def _due(self, unbound: Sequence[str]) -> list[int]:
        """The constraints that can be applied and were not; they count as applied from here on."""
        ready = (i for i in range(len(self.branch.constraints)) if not self.branch.rule(i).names & {*unbound})
        due = [i for i in ready if i not in self.applied]
        self.applied += due
        return due

    def _kept(self, columns: Columns, due: Sequence[int], unbound: Sequence[str]) -> Columns:
        """The rows of a table at which the constraints hold."""
        for i in due:
            keep = self.holds(i, columns)
            if not keep.all():
                self.removed[i] += int((~keep).sum()) * self.combinations(unbound)
                if not columns:  # a constraint that names facts alone
                    raise NoPoints(self.branch.constraint_key(i), self.branch.constraints[i].reason)
                columns = {name: column[keep] for name, column in columns.items()}
        return columns

    def _step(self, name: str, columns: Columns, due: Sequence[int], unbound: Sequence[str]) -> Columns:
        """Bind one parameter and apply the constraints that are due, a chunk of rows at a time."""
        step = max(1, _CHUNK // len(self.values[name]))
        pieces: list[Columns] = []
        before = list(self.removed)
        for start in range(0, _height(columns), step):
            chunk = {other: column[start : start + step] for other, column in columns.items()}
            pieces.append(self._kept(self.bind(name, chunk), due, unbound))
            if sum(map(_height, pieces)) > MAX_POINTS:
                most = f"more than {MAX_POINTS} points with {name} bound"
                raise refuse(f"{most}; expected fewer values or stronger constraints", "parameters")
        if not any(map(_height, pieces)):
            last = [i for i in due if self.removed[i] > before[i]][-1]
            raise NoPoints(self.branch.constraint_key(last), self.branch.constraints[last].reason)
        return {other: np.concatenate([piece[other] for piece in pieces]) for other in pieces[0]}


def _height(columns: Columns) -> int:
    """Rows of a table; a table of no parameters has one, the empty point."""
    return len(next(iter(columns.values()), np.zeros(1)))
