"""Constraint expressions: what they mean, what is refused, and that arrays and scalars agree."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotuner.spaces.expression import Expression, ExpressionError

VALUES = {"A": 7, "B": -3, "ZERO": 0, "IMPL": "simd", "FLAG": True}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("__import__('os')", "call"),
        ("eval('1')", "call"),
        ("(min)(1, 2).x", "attribute"),
        ("A.real", "attribute"),
        ("A[0]", "subscript"),
        ("(lambda: 1)()", "call"),
        ("lambda: 1", "lambda"),
        ("[x for x in (1, 2)]", "comprehension"),
        ("any(x for x in (1, 2))", "call"),
        ("{1: 2}", "Dict"),
        ("f'{A}'", "f-string"),
        ("(A := 3)", "assignment"),
        ("A = 3", "not an expression"),
        ("import os", "not an expression"),
        ("A; B", "not an expression"),
        ("__name__", "name __name__"),
        ("min", "name min"),
        ("A / 2", "//"),
        ("A << 2", "LShift"),
        ("A & 2", "BitAnd"),
        ("~A", "Invert"),
        ("A is 3", "=="),
        ("1.5 < A", "1.5"),
        ("None", "None"),
        ("b'a' == IMPL", "b'a'"),
        ("1j", "1j"),
        ("...", "not an integer"),
        ("(1, 2)", "tuple"),
        ("A in B", "tuple or list"),
        ("A in ()", "tuple or list"),
        ("A in 'abc'", "tuple or list"),
        ("A in (1, B)", "not an integer"),
        ("A in (1, 'x')", "both strings and integers"),
        ("0 < A in (1, 2)", "chain"),
        ("min(A)", "2 or more"),
        ("abs(A, B)", "1 plain"),
        ("ceil_div(A, b=2)", "2 plain"),
        ("max(*A, 1)", "starred"),
        ("9 ** 9 ** 9 ** 9", "exponent"),
        ("3 ** 40", "64 bits"),
        ("2 ** 9999999999", "exponent"),
        ("2 ** -1", "exponent"),
        ("99999999999999999999", "64 bits"),
        ("9" * 900, "64 bits"),
        ("1 // 0", "division by zero"),
        ("1 % 0 == A", "division by zero"),
        ("'a' < 3", "string"),
        ("-'a'", "string"),
        ("A < 3 # and B", "'#'"),
        ("\uff21 < 3", "character"),
        ("A < 3\0", "character"),
        ("", "empty"),
        ("  ", "empty"),
        ("(" * 300 + "A" + ")" * 300, "paren"),
        ("-" * 300 + "A", "nested"),
        ("not " * 100 + "A", "nested"),
        ("A and", "not an expression"),
    ],
)
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression.parse(text)
    assert reason in caught.value.reason
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("IMPL < 3", "a string and an integer"),
        ("IMPL == A", "a string and an integer"),
        ("IMPL in (1, 2)", "a string and an integer"),
        ("IMPL < 'z'", "strings cannot be compared"),
        ("IMPL + 1", "IMPL is a string"),
        ("-IMPL", "IMPL is a string"),
        ("not IMPL", "IMPL is a string"),
        ("A and IMPL", "IMPL is a string"),
        ("max(IMPL, 2)", "IMPL is a string"),
        ("IMPL if A else 3", "the two sides"),
        ("A // ZERO", "division by zero at A = 7, ZERO = 0"),
        ("A % ZERO == 0", "division by zero"),
        ("ceil_div(A, ZERO)", "division by zero"),
        ("A ** 40", "64 bits"),
        ("9223372036854775807 + A", "64 bits"),
        ("-9223372036854775807 - A", "64 bits"),
        ("9223372036854775807 * A", "64 bits"),
        ("abs(-9223372036854775807 + B + 2)", "64 bits"),
        ("A ** (A * 10)", "exponent"),
        ("A ** B", "exponent"),
        ("MISSING < 3", "MISSING has no value"),
    ],
)
def test_no_value(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression.parse(text).evaluate(VALUES)
    assert reason in caught.value.reason
    assert caught.value.text == text


@pytest.mark.parametrize("value", [1.5, None, 2**64, 2**63, [1.0], b"x"])
def test_values_of_other_types_are_refused(value: object) -> None:
    with pytest.raises(ExpressionError, match="A holds"):
        Expression.parse("A < 3").evaluate({"A": value})


def test_what_is_not_reached_does_no_harm() -> None:
    zero = {"X": np.array([0, 1, 2, 3])}
    assert Expression.parse("X == 0 or 6 % X == 0").evaluate_arrays(zero).tolist() == [True] * 4
    assert Expression.parse("X != 0 and 4 % X == 0").evaluate_arrays(zero).tolist() == [False, True, True, False]
    assert Expression.parse("6 // X if X else -1").evaluate_arrays(zero).tolist() == [-1, 6, 3, 2]
    assert Expression.parse("0 < X < 6 // X").evaluate_arrays(zero).tolist() == [False, True, True, False]
    with pytest.raises(ExpressionError, match="X = 0"):
        Expression.parse("6 % X == 0 or X == 0").evaluate_arrays(zero)


def _number(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(" ".join)
    call = st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda part: f"{part[0]}({part[1]}, {part[2]})")
    return st.one_of(binary.map("({})".format), call, inner.map("-({})".format), inner.map("abs({})".format))


NUMBER = st.recursive(st.sampled_from(["A", "B", "C", "0", "3", "4611686018427387904"]), _number, max_leaves=6)
COMPARISON = st.tuples(NUMBER, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), NUMBER).map(" ".join)
TRUTH = st.recursive(
    COMPARISON,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda part: f"({' '.join(part)})"),
        inner.map("(not {})".format),
    ),
    max_leaves=4,
)


def _python(run: Callable[[], object]) -> object:
    try:
        return run()
    except (ZeroDivisionError, ExpressionError):
        return "error"


@settings(max_examples=100, deadline=None)
@given(TRUTH, st.lists(st.tuples(*[st.integers(-4, 4)] * 3), min_size=1, max_size=5))
def test_agrees_with_python_on_every_row(text: str, rows: list[tuple[int, int, int]]) -> None:
    try:
        expression = Expression.parse(text)
    except ExpressionError:
        return  # a constant part that has no value
    points = [dict(zip("ABC", row, strict=True)) for row in rows]
    scalars = [_python(lambda point=point: expression.evaluate(point)) for point in points]  # type: ignore[misc]
    for point, found in zip(points, scalars, strict=True):
        assert found in ("error", _python(lambda point=point: eval(text, dict(point, min=min, max=max))))  # type: ignore[misc]
    columns = {name: np.array([point[name] for point in points]) for name in "ABC"}
    arrays = _python(lambda: np.broadcast_to(expression.evaluate_arrays(columns), len(rows)).tolist())
    assert arrays == ("error" if "error" in scalars else scalars)


def test_an_amount_is_evaluated_where_it_is_named() -> None:
    amounts = {"HALF": Expression.parse("A // 2")}
    amounts["QUARTER"] = Expression.parse("HALF // B", amounts)
    found = Expression.parse('QUARTER + HALF if KIND == "x" else 7', amounts)
    assert found.names == {"A", "B", "KIND"}
    assert found.evaluate({"A": 12, "B": 2, "KIND": "x"}) == 9
    assert found.evaluate({"A": 12, "B": 0, "KIND": "y"}) == 7  # what is not reached need not have a value
    with pytest.raises(ExpressionError, match="division by zero at A = 12, B = 0"):
        found.evaluate({"A": 12, "B": 0, "KIND": "x"})
    with pytest.raises(ExpressionError, match="A is a string, // needs an integer") as caught:
        Expression.parse("QUARTER > 1", amounts).evaluate({"A": "text", "B": 2})
    assert caught.value.text == "A // 2"
