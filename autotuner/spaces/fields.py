"""What space files and the limits of kernel families are written with: values, expressions, parameters, constraints."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.values.model import Model
from autotuner.values.validation import refuse, show, suggestion
from autotuner.values.variant import Value

Facts = Mapping[str, int | str | bool]

NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_STRING = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
EXPECTED, PARAMETERS = "expected_latency", "parameters"
KINDS = ("amounts", "derived", EXPECTED)
"""The tables of named expressions."""


def as_tuple(value: object) -> object:
    """A list as a tuple; TOML knows lists alone."""
    return tuple(value) if isinstance(value, list) else value


def _parameter_value(value: object) -> Value:
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise refuse("found a larger number, expected an integer of 64 bits")
        return value
    if not isinstance(value, str):
        remedy = " (write 0 or 1)" if isinstance(value, bool) else ""
        raise refuse(f"found {show(value)}, expected an integer or a string{remedy}")
    if not _STRING.fullmatch(value):
        raise refuse(f"found {show(value)}, expected a string of 1 to 64 letters, digits, and _ . + -")
    return value


def _expression(text: object) -> str:
    if not isinstance(text, str):
        raise refuse(f"found {show(text)}, expected a string with an expression")
    try:
        Expression.parse(text)
    except ExpressionError as error:
        raise refuse(f"found {show(text)}: {error.reason}") from None
    return text


def _values(values: tuple[Value, ...]) -> tuple[Value, ...]:
    if not 0 < len(values) < 2**15:
        raise refuse(f"found {len(values) or 'no'} values, expected 1 to {2**15 - 1}")
    if len({type(value) for value in values}) > 1:
        raise refuse("found both integers and strings, expected one kind")
    if len(set(values)) < len(values):
        twice = next(value for value, count in Counter(values).items() if count > 1)
        raise refuse(f"found {twice!r} twice, expected distinct values")
    return values


ParameterValue = Annotated[Value, PlainValidator(_parameter_value)]
Values = Annotated[tuple[ParameterValue, ...], BeforeValidator(as_tuple), AfterValidator(_values)]
"""The values of a parameter, in the order in which they are neighbours."""
ExpressionText = Annotated[str, PlainValidator(_expression)]

_SomeValues = Annotated[
    tuple[ParameterValue, ...],
    BeforeValidator(as_tuple),
    AfterValidator(lambda values: _values(values) if values else ()),
]
Read = Annotated[
    dict[str, _SomeValues],
    BeforeValidator(
        lambda names: dict.fromkeys(names, ()) if isinstance(names, list) and {*map(type, names)} <= {str} else names
    ),
]
"""The parameters that an implementation reads, with the values that they can have: a table, or a list of names."""


class Rule(Model):
    """What must hold, and why."""

    expression: ExpressionText
    reason: str = Field(min_length=1)


class Constraint(Rule):
    """What must hold at every valid point of a branch, for every problem, and why."""

    place: str = Field(description="where it stands, such as constraints[0] or cuda.NAME.constraints[3] of a family")
    limit: bool = Field(description="whether the kernel family says it, not the space file")


def check_names(tables: Mapping[str, Iterable[str]], facts: Collection[str]) -> None:
    """Refuses a name that is not written in capitals, one that a fact has, and one that is defined twice; `tables` are
    the names by the key under which they are defined."""
    found: dict[str, str] = {}
    for key, names in tables.items():
        for name in names:
            if not NAME.fullmatch(name):
                raise refuse("expected a name of capitals, digits and _, a capital first", f"{key}.{name}")
            if name in facts or name in found:
                there = found.get(name, PARAMETERS)
                there = "a parameter or a fact" if there == PARAMETERS else there
                raise refuse(f"{there} has this name; choose another", f"{key}.{name}")
            found[name] = key


def require_capitals(name: str, key: str, known: Iterable[str] = ()) -> None:
    """Refuses a name in an expression that no parameter or fact can have."""
    if not NAME.fullmatch(name):
        hint = suggestion(name.upper(), known)
        raise refuse(f"found the name {name}, expected a parameter or a fact, in capitals{hint}", key)


def parsed_amounts(texts: Mapping[str, str]) -> dict[str, Expression]:
    """Named amounts, parsed; each may name those above it."""
    amounts: dict[str, Expression] = {}
    for name, text in texts.items():
        amounts[name] = Expression.parse(text, dict(amounts))
    return amounts
