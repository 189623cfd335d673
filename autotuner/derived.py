"""Derived quantities: what a point of a space amounts to on a problem, such as the blocks of its grid.

Two problems may make different things of one point, and one thing of two points. So what a study has learnt of a
quantity holds for another shape as well, where what it has learnt of a parameter may not (docs/search.md, Transfer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotuner.expression import Expression
from autotuner.problem import Problem
from autotuner.space_file import Facts, SpaceFile

Floats = NDArray[np.float64]

FINEST = 0.25
"""Quantities are told apart to a quarter of a doubling."""


def doublings(file: SpaceFile, facts: Facts, problems: Sequence[Problem], rows: NDArray[np.int16]) -> Floats:
    """The logarithm to base 2 of each of the file's q derived quantities (n, q), at points given as value indices
    (n, d), on these problems: of several the mean. NaN where a parameter that it names does not exist, or where it is
    not positive.

    Raises ExpressionError where one has no value, and KeyError where a fact that it names is not there.
    """
    found = np.full((len(rows), len(file.derived)), np.nan)
    columns = dict(zip(file.parameters, rows.T, strict=True))
    for place, name in enumerate(file.derived):
        expression = file.expressions[f"derived.{name}"]
        named = {each: columns[each] for each in file.parameters if each in expression.names}
        there = np.all([column >= 0 for column in named.values()], axis=0) & np.ones(len(rows), dtype=np.bool_)
        values = {each: file.parameters[each].array[column[there]] for each, column in named.items()}
        logs = [_log(expression, {**facts, **problem.facts()}, values, int(there.sum())) for problem in problems]
        found[there, place] = np.mean(logs, axis=0)
    return np.round(found / FINEST) * FINEST


def _log(expression: Expression, facts: Facts, values: Mapping[str, NDArray[Any]], count: int) -> Floats:
    known = {name: np.asarray(facts[name]) for name in expression.names - values.keys()}
    amounts = np.broadcast_to(expression.evaluate_arrays({**known, **values}), count)
    return np.log2(np.where(amounts > 0, amounts, np.nan))
