"""Limits: what the implementations of a kernel family cannot do on a device, what a point of them amounts to, and how
long it should take.

The family says it once; `merged` adds it to the content of a space file, which keeps problems, values, default and the
constraints that are a choice of its search.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from autotuner.spaces.expression import Expression
from autotuner.spaces.fields import EXPECTED, ExpressionText, Rule, as_tuple, parsed_amounts
from autotuner.values.model import Model
from autotuner.values.validation import refuse, show

Document = dict[str, Any]


KINDS = ("amounts", "derived", EXPECTED)
"""The tables of named expressions."""


class LimitTable(Model):
    """What one implementation says of itself, or what holds for all of a device."""

    amounts: dict[str, ExpressionText] = Field(default_factory=dict)
    constraints: Annotated[tuple[Rule, ...], BeforeValidator(as_tuple)] = ()
    derived: dict[str, ExpressionText] = Field(default_factory=dict)
    expected_latency: dict[str, ExpressionText] = Field(default_factory=dict)

    def texts(self) -> dict[str, str]:
        """Every expression by its dotted key in the table, amounts first."""
        result = {f"{kind}.{name}": text for kind in KINDS for name, text in self.named(kind).items()}
        return result | {f"constraints[{i}].expression": rule.expression for i, rule in enumerate(self.constraints)}

    def named(self, kind: str) -> dict[str, str]:
        """The amounts, the derived quantities or the steps to the expected latency, by name."""
        return {"amounts": self.amounts, "derived": self.derived, EXPECTED: self.expected_latency}[kind]


class Limits(Model):
    """The limits of a family's implementations on one device."""

    family: str
    device: str
    op: str
    path: str = Field(description="the file that they stand in, for messages")
    parameters: dict[str, tuple[str, ...]] = Field(description="by implementation, those that it reads")
    shared: LimitTable = LimitTable()
    own: dict[str, LimitTable] = Field(default_factory=dict, description="by implementation")

    def tables(self, implementations: Iterable[str]) -> dict[str, LimitTable]:
        """What holds for a space of these implementations, by the key of the table."""
        owned = {f"{self.device}.{name}": self.own[name] for name in implementations if name in self.own}
        return {self.device: self.shared, **owned}

    def readers(self, parameter: str, implementations: Iterable[str]) -> tuple[str, ...]:
        """Those of the implementations that read a parameter."""
        return tuple(name for name in implementations if parameter in self.parameters.get(name, ()))

    @cached_property
    def all_parameters(self) -> frozenset[str]:
        """The parameters of all its implementations."""
        return frozenset(name for names in self.parameters.values() for name in names)


FindLimits = Callable[[str, str, Path], Limits]
"""The limits of the family of that name on that device, for a space file in that folder."""


def merged(document: Document, limits: Limits, inherited: frozenset[str] = frozenset()) -> Document:
    """The content of a space file with the limits of its family.

    A parameter exists where the implementations that read it are chosen, unless the file says when. What belongs to an
    implementation that the space has not, or names a parameter that none of its implementations read, is left out; so
    are those `inherited` parameters that none of them reads. Raises a refusal where file and family do not go together.
    A document that is not in order is left for others to refuse.
    """
    chosen = _implementations(document)
    if not chosen or not isinstance(document.get("parameters"), dict):
        return document
    document = _without(document, {name for name in inherited - {"IMPL"} if not limits.readers(name, chosen)})
    _refuse_another_op(document, limits)
    _refuse_missing_parameters(document, chosen, limits)
    parameters = {name: _with_when(name, item, chosen, limits) for name, item in document["parameters"].items()}
    part = _Part(limits, chosen, frozenset(parameters))
    constraints = document.get("constraints", [])
    if isinstance(constraints, list):
        constraints = [*constraints, *part.constraints()]
    problems = document.get("problems", [])
    if isinstance(problems, list):
        problems = [{"op": limits.op, **each} if isinstance(each, dict) else each for each in problems]
    named = {kind: _joined(kind, part.named(kind), document.get(kind, {}), limits) for kind in KINDS}
    return {**document, "problems": problems, "parameters": parameters, "constraints": constraints, **named}


@dataclass(frozen=True)
class _Part:
    """The limits that a space of these implementations with these parameters has."""

    limits: Limits
    chosen: list[str]
    parameters: frozenset[str]

    @cached_property
    def tables(self) -> dict[str, LimitTable]:
        return self.limits.tables(self.chosen)

    @cached_property
    def amounts(self) -> dict[str, Expression]:
        return parsed_amounts({name: text for each in self.tables.values() for name, text in each.amounts.items()})

    def names(self, text: str) -> frozenset[str]:
        """The parameters of the family that an expression names, also through its amounts."""
        return Expression.parse(text, self.amounts).names & self.limits.all_parameters

    def exists(self, text: str) -> bool:
        return self.names(text) <= self.parameters

    def constraints(self) -> list[Document]:
        known = [name for name in self.chosen if name in self.limits.parameters]
        return [
            {
                **rule.model_dump(),
                "limit_of": (key.partition(".")[2],) if "." in key else tuple(known),
                "place": f"{key}.constraints[{index}]",
            }
            for key, table in self.tables.items()
            for index, rule in enumerate(table.constraints)
            if self.exists(rule.expression)
        ]

    def named(self, kind: str) -> dict[str, str]:
        """Amounts, derived quantities or steps. What is learnt of an implementation has no value for another one. Of
        several with an expected latency the first one's counts."""
        tables = {key: named for key, table in self.tables.items() if (named := table.named(kind))}
        if kind == EXPECTED:
            tables = dict([*tables.items()][:1])
        return {
            name: text if kind == "amounts" else self.bound(text, key.partition(".")[2])
            for key, named in tables.items()
            for name, text in named.items()
            if self.exists(text)
        }

    def bound(self, text: str, implementation: str) -> str:
        """The expression with no positive value where another implementation is chosen; as it is where one of its
        parameters exists for no other, or it belongs to all of the device."""
        others = [self.limits.parameters.get(other, ()) for other in self.chosen if other != implementation]
        if not implementation or not any(self.names(text) <= {*read} for read in others):
            return text
        return f'({text}) if IMPL == "{implementation}" else 0'


def _implementations(document: Document) -> list[str]:
    """The values of IMPL, as far as they are strings."""
    parameters = document.get("parameters")
    impl = parameters.get("IMPL") if isinstance(parameters, dict) else None
    values = impl.get("values") if isinstance(impl, dict) else impl
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _without(document: Document, names: set[str]) -> Document:
    tables = {table: document[table] for table in ("parameters", "default") if isinstance(document.get(table), dict)}
    kept = {table: {name: item for name, item in of.items() if name not in names} for table, of in tables.items()}
    return {**document, **kept}


def _refuse_another_op(document: Document, limits: Limits) -> None:
    problems = document.get("problems")
    for index, problem in enumerate(problems if isinstance(problems, list) else ()):
        found = problem.get("op", limits.op) if isinstance(problem, dict) else limits.op
        if found != limits.op:
            message = f"found {show(found)}, expected {show(limits.op)}, which the family {limits.family} computes"
            raise refuse(message, f"problems[{index}].op")


def _refuse_missing_parameters(document: Document, chosen: Iterable[str], limits: Limits) -> None:
    there = document["parameters"]
    for implementation in chosen:
        for name in limits.parameters.get(implementation, ()):
            if name not in there:
                where = f"{limits.device}.{implementation} of {limits.family}"
                read = {each for one in chosen for each in limits.parameters.get(one, ())}
                unread = [each for each in there if each != "IMPL" and each not in read]
                meant = difflib.get_close_matches(name, unread, n=1)
                hint = f"; {meant[0]}, which nothing reads, may be meant" if meant else ""
                raise refuse(f"missing; {where} reads it{hint}", f"parameters.{name}")


def _with_when(name: str, item: Any, chosen: list[str], limits: Limits) -> Any:
    """A parameter with the condition under which it exists, where some of the implementations do not read it."""
    readers = limits.readers(name, chosen)
    if not readers or len(readers) == len(chosen) or (isinstance(item, dict) and "when" in item):
        return item
    among = ", ".join(f'"{reader}"' for reader in readers)
    when = f"IMPL == {among}" if len(readers) == 1 else f"IMPL in ({among})"
    return {**item, "when": when} if isinstance(item, dict) else {"values": item, "when": when}


def _joined(key: str, family: Mapping[str, str], own: Any, limits: Limits) -> Any:
    """A table of the family and the file's own. What the file expects itself replaces what the family expects."""
    if not isinstance(own, dict) or (key == EXPECTED and own):
        return own
    twice = next((name for name in own if name in family), None)
    if twice is not None:
        raise refuse(f"{limits.path} has one of this name; expected another", f"{key}.{twice}")
    return {**family, **own}
