"""BranchPoints: the valid points of one branch on one device, all of them enumerated: parameter by parameter, each
constraint applied as soon as all its names are bound."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from autotuner.spaces.branch import Branch
from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.spaces.fields import EXPECTED, Facts
from autotuner.values.problem import Problem
from autotuner.values.validation import refuse, show, suggestion
from autotuner.values.variant import Value

Array = NDArray[Any]

_AT_ONCE = 1 << 17

Floats = NDArray[np.float64]
Rows = NDArray[np.int16]
Amounts = dict[str, Floats]
"""By name (n,) each: whole numbers, NaN where there is none."""

FINEST = 0.25
"""Quantities are told apart to a quarter of a doubling."""


def doublings(branch: Branch, facts: Facts, problems: Sequence[Problem], rows: Rows) -> Floats:
    """The logarithm to base 2 of each of the branch's q derived quantities (n, q), at points given as value indices
    (n, d), on these problems: of several the mean. NaN where it is not positive.

    Raises ExpressionError where one has no value, and KeyError where a fact that it names is not there.
    """
    found = np.full((len(rows), len(branch.derived)), np.nan)
    amounts = [_derived(branch, _known(branch, facts, problem), rows) for problem in problems]
    for place, name in enumerate(branch.derived):
        found[:, place] = np.mean([np.log2(each[name]) for each in amounts], axis=0)
    return np.round(found / FINEST) * FINEST


def expected_latency(branch: Branch, facts: Facts, problems: Sequence[Problem], rows: Rows) -> Floats | None:
    """The natural logarithm (n,) of the latency that the branch expects, at points given as value indices (n, d), on
    these problems: of several the mean. NaN where a step to it is not positive. None where it expects nothing.

    Raises as `doublings` does.
    """
    if not branch.expected_latency:
        return None
    logs = []
    for problem in problems:
        known = _known(branch, facts, problem)
        amounts = _derived(branch, known, rows)
        for name in branch.expected_latency:
            amounts[name] = _amount(branch, branch.expressions[f"{EXPECTED}.{name}"], known, rows, amounts)
        logs.append(np.log(amounts[name]))  # of the last step
    mean: Floats = np.mean(logs, axis=0)
    return mean


def _known(branch: Branch, facts: Facts, problem: Problem) -> Facts:
    return {**facts, **problem.facts(), "IMPL": branch.impl}


def _derived(branch: Branch, known: Facts, rows: Rows) -> Amounts:
    return {name: _amount(branch, branch.expressions[f"derived.{name}"], known, rows, {}) for name in branch.derived}


def _amount(branch: Branch, expression: Expression, facts: Facts, rows: Rows, amounts: Amounts) -> Floats:
    """What it comes to at each point (n,), given the amounts that it may name; NaN where one of these is not there, and
    where it is not positive."""
    parameters = {name: rows[:, place] for place, name in enumerate(branch.arrays) if name in expression.names}
    above = {each: amount for each, amount in amounts.items() if each in expression.names}
    there = np.ones(len(rows), dtype=np.bool_)
    for amount in above.values():
        there &= np.isfinite(amount)
    values: Mapping[str, NDArray[Any]] = {
        **{name: np.asarray(facts[name]) for name in expression.names - parameters.keys() - above.keys()},
        **{name: branch.arrays[name][column[there]] for name, column in parameters.items()},
        **{name: amount[there].astype(np.int64) for name, amount in above.items()},
    }
    found = np.full(len(rows), np.nan)
    amount = np.broadcast_to(expression.evaluate_arrays(values), int(there.sum()))
    if amount.dtype.kind not in "biuf":
        raise ExpressionError("it comes to a text, not to a number", expression.text)
    found[there] = np.where(amount > 0, amount, np.nan)
    return found


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

    def __init__(self, branch: Branch, facts: Facts, problems: Sequence[Problem]) -> None:
        """`facts`: of the device; each problem adds its own."""
        self.branch = branch
        self.values = branch.arrays
        self.facts = [_known(branch, facts, problem) for problem in problems]
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
        rules = [self.branch.rule(index) for index in range(len(self.branch.constraints))]
        groups = [[name for name in self.values if name in rule.names] for rule in rules]
        bound: dict[str, None] = {}
        while groups:
            group = min(groups, key=lambda names: self.combinations(name for name in names if name not in bound))
            groups.remove(group)
            bound |= dict.fromkeys(group)
        return tuple(bound | dict.fromkeys(self.values))

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


@dataclass(frozen=True, eq=False)
class BranchPoints:
    """Every valid point of a branch on one device, in lexicographic order of value indices; N points, d parameters.

    `rows` (N, d), int16, read-only: for each point the indices of its values.
    `raw_count`: the points before any constraint.
    `applied`: the constraints (by their place in the branch) in the order in which they were applied.
    `removed`: for each constraint the raw points that it removed and none applied before it had, so that
    `raw_count - sum(removed) == N`.
    """

    branch: Branch
    facts: Facts
    problems: tuple[Problem, ...]
    rows: NDArray[np.int16]
    raw_count: int
    applied: tuple[int, ...]
    removed: tuple[int, ...]

    @classmethod
    def enumerate(cls, branch: Branch, facts: Facts, problems: Sequence[Problem]) -> Self:
        """List the valid points on a device with these `facts`; each problem adds its own.

        Raises NoPoints when there is none, and PydanticCustomError for an expression that has no value.
        """
        work = Enumeration(branch, facts, problems)
        raw_count = work.combinations(branch.parameters)
        if raw_count >= 2**63:
            message = f"{branch.impl}: the product of the numbers of values exceeds 64 bits; expected fewer"
            raise refuse(message, "parameters")
        columns = work.run()
        rows = np.zeros((1, 0), dtype=np.int16)
        if columns:
            rows = np.asfortranarray(np.stack([columns[name] for name in branch.parameters], axis=1))
        points = cls(branch, dict(facts), tuple(problems), rows, raw_count, tuple(work.applied), tuple(work.removed))
        rows[:] = rows[np.argsort(points._keys_of(rows), kind="stable")]
        rows.flags.writeable = False
        points._check_expectations()
        return points

    def _check_expectations(self) -> None:
        for key in ("derived", "expected"):
            try:
                getattr(self, key)
            except ExpressionError as error:
                where = EXPECTED if key == "expected" else key
                raise refuse(f"{show(error.text)}: {error.reason}", where) from None

    @property
    def impl(self) -> str:
        """The implementation."""
        return self.branch.impl

    @cached_property
    def peak_share(self) -> float:
        """The share of what matrix products reach on the device that a point can reach at most, 0..1."""
        facts = {**self.facts, **self.problems[0].facts()}
        return int(Expression.parse(self.branch.peak_percent).evaluate(facts)) / 100

    @cached_property
    def derived(self) -> NDArray[np.float64]:
        """(N, q): the derived quantities of the points, in doublings; NaN where there is none."""
        return doublings(self.branch, self.facts, self.problems, self.rows)

    @cached_property
    def expected(self) -> NDArray[np.float64] | None:
        """(N,): the logarithm of the latency that the branch expects of the points, in its own unit; else NaN."""
        return expected_latency(self.branch, self.facts, self.problems, self.rows)

    @property
    def expected_spread(self) -> float | None:
        """How many times as long as the fastest point the slowest one is expected to take; None where nothing is."""
        if self.expected is None or np.isnan(self.expected).all():
            return None
        return float(np.exp(np.nanmax(self.expected) - np.nanmin(self.expected)))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the d parameters, in the order of the branch and of the columns of `rows`."""
        return tuple(self.branch.parameters)

    @property
    def values(self) -> Mapping[str, tuple[Value, ...]]:
        """The values of each parameter, in the order of the branch; an entry of `rows` is an index into them."""
        return self.branch.parameters

    @cached_property
    def default_index(self) -> int:
        """The index of the branch's default point; where that is not valid here, of the nearest point."""
        return self.nearest(self.row_of(self.branch.default))

    @cached_property
    def why_another_default(self) -> str | None:
        """Which constraint the default point breaks here, with its reason; None where it is valid."""
        row, work = self.row_of(self.branch.default), Enumeration(self.branch, self.facts, self.problems)
        if self.indices_of(row[None])[0] >= 0:
            return None
        columns = {name: row[[column]] for column, name in enumerate(self.parameters)}
        broken = (
            f"{each.place} {each.expression!r} ({each.reason})"
            for i, each in enumerate(self.branch.constraints)
            if not work.holds(i, columns)[0]
        )
        return f"default: not valid here: {next(broken)}; the nearest valid point takes its place"

    def __len__(self) -> int:
        return len(self.rows)

    def point(self, index: int) -> dict[str, Value]:
        """IMPL and the parameters of a point. Raises IndexError outside 0..N-1."""
        if not 0 <= index < len(self):
            raise IndexError(f"point {index} of a branch of {len(self)} points")
        pairs = zip(self.values.items(), self.rows[index], strict=True)
        return {"IMPL": self.impl, **{name: values[place] for (name, values), place in pairs}}

    def row_of(self, point: Mapping[str, Value]) -> NDArray[np.int16]:
        """The value indices (d,) of a point, valid or not; KeyError for what is not of the branch, or missing."""
        if point.keys() - {"IMPL"} != self.values.keys():
            raise KeyError(next(iter((point.keys() - {"IMPL"}) ^ self.values.keys())))
        return np.array([self._index_of_value[name][point[name]] for name in self.values], dtype=np.int16)

    def index_of(self, point: Mapping[str, Value]) -> int | None:
        """The index of a point; None when it is not a valid point of this branch."""
        try:
            index = int(self.indices_of(self.row_of(point)[None])[0])
        except KeyError:
            return None
        return index if index >= 0 else None

    def indices_of(self, rows: Array) -> NDArray[np.int64]:
        """The indices (m,) of points given as value indices (m, d), -1 for what is not a valid point."""
        digits = np.asarray(rows).astype(np.int64)
        inside = ((digits >= 0) & (digits < self._radices)).all(axis=1)
        keys = self._keys_of(rows)
        found = np.minimum(np.searchsorted(self._keys, keys), len(self) - 1)
        return np.where(inside & (self._keys[found] == keys), found, -1)

    def neighbours(self, index: int, radius: int = 1) -> NDArray[np.int64]:
        """The sorted indices of the valid points that differ from this one in one parameter: a number by up to `radius`
        places in its list, a string by any."""
        row = self.rows[index]
        changed = [row[None][:0]]
        for column in range(len(row)):
            moves = np.array(list(self._moves(column, int(row[column]), radius)), dtype=np.int16)
            rows = np.repeat(row[None], len(moves), axis=0)
            rows[:, column] = moves
            changed.append(rows)
        found = self.indices_of(np.concatenate(changed))
        return np.unique(found[found >= 0])

    def nearest(self, row: Array, exclude: NDArray[np.bool_] | None = None) -> int:
        """The valid point that is nearest to value indices (d,), as `nearest_row` says."""
        return nearest_row(self.rows, row, tuple(self.values.values()), exclude)

    def moved(self, row: Array) -> int:
        """The same of a point of another space: of equals the one that is expected to be the fastest."""
        return nearest_row(self.rows, row, tuple(self.values.values()), order=self.expected)

    def _moves(self, column: int, place: int, radius: int) -> Iterable[int]:
        values = self.values[self.parameters[column]]
        reach = len(values) if isinstance(values[0], str) else radius
        return (other for other in range(max(0, place - reach), min(len(values), place + reach + 1)) if other != place)

    def _keys_of(self, rows: Array) -> NDArray[np.int64]:
        """Mixed-radix numbers (m,) of rows (m, d); they sort as the rows do."""
        keys = np.empty(len(rows), dtype=np.int64)
        for first in range(0, len(rows), _AT_ONCE):  # at a time: the product needs every digit as 64 bits
            some = slice(first, first + _AT_ONCE)
            keys[some] = np.asarray(rows[some]).astype(np.int64) @ self._weights
        return keys

    @cached_property
    def _weights(self) -> NDArray[np.int64]:
        """(d,): what one more of each digit adds."""
        return np.array([math.prod(self._radices[i + 1 :].tolist()) for i in range(len(self._radices))], dtype=np.int64)

    @cached_property
    def _keys(self) -> NDArray[np.int64]:
        return self._keys_of(self.rows)

    @cached_property
    def _radices(self) -> NDArray[np.int64]:
        return np.array([len(values) for values in self.values.values()], dtype=np.int64)

    @cached_property
    def _index_of_value(self) -> dict[str, dict[Value, int]]:
        return {name: {value: index for index, value in enumerate(values)} for name, values in self.values.items()}


def nearest_row(
    rows: Array,
    row: Array,
    values: Sequence[Sequence[Value]],
    exclude: NDArray[np.bool_] | None = None,
    order: Floats | None = None,
) -> int:
    """The place among `rows` (N, d) of the one that is nearest to value indices (d,); among equals the one that is the
    first, in the `order` (N,) if there is one.

    The distance adds up, over the parameters that exist in both, the steps between the `values` of a number and 1 for a
    different string. `exclude` (N,) is true for rows not to return; ValueError when that is all of them.
    """
    distances = np.zeros(len(rows), dtype=np.int64)
    for column in np.flatnonzero(np.asarray(row) >= 0).tolist():
        places = rows[:, column]
        is_text = isinstance(values[column][0], str)
        steps = places != row[column] if is_text else np.abs(places - int(row[column]))
        distances += np.where(places >= 0, steps, 0)
    if exclude is not None:
        if exclude.all():
            raise ValueError("every point is excluded")
        distances[exclude] = np.iinfo(distances.dtype).max
    equals = np.flatnonzero(distances == distances.min())
    return int(equals[0 if order is None else np.argmin(np.nan_to_num(order[equals], nan=np.inf))])
