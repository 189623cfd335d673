"""What a point of a space amounts to on a problem: derived quantities, such as the blocks of its grid, and the latency
that the space file expects of it.

Two problems may make different things of one point, and one thing of two points. So what a study has learnt of a
quantity, and by how much it was off what was expected, hold for another shape as well, where what it has learnt of a
parameter may not (docs/method/search.md, "Where a new study starts").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotuner.spaces.branch import Branch
from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.spaces.fields import EXPECTED, Facts
from autotuner.values.problem import Problem

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
