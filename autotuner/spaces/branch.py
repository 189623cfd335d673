"""Branch: what a space has of one implementation: its parameters and values, limits, and what a point amounts to."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from autotuner.spaces import fields
from autotuner.spaces.expression import Expression
from autotuner.values.model import Model
from autotuner.values.validation import refuse, suggestion
from autotuner.values.variant import Value


class Branch(Model):
    """One implementation of a space. No parameter, amount or quantity of it is known to another branch."""

    impl: str
    parameters: dict[str, fields.Values]
    default: dict[str, fields.ParameterValue] = Field(description="a value of each parameter")
    amounts: dict[str, fields.ExpressionText] = Field(
        default_factory=dict, description="named parts of other expressions"
    )
    constraints: Annotated[tuple[fields.Constraint, ...], BeforeValidator(fields.as_tuple)] = ()
    derived: dict[str, fields.ExpressionText] = Field(default_factory=dict)
    expected_latency: dict[str, fields.ExpressionText] = Field(default_factory=dict)
    peak_percent: fields.ExpressionText = Field(default="100", description="of what matrix products reach, at most")

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The values of each parameter as an int64 or str array."""
        return {name: np.asarray(values) for name, values in self.parameters.items()}

    @cached_property
    def expressions(self) -> dict[str, Expression]:
        """Every expression by its dotted key."""
        amounts = fields.parsed_amounts(self.amounts)
        result = {f"amounts.{name}": amount for name, amount in amounts.items()}
        for index, each in enumerate(self.constraints):
            result[self.constraint_key(index)] = Expression.parse(each.expression, amounts)
        for table in ("derived", fields.EXPECTED):
            for name, text in getattr(self, table).items():
                result[f"{table}.{name}"] = Expression.parse(text, amounts)
        return result

    def constraint_key(self, index: int) -> str:
        """Under which key of `expressions` a constraint is."""
        return f"{self.constraints[index].place}.expression"

    def rule(self, index: int) -> Expression:
        """What a constraint demands of every point."""
        return self.expressions[self.constraint_key(index)]

    def steps_before(self, key: str) -> set[str]:
        """The names that the expression of that key may use beside parameters and facts: of a step towards the expected
        latency the derived quantities and the steps above it."""
        table, _, step = key.partition(".")
        if table != fields.EXPECTED:
            return set()
        steps = list(self.expected_latency)
        return {*self.derived, *steps[: steps.index(step)]}


def completed(given: Mapping[str, Value], parameters: Mapping[str, tuple[Value, ...]]) -> dict[str, Value]:
    """The default point of a branch: the values that are given and the first of every other parameter. Refuses an
    unknown parameter and a value that is none of its own."""
    for name, value in given.items():
        if name not in parameters:
            raise refuse(f"unknown parameter{suggestion(name, parameters)}", f"default.{name}")
        if value not in parameters[name]:
            known = ", ".join(map(repr, parameters[name]))
            raise refuse(f"found {value!r}, expected one of {known}", f"default.{name}")
    return {name: given.get(name, values[0]) for name, values in parameters.items()}


def union(tables: Sequence[Mapping[str, tuple[Value, ...]]]) -> dict[str, tuple[Value, ...]]:
    """The parameters of several branches in one table: numbers go up, strings stand in the order of the branches."""
    found: dict[str, dict[Value, None]] = {}
    for table in tables:
        for name, values in table.items():
            found.setdefault(name, {}).update(dict.fromkeys(values))
    ordered = {}
    for name, known in found.items():
        values = tuple(known)
        whole = (table[name] for table in tables if len(table.get(name, ())) == len(values))  # as one branch has them
        numbers = all(isinstance(value, int) for value in values)
        ordered[name] = next(whole, tuple(sorted(values, key=int)) if numbers else values)
    return ordered
