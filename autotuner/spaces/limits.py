"""Limits: what the implementations of a kernel family cannot do on a device, what a point of them amounts to, and how
long it should take.

They stand in the family's limits.toml: under `[cuda.mma]` those of an implementation, under `[cuda]` those of all
implementations of the device, each table as in a space file (docs/reference/kernel-toml.md). `SpaceFile` adds them to
what a space file says. They are no part of a study's identity: they change no program, only which points a space has.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from autotuner.spaces import fields
from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.values.errors import KernelError
from autotuner.values.model import Model
from autotuner.values.toml_text import read_toml
from autotuner.values.validation import explanation, refusal, refuse, show, suggestion

FILE = "limits.toml"


class LimitTable(Model):
    """What one implementation says of itself, or what holds for all of a device."""

    amounts: dict[str, fields.ExpressionText] = Field(default_factory=dict)
    constraints: Annotated[tuple[fields.Rule, ...], BeforeValidator(fields.as_tuple)] = ()
    derived: dict[str, fields.ExpressionText] = Field(default_factory=dict)
    expected_latency: dict[str, fields.ExpressionText] = Field(default_factory=dict)
    peak_percent: fields.ExpressionText = Field(
        default="100", description="of what matrix products reach on the device, at most; over facts alone"
    )

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
    parameters: dict[str, fields.Read] = Field(description="by implementation, those that it reads, with their values")
    defaults: dict[str, dict[str, fields.ParameterValue]] = Field(
        default_factory=dict, description="by implementation, what its default point has beside first values"
    )
    served: dict[str, dict[str, fields.Rule]] = Field(
        default_factory=dict, description="by implementation and key of kernel.toml: which problems it serves"
    )
    tables: dict[str, LimitTable] = Field(default_factory=dict, description='by implementation; "": what holds for all')

    def key(self, implementation: str) -> str:
        """Where an implementation's table stands; that of all of them for ""."""
        return f"{self.device}.{implementation}" if implementation else self.device

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
            known = [*self.parameters, *fields.KINDS, "constraints"]
            there = suggestion(unknown, known) or f"; those of kernel.toml: {', '.join(self.parameters) or 'none'}"
            raise refuse(f"no such implementation{there}", self.key(unknown))
        expecting = [name for name, table in self.tables.items() if table.expected_latency]
        if "" in expecting[:-1]:
            message = f"{self.device} has one for all implementations; remove one of the two"
            raise refuse(message, f"{self.key(expecting[1])}.{fields.EXPECTED}")
        for name in self.tables:
            self._check_table(name, facts)

    def _tables_of(self, implementation: str) -> dict[str, LimitTable]:
        """The table of all implementations, then its own."""
        return {name: self.tables[name] for name in dict.fromkeys(("", implementation)) if name in self.tables}

    def _check_table(self, implementation: str, facts: frozenset[str]) -> None:
        """Refuses what is wrong in an implementation's table beside that of all of them."""
        tables, reads = self._tables_of(implementation), self.parameters.get(implementation, self.all_parameters)
        said = {f"{self.key(name)}.{of}": table.named(of) for name, table in tables.items() for of in fields.KINDS}
        fields.check_names(said, {"IMPL", *reads, *facts})
        defined = {each for names in said.values() for each in names}
        amounts: dict[str, Expression] = {}
        derived: set[str] = set()
        for name, table in tables.items():
            others = self.all_parameters - {*(reads if name else self.all_parameters)}
            for kind in fields.KINDS:
                above = set(derived) if kind == fields.EXPECTED else set()
                for each, text in table.named(kind).items():
                    place = f"{self.key(name)}.{kind}.{each}"
                    expression = _checked(place, text, amounts, others, defined - above)
                    if kind == "amounts":
                        amounts[each] = expression
                    elif kind == fields.EXPECTED:
                        above.add(each)
                    else:
                        derived.add(each)
            place = f"{self.key(name)}.peak_percent"
            if read := sorted(_checked(place, table.peak_percent, {}, others, defined).names & {*reads}):
                raise refuse(f"{read[0]} is a parameter; the bound is one for all points", place)
            for index, rule in enumerate(table.constraints):
                place = f"{self.key(name)}.constraints[{index}].expression"
                _checked(place, rule.expression, amounts, others, defined)

    def peak_percent(self, implementation: str) -> str:
        """What the implementation says of its peak, else what holds for all."""
        said = [table.peak_percent for table in self._tables_of(implementation).values()]
        return next((each for each in reversed(said) if each != "100"), "100")

    def part(self, implementation: str) -> tuple[list[fields.Constraint], dict[str, dict[str, str]]]:
        """What the branch of an implementation has of them: constraints, and by kind the named expressions.

        Of what holds for all implementations that is left out which names a parameter that this one does not read.
        """
        tables = self._tables_of(implementation)
        amounts = fields.parsed_amounts({name: text for each in tables.values() for name, text in each.amounts.items()})
        others = self.all_parameters - {*self.parameters[implementation]}

        def read(text: str) -> bool:
            return not Expression.parse(text, amounts).names & others

        named = {
            kind: {each: text for table in tables.values() for each, text in table.named(kind).items() if read(text)}
            for kind in fields.KINDS
        }
        rules = {f"{implementation}.{key}": rule for key, rule in self.served.get(implementation, {}).items()}
        for name, table in tables.items():
            prefix = f"{name}." if name else ""
            rules |= {f"{prefix}constraints[{i}]": rule for i, rule in enumerate(table.constraints)}
        constraints = [
            fields.Constraint(
                expression=rule.expression,
                reason=rule.reason,
                place=f"{self.device}.{place} of {self.family}",
                limit=True,
            )
            for place, rule in rules.items()
            if read(rule.expression)
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
        fields.require_capitals(name, place)
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
