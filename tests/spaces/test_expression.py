"""Constraint expressions: what they mean, what is refused, and that arrays and scalars agree."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from autotuner.spaces.expression import Expression, ExpressionError
from tests.helpers.files import refusals

VALUES = {"A": 7, "B": -3, "ZERO": 0, "IMPL": "simd", "FLAG": True}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *refusals("expression"),
        ("9" * 900, "64 bits"),
        ("A < 3\0", "character"),
        ("(" * 300 + "A" + ")" * 300, "paren"),
        ("-" * 300 + "A", "nested"),
        ("not " * 100 + "A", "nested"),
    ],
)
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression.parse(text)
    assert reason in caught.value.reason
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize(("text", "reason"), refusals("value"))
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
    return st.one_of(binary.map("({})".format), call, inner.map("-({})".format))


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
