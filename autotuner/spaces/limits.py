"""Limits: what the implementations of a kernel family cannot do on a device, what a point of them amounts to, and how
long it should take.

They stand in the family's limits.toml: under `[cuda.mma]` those of an implementation, under `[cuda]` those of all
implementations of the device, each table as in a space file (docs/reference/kernel-toml.md). `SpaceFile` adds them to
what a space file says. They are no part of a study's identity: they change no program, only which points a space has.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.spaces.fields import (
    EXPECTED,
    KINDS,
    Constraint,
    ExpressionText,
    Parameter,
    Rule,
    as_tuple,
    check_names,
    parsed_amounts,
    require_capitals,
)
from autotuner.values.errors import KernelError
from autotuner.values.model import Model
from autotuner.values.toml_text import read_toml
from autotuner.values.validation import explanation, refusal, refuse, show, suggestion

FILE = "limits.toml"


class LimitTable(Model):
    """What one implementation says of itself, or what holds for all of a device."""

    amounts: dict[str, ExpressionText] = Field(default_factory=dict)
    constraints: Annotated[tuple[Rule, ...], BeforeValidator(as_tuple)] = ()
    derived: dict[str, ExpressionText] = Field(default_factory=dict)
    expected_latency: dict[str, ExpressionText] = Field(default_factory=dict)

    def named(self, kind: str) -> dict[str, str]:
        """The amounts, the derived quantities or the steps to the expected latency, by name."""
        found: dict[str, str] = getattr(self, kind)
        return found


class Limits(Model):
    """The limits of a family's implementations on one device."""

    family: str
    device: str
    op: str
    path: str = Field(description="the file that they stand in, for messages")
    parameters: dict[str, tuple[str, ...]] = Field(description="by implementation, those that it reads")
    tables: dict[str, LimitTable] = Field(default_factory=dict, description='by implementation; "": what holds for all')

    def key(self, implementation: str) -> str:
        """Where an implementation's table stands; that of all of them for ""."""
        return f"{self.device}.{implementation}" if implementation else self.device

    def readers(self, parameter: str, chosen: list[str]) -> tuple[str, ...]:
        """Those of the implementations that read a parameter."""
        return tuple(name for name in chosen if parameter in self.parameters.get(name, ()))

    @cached_property
    def all_parameters(self) -> frozenset[str]:
        """The parameters of all its implementations."""
        return frozenset(name for names in self.parameters.values() for name in names)

    def check(self, facts: frozenset[str]) -> None:
        """Refuses a name that is defined twice, and one that an expression cannot know; `facts` are the problem's.

        What is no parameter of the family, no fact of a problem and defined nowhere may be a fact of the device: a
        space looks for that when its points are enumerated. Raises KernelError, one line with the key.
        """
        try:
            self._check(facts)
        except PydanticCustomError as error:
            raise KernelError(f"{self.path}: {refusal(error)}") from None

    def _check(self, facts: frozenset[str]) -> None:
        if unknown := next((name for name in self.tables if name and name not in self.parameters), None):
            known = [*self.parameters, *KINDS, "constraints"]
            there = suggestion(unknown, known) or f"; those of kernel.toml: {', '.join(self.parameters) or 'none'}"
            raise refuse(f"no such implementation{there}", self.key(unknown))
        expecting = [name for name, table in self.tables.items() if table.expected_latency]
        if "" in expecting[:-1]:
            message = f"{self.device} has one for all implementations; remove one of the two"
            raise refuse(message, f"{self.key(expecting[1])}.{EXPECTED}")
        taken = {"IMPL", *self.all_parameters, *facts}
        named = {
            f"{self.key(name)}.{kind}": table.named(kind) for name, table in self.tables.items() for kind in KINDS[:2]
        }
        for name, table in self.tables.items():  # steps of two implementations may have the same names
            check_names({**named, f"{self.key(name)}.{EXPECTED}": table.expected_latency}, taken)
        defined = {each for table in self.tables.values() for kind in KINDS for each in table.named(kind)}
        amounts: dict[str, Expression] = {}
        derived: set[str] = set()
        for name, table in self.tables.items():
            others = self.all_parameters - {*self.parameters.get(name, self.all_parameters)}
            for kind in KINDS:
                above = set(derived) if kind == EXPECTED else set()
                for each, text in table.named(kind).items():
                    place = f"{self.key(name)}.{kind}.{each}"
                    expression = _checked(place, text, amounts, others, defined - above)
                    if kind == "amounts":
                        amounts[each] = expression
                    elif kind == EXPECTED:
                        above.add(each)
                    else:
                        derived.add(each)
            for index, rule in enumerate(table.constraints):
                place = f"{self.key(name)}.constraints[{index}].expression"
                _checked(place, rule.expression, amounts, others, defined)

    def part(self, chosen: list[str], parameters: frozenset[str]) -> tuple[list[Constraint], dict[str, dict[str, str]]]:
        """What a space of these implementations with these parameters has of them: constraints, and by kind the named
        expressions.

        What belongs to an implementation that the space has not, or names a parameter that none of its implementations
        read, is left out. What is learnt of an implementation has no value for another one. Of several with an expected
        latency the first one's counts.
        """
        tables = {name: self.tables[name] for name in ("", *chosen) if name in self.tables}
        amounts = parsed_amounts({name: text for each in tables.values() for name, text in each.amounts.items()})
        expecting = next((name for name, table in tables.items() if table.expected_latency), "")

        def read_by(text: str) -> frozenset[str]:
            return Expression.parse(text, amounts).names & self.all_parameters

        def bound(text: str, name: str) -> str:
            """With no positive value where another implementation is chosen; as it is where one of its parameters
            exists for no other, or it belongs to all of the device."""
            others = [self.parameters.get(other, ()) for other in chosen if other != name]
            alone = not name or not any(read_by(text) <= {*read} for read in others)
            return text if alone else f'({text}) if IMPL == "{name}" else 0'

        named = {
            kind: {
                each: text if kind == "amounts" else bound(text, name)
                for name, table in tables.items()
                if kind != EXPECTED or name == expecting
                for each, text in table.named(kind).items()
                if read_by(text) <= parameters
            }
            for kind in KINDS
        }
        known = tuple(name for name in chosen if name in self.parameters)
        constraints = [
            Constraint(
                expression=rule.expression,
                reason=rule.reason,
                limit_of=(name,) if name else known,
                place=f"{self.key(name)}.constraints[{index}]",
            )
            for name, table in tables.items()
            for index, rule in enumerate(table.constraints)
            if read_by(rule.expression) <= parameters
        ]
        return constraints, named


def _checked(
    place: str, text: str, amounts: Mapping[str, Expression], others: frozenset[str], later: set[str]
) -> Expression:
    try:
        expression = Expression.parse(text, amounts)
    except ExpressionError as error:
        raise refuse(error.reason, place) from None
    for name in sorted(expression.names):
        require_capitals(name, place)
        if name in others:
            raise refuse(f"{name} is no parameter of it but of another implementation", place)
        if name in later:
            raise refuse(f"{name} is not defined above it; move it up", place)
    return expression


FindLimits = Callable[[str, str, Path], Limits]
"""The limits of the family of that name on that device, for a space file in that folder."""


def read_limits(folder: Path) -> dict[str, dict[str, LimitTable]]:
    """The tables of a family's limits.toml by kind of device; none where it has no such file.

    Raises KernelError, one line with the file and the key.
    """
    path = folder / FILE
    found: dict[str, dict[str, LimitTable]] = {}
    for device, content in read_toml(path, KernelError).items() if path.is_file() else ():
        if not isinstance(content, dict):
            raise KernelError(f"{path}: {device}: found {show(content)}, expected tables of limits")
        shared = {name: each for name, each in content.items() if name in LimitTable.model_fields}
        own = {name: each for name, each in content.items() if name not in shared}
        found[device] = {}
        for name, each in {"": shared, **own}.items():
            key = f"{device}.{name}" if name else device
            try:
                found[device][name] = LimitTable.model_validate(each, strict=True)
            except ValidationError as error:
                colon = "." if isinstance(each, dict) else ": "
                raise KernelError(f"{path}: {key}{colon}{explanation(error, LimitTable)}") from None
    return found


def with_conditions(parameters: Mapping[str, Parameter], chosen: list[str], limits: Limits) -> dict[str, Parameter]:
    """The parameters of a space with the condition under which each exists, where some of the implementations do not
    read it and the file does not say when. Refuses a space that lacks one."""
    for implementation in chosen:
        for name in limits.parameters.get(implementation, ()):
            if name not in parameters:
                unread = [each for each in parameters if each != "IMPL" and not limits.readers(each, chosen)]
                meant = difflib.get_close_matches(name, unread, n=1)
                hint = f"; {meant[0]}, which nothing reads, may be meant" if meant else ""
                raise refuse(
                    f"missing; {limits.key(implementation)} of {limits.family} reads it{hint}", f"parameters.{name}"
                )
    return {name: _with_condition(each, limits.readers(name, chosen), chosen) for name, each in parameters.items()}


def _with_condition(parameter: Parameter, readers: tuple[str, ...], chosen: list[str]) -> Parameter:
    if parameter.when is not None or len(readers) in (0, len(chosen)):
        return parameter
    among = ", ".join(f'"{reader}"' for reader in readers)
    when = f"IMPL == {among}" if len(readers) == 1 else f"IMPL in ({among})"
    return Parameter(values=parameter.values, when=when)
