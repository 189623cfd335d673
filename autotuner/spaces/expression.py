"""Expression: a constraint or a condition of a space file, read with `ast` against a whitelist and never executed.

Integers and truth values are 64-bit integers, strings are compared only for equality. The same code evaluates one point
and a million: numpy columns that broadcast. `and`, `or`, comparison chains and `x if c else y` stop early as in Python,
element by element, so that `X == 0 or Y % X == 0` is safe where X is 0.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MAX_DEPTH = 40
INT64 = np.iinfo(np.int64)

_FUNCTIONS: dict[str, tuple[int, int | None]] = {"min": (2, None), "max": (2, None), "ceil_div": (2, 2)}
_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.In: ("in", np.isin),
    ast.NotIn: ("not in", lambda value, members: ~np.isin(value, members)),
}
_REFUSED = {
    ast.Attribute: "an attribute (a dot)",
    ast.Subscript: "a subscript ([...])",
    ast.Tuple: "a tuple, except after `in`,",
    ast.List: "a list, except after `in`,",
    ast.Div: "/ (write // or ceil_div)",
    ast.Pow: "** (write *)",
    ast.Is: "`is` (write ==)",
    ast.IsNot: "`is not` (write !=)",
}
_FAULTS = ("", "division by zero", "a result beyond 64 bits")
_ZERO, _OVERFLOW = 1, 2


class ExpressionError(ValueError):
    """An expression that is not allowed, or that has no value for what it was given.

    `reason` is one line; `str()` adds the text with a caret under the offending place where that is known.
    """

    def __init__(self, reason: str, text: str, column: int | None = None) -> None:
        super().__init__(reason, text, column)
        self.reason = reason
        self.text = text
        self.column = column

    def __str__(self) -> str:
        caret = "" if self.column is None else f"\n    {' ' * self.column}^"
        return f"{self.reason}\n    {self.text}{caret}"


@dataclass(frozen=True)
class Expression:
    """A parsed expression; equal to another one when the texts are equal.

    `names` are the parameters and facts it speaks of, also through the amounts that it names. `string_tests` holds each
    (name, string) that its text compares for equality or membership, so that a misspelt string can be found.
    """

    text: str
    names: frozenset[str] = field(compare=False)
    string_tests: frozenset[tuple[str, str]] = field(compare=False, repr=False)
    _run: Callable[[_Given], _Values] = field(compare=False, repr=False)
    _amounts: Mapping[str, Expression] = field(compare=False, repr=False)

    @classmethod
    def parse(cls, text: str, amounts: Mapping[str, Expression] | None = None) -> Expression:
        """Read `text`, which may name `amounts`; line breaks count as blanks. Raises ExpressionError for whatever the
        grammar does not allow."""
        text = " ".join(text.splitlines()).strip()
        term, string_tests = _read(text)
        used = {name: amount for name, amount in (amounts or {}).items() if name in term.names}
        names = (term.names - used.keys()).union(*(amount.names for amount in used.values()))
        return cls(text, names, string_tests, term.run, used)

    def __reduce__(self) -> tuple[Any, ...]:
        return Expression.parse, (self.text, self._amounts)

    def evaluate(self, values: Mapping[str, object]) -> bool | int | str:
        """The value at one point: `values` maps each name to an int, bool or str. Raises ExpressionError."""
        scalars = {name: np.asarray(values[name]) for name in self.names & values.keys()}
        result: bool | int | str = self.evaluate_arrays(scalars).item()
        return result

    def evaluate_arrays(self, columns: Mapping[str, Array]) -> Array:
        """The values for columns that broadcast against each other: an int64, bool or str array of their joint shape.

        Columns that the expression does not name are ignored. Raises ExpressionError when a name has no column, when
        strings and integers are mixed, and when an element divides by zero or leaves 64 bits.
        """
        used = {name: _column(name, columns[name], self.text) for name in sorted(self.names & columns.keys())}
        result = self._run(_Given(used, self._amounts, {}))
        shape = np.broadcast_shapes(*(column.shape for column in used.values()))
        if result.fault is not None and result.fault.any():
            raise ExpressionError(_describe_fault(result.fault, used, shape), self.text)
        return np.array(np.broadcast_to(result.data, shape))

    def holds(
        self, values: Mapping[str, Array], indices: Mapping[str, Array], facts: Sequence[Mapping[str, Any]]
    ) -> Array:
        """Where the expression is true for every mapping in `facts`: a bool array (n,).

        `values` maps a parameter to its values, `indices` to its column (n,) of indices into them. Whichever is smaller
        is evaluated: the combinations of values that occur, or the rows. Raises ExpressionError as `evaluate_arrays`.
        """
        named = [name for name in values if name in self.names]
        sizes = tuple(len(values[name]) for name in named)
        digits = tuple(indices[name] for name in named)
        count = len(next(iter(indices.values())))
        if math.prod(sizes) > count:
            rows = {name: values[name][digit] for name, digit in zip(named, digits, strict=True)}
            return self._true_for_all(rows, facts)
        codes = np.ravel_multi_index(digits, sizes) if named else np.zeros(count, dtype=np.intp)
        seen = np.zeros(math.prod(sizes), dtype=np.bool_)
        seen[codes] = True
        occurring = np.unravel_index(np.flatnonzero(seen), sizes) if named else ()
        columns = {name: values[name][digit] for name, digit in zip(named, occurring, strict=True)}
        seen[seen] = self._true_for_all(columns, facts)
        return np.asarray(seen[codes])

    def _true_for_all(self, columns: Mapping[str, Array], facts: Sequence[Mapping[str, Any]]) -> Array:
        used = {tuple(sorted((name, fact[name]) for name in self.names & fact.keys())) for fact in facts}
        results = [
            self.evaluate_arrays({**{name: np.asarray(value) for name, value in some}, **columns})
            for some in sorted(used)
        ]
        if any(result.dtype.kind == "U" for result in results):
            raise ExpressionError("the result is a string, not true or false", self.text)
        return np.asarray(np.logical_and.reduce(results))


def _syntax_tree(text: str) -> ast.expr:
    if not text:
        raise ExpressionError("the expression is empty", text)
    # A comment would swallow the rest once the lines are joined; a non-ASCII letter may look like another.
    odd = re.search(r"[^ -\"$-~]", text)
    if odd is not None:
        raise ExpressionError(f"the character {odd.group()!r} is not allowed in an expression", text, odd.start())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        column = max((error.offset or 1) - 1, 0)
        raise ExpressionError(f"not an expression: {error.msg} (column {column + 1})", text, column) from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError("the expression is nested too deeply or holds too long a number", text) from None


@dataclass(frozen=True)
class _Values:
    """An array and, where an element has no value, the code of its fault (an index into _FAULTS, else 0)."""

    data: Array
    fault: Array | None = None


class _Given(NamedTuple):
    """What an expression is evaluated over."""

    columns: Mapping[str, Array]
    amounts: Mapping[str, Expression]
    known: dict[str, _Values]
    """The amounts that were evaluated already; each is evaluated once, however often it is named."""


class _Term(NamedTuple):
    """An allowed part of an expression."""

    names: frozenset[str]
    run: Callable[[_Given], _Values]

    @classmethod
    def of(cls, parts: Sequence[_Term], join: Callable[..., _Values]) -> _Term:
        """What `join` makes of the results of the parts, and their faults, so that and/or drops unreached ones."""
        names = frozenset[str]().union(*(part.names for part in parts))
        return cls(names, lambda given: join(*(part.run(given) for part in parts)))

    @classmethod
    def constant(cls, value: object) -> _Term:
        """That value everywhere."""
        found = _Values(np.asarray(value))
        return cls(frozenset(), lambda _: found)


class _Reader:
    """Walks a syntax tree, refuses all that is not in the grammar, and says how the rest is evaluated."""

    def __init__(self, text: str) -> None:
        self.text, self.string_tests = text, set[tuple[str, str]]()

    def refuse(self, what: str, node: ast.expr) -> ExpressionError:
        return self.error(f"{what} is not allowed", node)

    def error(self, reason: str, node: ast.expr) -> ExpressionError:
        return ExpressionError(f"{reason} (column {node.col_offset + 1})", self.text, node.col_offset)

    def term(self, node: ast.expr, depth: int = 0) -> _Term:
        """The tree under `node`. Refuses `1 // 0` or `"a" < 3` where it is written, not where it is used."""
        if depth > MAX_DEPTH:
            raise ExpressionError(f"the expression is nested deeper than {MAX_DEPTH}", self.text, node.col_offset)
        found = self.read(node, depth + 1)
        if not found.names and not isinstance(node, ast.Constant):
            fault = found.run(_Given({}, {}, {})).fault
            if fault is not None and fault.any():
                raise self.refuse(_FAULTS[int(fault)], node)
        return found

    def read(self, node: ast.expr, depth: int) -> _Term:
        """The same but for faults of constants."""
        match node:
            case ast.Constant():
                return _Term.constant(self.constant(node))
            case ast.Name(id=name):
                if name in _FUNCTIONS or name.startswith("_"):
                    raise self.refuse(f"the name {name}", node)
                return _Term(frozenset([name]), partial(self.named, node, name))
            case ast.BoolOp(op=operation, values=values):
                join = _either if isinstance(operation, ast.Or) else _both
                return _Term.of([self.truth(each, depth) for each in values], lambda *truths: reduce(join, truths))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                truth = self.truth(operand, depth)
                return _Term.of([truth], lambda found: _Values(np.asarray(~found.data), found.fault))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _Term.of([_Term.constant(0), self.number(operand, "-", depth)], partial(_arithmetic, ast.Sub))
            case ast.BinOp(op=operation, left=left, right=right) if type(operation) in _ARITHMETIC:
                sides = [self.number(side, _ARITHMETIC[type(operation)][0], depth) for side in (left, right)]
                return _Term.of(sides, partial(_arithmetic, type(operation)))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                parts = [self.truth(test, depth), self.term(body, depth), self.term(orelse, depth)]
                return _Term.of(parts, partial(self.choice, node))
            case ast.Compare():
                return self.comparison(node, depth)
            case ast.Call():
                name = self.function(node)
                return _Term.of([self.number(each, f"{name}()", depth) for each in node.args], partial(_call, name))
        culprit = node.op if isinstance(node, ast.BinOp | ast.UnaryOp) else node
        raise self.refuse(_REFUSED.get(type(culprit), ast.unparse(node)), node)

    def named(self, node: ast.expr, name: str, given: _Given) -> _Values:
        """What a name stands for: an amount, or a column."""
        if name in given.amounts:
            if name not in given.known:
                amount = given.amounts[name]
                given.known[name] = amount._run(given._replace(amounts=amount._amounts))
            return given.known[name]
        if name not in given.columns:
            raise ExpressionError(f"{name} has no value", self.text, node.col_offset)
        return _Values(given.columns[name])

    def number(self, node: ast.expr, use: str, depth: int) -> _Term:
        """An int64 operand; True and False count as 1 and 0."""
        return self.typed(node, np.int64, f"{use} needs an integer", depth)

    def truth(self, node: ast.expr, depth: int) -> _Term:
        """A bool operand; an integer is true unless it is 0."""
        return self.typed(node, np.bool_, "not true or false", depth)

    def typed(self, node: ast.expr, kind: type[np.generic], wanted: str, depth: int) -> _Term:
        def join(found: _Values) -> _Values:
            if found.data.dtype.kind == "U":
                raise self.error(f"{ast.unparse(node)} is a string, {wanted}", node)
            return _Values(found.data.astype(kind, copy=False), found.fault)

        return _Term.of([self.term(node, depth)], join)

    def constant(self, node: ast.expr) -> int | str:
        value = ast.literal_eval(node) if _is_constant(node) else None
        if not isinstance(value, int | str):
            raise self.refuse(f"{ast.unparse(node)} (not an integer, a string, True or False)", node)
        if isinstance(value, int) and not INT64.min <= value <= INT64.max:
            raise self.refuse("an integer beyond 64 bits", node)
        return value

    def comparison(self, node: ast.Compare, depth: int) -> _Term:
        operands = [node.left, *node.comparators]
        within: dict[ast.expr, _Term] = {}
        for left, comparison, right in zip(operands, node.ops, node.comparators, strict=False):
            if type(comparison) not in _COMPARISONS:
                raise self.refuse(_REFUSED[type(comparison)], left)
            members = [right]
            if isinstance(comparison, ast.In | ast.NotIn):
                members = self.members(right)
                within[right] = _Term.constant([ast.literal_eval(element) for element in members])
            if isinstance(comparison, ast.In | ast.NotIn | ast.Eq | ast.NotEq):
                self.note_strings(left, members)
        if within and len(operands) > 2:
            raise self.refuse("`in` within a chain of comparisons", node)
        terms = [within.get(each) or self.term(each, depth) for each in operands]

        def join(*found: _Values) -> _Values:
            pairs = zip(node.ops, found, found[1:], strict=False)
            return reduce(_both, [self.pair(sign, left, right, node) for sign, left, right in pairs])

        return _Term.of(terms, join)

    def pair(self, comparison: ast.cmpop, left: _Values, right: _Values, node: ast.Compare) -> _Values:
        sign, compare = _COMPARISONS[type(comparison)]
        strings = [side.data.dtype.kind == "U" for side in (left, right)]
        if strings[0] != strings[1]:
            raise self.error(f"a string and an integer cannot be compared with {sign}", node)
        if all(strings) and sign in ("<", "<=", ">", ">="):
            raise self.error(f"strings cannot be compared with {sign}", node)
        return _Values(np.asarray(compare(left.data, right.data)), _first_fault(left.fault, right.fault))

    def members(self, node: ast.expr) -> list[ast.expr]:
        if not isinstance(node, ast.Tuple | ast.List) or not node.elts:
            raise self.refuse("`in` followed by anything but a tuple or list of constants", node)
        if len({isinstance(self.constant(element), str) for element in node.elts}) > 1:
            raise self.refuse("a list of both strings and integers", node)
        return node.elts

    def note_strings(self, left: ast.expr, members: list[ast.expr]) -> None:
        for first, second in [(left, member) for member in members] + [(member, left) for member in members]:
            if isinstance(first, ast.Name) and isinstance(second, ast.Constant) and isinstance(second.value, str):
                self.string_tests.add((first.id, second.value))

    def function(self, node: ast.Call) -> str:
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
            raise self.refuse(f"a call of anything but {', '.join(_FUNCTIONS)}", node)
        fewest, most = _FUNCTIONS[node.func.id]
        if node.keywords or not fewest <= len(node.args) <= (most or len(node.args)):
            wanted = f"{fewest}" if fewest == most else f"{fewest} or more"
            raise self.refuse(f"{node.func.id}() with other than {wanted} plain arguments", node)
        return node.func.id

    def choice(self, node: ast.expr, test: _Values, body: _Values, orelse: _Values) -> _Values:
        if (body.data.dtype.kind == "U") != (orelse.data.dtype.kind == "U"):
            raise self.error("the two sides of if/else are a string and an integer", node)
        fault = _first_fault(test.fault, body.fault, test.data)
        fault = _first_fault(fault, orelse.fault, ~test.data)
        return _Values(np.asarray(np.where(test.data, body.data, orelse.data)), fault)


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[_Term, frozenset[tuple[str, str]]]:
    """How a text is evaluated, and its tests of strings. A family's hundreds of texts are read again and again."""
    reader = _Reader(text)
    return reader.term(_syntax_tree(text)), frozenset(reader.string_tests)


def _is_constant(node: ast.expr) -> bool:
    """True for a literal, or a literal integer with a minus in front."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
        return isinstance(node, ast.Constant) and type(node.value) is int
    return isinstance(node, ast.Constant)


def _first_fault(first: Array | None, second: Array | None, reached: Array | bool = True) -> Array | None:
    """Faults of two operands; the second's count only where it is `reached` and the first has none."""
    if second is None:
        return first
    second = np.asarray(np.where(reached, second, 0))
    return second if first is None else np.asarray(np.where(first != 0, first, second))


def _both(left: _Values, right: _Values) -> _Values:
    return _Values(np.asarray(left.data & right.data), _first_fault(left.fault, right.fault, left.data))


def _either(left: _Values, right: _Values) -> _Values:
    return _Values(np.asarray(left.data | right.data), _first_fault(left.fault, right.fault, ~left.data))


def _magnitude(data: Array) -> int:
    return max(abs(int(data.min())), abs(int(data.max()))) if data.size else 0


def _arithmetic(operation: type[ast.operator], left: _Values, right: _Values) -> _Values:
    """left `operation` right on int64, in Python's integers where 64 bits might not do."""
    a, b, fault = left.data, right.data, _first_fault(left.fault, right.fault)
    if operation in (ast.FloorDiv, ast.Mod):
        fault = _first_fault(fault, np.where(b == 0, _ZERO, 0))
        b = np.where(b == 0, 1, b)
    apply = _ARITHMETIC[operation][1]
    largest = _magnitude(a), _magnitude(b)
    if (math.prod(largest) if operation is ast.Mult else sum(largest)) <= INT64.max:  # what the result cannot exceed
        return _Values(np.asarray(apply(a, b)), fault)
    exact = np.asarray(apply(a.astype(object), b.astype(object)), dtype=object)
    beyond = np.asarray((exact < INT64.min) | (exact > INT64.max), dtype=np.bool_)
    data = np.where(beyond, 0, exact).astype(np.int64)
    return _Values(data, _first_fault(fault, np.where(beyond, _OVERFLOW, 0)))


def _call(name: str, *arguments: _Values) -> _Values:
    fault = reduce(_first_fault, (argument.fault for argument in arguments), None)
    if name == "ceil_div":
        zero = _Values(np.asarray(0))
        floor = _arithmetic(ast.FloorDiv, _arithmetic(ast.Sub, zero, arguments[0]), arguments[1])
        return _arithmetic(ast.Sub, zero, floor)
    choose = np.minimum if name == "min" else np.maximum
    return _Values(np.asarray(reduce(choose, (argument.data for argument in arguments))), fault)


def _column(name: str, values: Array, text: str) -> Array:
    """`values` as bool, int64 or str."""
    column = np.asarray(values)
    if column.dtype.kind in "bUi":
        return column.astype(np.int64, copy=False) if column.dtype.kind == "i" else column
    if column.dtype.kind == "u" and (column <= INT64.max).all():
        return column.astype(np.int64)
    raise ExpressionError(f"{name} holds {column.dtype} values, not 64-bit integers, strings or truth values", text)


def _describe_fault(fault: Array, columns: Mapping[str, Array], shape: tuple[int, ...]) -> str:
    """What went wrong at the first faulty element, and the values of the names there."""
    full = np.broadcast_to(fault, shape)
    where = np.unravel_index(int(np.argmax(full != 0)), shape) if shape else ()
    values = ", ".join(f"{name} = {np.broadcast_to(column, shape)[where]}" for name, column in columns.items())
    return f"{_FAULTS[int(full[where])]} at {values}"
