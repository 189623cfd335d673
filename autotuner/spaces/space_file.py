"""A space file: the TOML document, with what it takes over from the file that it is `like`, checked as far as it can be
without a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from heapq import heappop, heappush
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PlainValidator, ValidationError, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from autotuner.ops import DEFAULT_OP
from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.spaces.fields import (
    EXPECTED,
    KINDS,
    PARAMETERS,
    Constraint,
    ExpressionText,
    Facts,
    Parameter,
    ParameterValue,
    as_tuple,
    check_names,
    parsed_amounts,
    require_capitals,
)
from autotuner.spaces.limits import FindLimits, Limits, with_conditions
from autotuner.spaces.problem_files import Asked, Problems, explained
from autotuner.values import config
from autotuner.values.errors import KernelError, SpaceError
from autotuner.values.model import Model
from autotuner.values.ratio import Objective
from autotuner.values.toml_text import Document, parse_toml, read_toml
from autotuner.values.validation import refusal, refuse, show, suggestion
from autotuner.values.variant import Value


def _threads(value: object) -> int | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise refuse(f'found {show(value)}, expected "all" or a positive integer')


def _about(document: Document, asked: Asked, path: str | Path) -> Document:
    """The document with other problems. Weights of its own are those of its own problems: they go with these."""
    kept = {key: value for key, value in document.items() if key != "objective" or not isinstance(value, list)}
    weights = {"objective": list(asked.weights)} if asked.weights else {}
    problems = [problem.model_dump() for problem in asked.problems]
    return {**kept, "problems": problems, "title": f"{Path(path).stem} for problems of the caller", **weights}


def _refuse_ours(document: Document, path: str | Path) -> None:
    """Raises SpaceError, one line, for a key of what is made from a space file that the file itself cannot have."""
    if "path" in document:
        raise SpaceError(f"{path}: path: unknown key")
    constraints = document.get("constraints")
    for index, constraint in enumerate(constraints if isinstance(constraints, list) else ()):
        for key in ("limit_of", "place"):  # what a constraint of a kernel family has
            if isinstance(constraint, dict) and key in constraint:
                raise SpaceError(f"{path}: constraints[{index}].{key}: unknown key")


def _complete(document: Document, path: str | Path) -> tuple[Document, frozenset[str]]:
    """The document on top of the one that it is `like`, and the parameters that it has from there.

    A key that it has replaces the other's, and in the tables `parameters` and `default` a name does. A default with an
    IMPL of its own replaces the other's whole. Raises SpaceError where the other file cannot be read or is like a
    third.
    """
    if "like" not in document:
        return document, frozenset()
    base_path = _find(document["like"], path)
    base = read_toml(base_path, SpaceError)
    _refuse_ours(base, base_path)
    if "like" in base:
        where = f"{path}: like: {base_path}"
        raise SpaceError(f"{where} is itself like {base['like']!r}; name a file that is like no other")
    result = {**base, **document, "like": str(base_path)}
    for table in ("parameters", "default"):
        theirs, own = base.get(table), document.get(table, {})
        afresh = table == "default" and isinstance(own, dict) and "IMPL" in own
        if isinstance(theirs, dict) and isinstance(own, dict) and not afresh:
            result[table] = {**theirs, **own}
    return result, _parameters(base) - _parameters(document)


def _parameters(document: Document) -> frozenset[str]:
    found = document.get("parameters")
    return frozenset(found if isinstance(found, dict) else ())


def _find(like: object, path: str | Path) -> Path:
    """A file by its path from the folder of `path`; by name one beside it, or one that is shipped."""
    if not isinstance(like, str) or not like:
        raise SpaceError(f"{path}: like: found {like!r}, expected the name of a space or the path of its file")
    folder = Path(path).parent
    if like.endswith(".toml"):
        places = [folder / like]
    else:
        places = [folder / f"{like}.toml", config.spaces_dir() / f"{like}.toml"]
    for place in places:
        if place.is_file():
            return place
    raise SpaceError(f"{path}: like: there is no {' and no '.join(map(str, places))}")


class SpaceFile(Model):
    """What can be tuned, for which problems, under which constraints: docs/reference/space-files.md."""

    path: str = Field(default="space.toml", description="where it was read; not a key of the file")
    like: str | None = Field(default=None, description="the space file that it takes over what it does not say from")
    title: str
    family: str = Field(pattern="^[A-Za-z][A-Za-z0-9_]{0,63}$")
    backend: str = Field(pattern="^[a-z][a-z0-9_]{0,63}$")
    threads: Annotated[int | Literal["all"], PlainValidator(_threads)] = "all"
    cache: Literal["cold", "warm"] = "cold"
    objective: Objective = "mean"
    problems: Problems
    parameters: dict[str, Parameter]
    amounts: dict[str, ExpressionText] = Field(default_factory=dict, description="named parts of other expressions")
    constraints: Annotated[tuple[Constraint, ...], BeforeValidator(as_tuple)] = ()
    derived: dict[str, ExpressionText] = Field(default_factory=dict)
    expected_latency: dict[str, ExpressionText] = Field(default_factory=dict)
    default: dict[str, ParameterValue] = Field(description="a parameter that is not named takes its first value")

    @classmethod
    def load(cls, path: str | Path, limits: FindLimits | None = None, problems: Asked | None = None) -> SpaceFile:
        """Read and check a file and add what `limits` finds for its family; None where the file says all there is.
        `problems` replace those of the file, and their weights its objective; without weights they count alike.

        Raises SpaceError, one line with the file, the key, what was found and expected; and what `limits` raises.
        """
        return cls._read(read_toml(Path(path), SpaceError), path, limits, problems)

    @classmethod
    def parse(cls, text: str, path: str | Path = "space.toml", limits: FindLimits | None = None) -> SpaceFile:
        """Check the text of a space file, as `load` does; `path` names it in messages."""
        return cls._read(parse_toml(text, path, SpaceError), path, limits)

    @classmethod
    def stored(cls, document: str) -> SpaceFile:
        """The space of a study, from its record in a store. Raises SpaceError where that cannot be read."""
        try:
            return cls.model_validate_json(document)
        except (ValueError, PydanticCustomError, RecursionError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise SpaceError(f"the record of the study's space cannot be read ({first}): restore the store") from None

    @classmethod
    def _read(
        cls, written: Document, path: str | Path, find: FindLimits | None, problems: Asked | None = None
    ) -> SpaceFile:
        _refuse_ours(written, path)
        document, inherited = _complete(written, path)
        if problems is not None:
            document = _about(document, problems, path)
        family, device = document.get("family"), document.get("backend")
        if find is None or not isinstance(family, str) or not isinstance(device, str):
            return cls._checked(document, path)
        try:
            limits = find(family, device, Path(path).resolve().parent)
        except KernelError:
            cls._checked(document, path)  # what is wrong with the file itself comes first
            raise
        return cls._checked(document, path, limits, inherited)

    @classmethod
    def _checked(
        cls,
        document: Document,
        path: str | Path,
        limits: Limits | None = None,
        inherited: frozenset[str] = frozenset(),
    ) -> SpaceFile:
        where = f"{path} (like {document['like']})" if "like" in document else f"{path}"
        op = limits.op if limits is not None else DEFAULT_OP
        context = {"op": op, "limits": limits, "inherited": inherited}
        try:
            return cls.model_validate({**document, "path": str(path)}, strict=True, context=context)
        except ValidationError as error:
            raise SpaceError(f"{where}: {explained(error, document, cls, op)}") from None
        except PydanticCustomError as error:
            raise SpaceError(f"{where}: {refusal(error)}") from None

    @property
    def where(self) -> str:
        """The file for a message, with the one that it is like."""
        return self.path if self.like is None else f"{self.path} (like {self.like})"

    @property
    def name(self) -> str:
        """The file's name without folder and suffix."""
        return Path(self.path).stem

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The parameters, each after those its `when` names, else in the order of the file. Needs an acyclic file."""
        places = {name: place for place, name in enumerate(self.parameters)}
        waits = {name: self.controllers(name) for name in self.parameters}
        followers: dict[str, list[str]] = {name: [] for name in self.parameters}
        for name, named in waits.items():
            for other in named:
                followers[other].append(name)
        done: list[str] = []
        ready = [(places[name], name) for name, named in waits.items() if not named]  # in order, and so a heap
        while ready:
            _, name = heappop(ready)
            done.append(name)
            for follower in followers[name]:
                waits[follower].discard(name)
                if not waits[follower]:
                    heappush(ready, (places[follower], follower))
        if len(done) < len(self.parameters):
            raise refuse(*self._cycle({*self.parameters} - {*done}))
        return tuple(done)

    def controllers(self, name: str) -> set[str]:
        """The parameters that the `when` of a parameter names."""
        condition = self.parameters[name].condition
        return {other for other in condition.names if other in self.parameters} if condition else set()

    def _cycle(self, stuck: set[str]) -> tuple[str, str]:
        walk = [min(stuck)]
        while len({*walk}) == len(walk):
            walk.append(min(self.controllers(walk[-1]) & stuck))
        circle = walk[walk.index(walk[-1]) :]
        return (
            f"found a circle {' -> '.join(circle)}, expected conditions without circles",
            f"parameters.{circle[0]}.when",
        )

    @cached_property
    def expressions(self) -> dict[str, Expression]:
        """Every expression by its dotted key."""
        amounts, implementations = parsed_amounts(self.amounts), self.parameters["IMPL"].values
        whens = {f"parameters.{name}.when": item.condition for name, item in self.parameters.items()}
        result = {key: condition for key, condition in whens.items() if condition is not None}
        result |= {f"amounts.{name}": amount for name, amount in amounts.items()}
        for i, item in enumerate(self.constraints):
            result[f"{self.constraint_key(i)}.expression"] = item.parsed(implementations, amounts)
        result |= {f"derived.{name}": Expression.parse(text, amounts) for name, text in self.derived.items()}
        for name, text in self.expected_latency.items():
            result[f"{EXPECTED}.{name}"] = Expression.parse(text, amounts)
        return result

    def constraint_key(self, index: int) -> str:
        """Where a constraint stands: in the file, or among the limits of the family."""
        place = self.constraints[index].place
        return f"{place} of {self.family}" if place else f"constraints[{index}]"

    def rule(self, index: int) -> Expression:
        """What a constraint demands of every point."""
        return self.expressions[f"{self.constraint_key(index)}.expression"]

    def steps_before(self, key: str) -> set[str]:
        """The names that the expression of that key may use beside parameters and facts: of a step towards the expected
        latency the derived quantities and the steps above it."""
        table, _, step = key.partition(".")
        if table != EXPECTED:
            return set()
        steps = list(self.expected_latency)
        return {*self.derived, *steps[: steps.index(step)]}

    @cached_property
    def shared_facts(self) -> dict[str, Value | bool]:
        """The facts on which all problems agree."""
        first, *rest = [problem.facts() for problem in self.problems]
        return {name: value for name, value in first.items() if all(other[name] == value for other in rest)}

    def exists(self, name: str, point: Mapping[str, Value], facts: Facts) -> bool | None:
        """Whether a parameter exists at a point that holds those its `when` names; None when the facts do not tell."""
        condition = self.parameters[name].condition
        if condition is None or not self.controllers(name) <= point.keys():
            return condition is None
        if not condition.names <= {*point, *facts}:
            return None
        try:
            return bool(condition.holds({}, {"": np.zeros(1)}, [{**facts, **point}])[0])
        except ExpressionError as error:
            raise refuse(f"{show(condition.text)}: {error.reason}", f"parameters.{name}.when") from None

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> SpaceFile:
        reading = info.context or {}
        limits = reading.get("limits")
        file = self if limits is None else self._with(limits, reading["inherited"])
        file._check_problems()
        check_names(
            {PARAMETERS: file.parameters, **{kind: getattr(file, kind) for kind in KINDS}}, file.problems[0].facts()
        )
        if "IMPL" not in file.parameters:
            raise refuse("missing; expected the list of implementations", "parameters.IMPL")
        impl = file.parameters["IMPL"]
        if impl.when is not None or not isinstance(impl.values[0], str):
            raise refuse("found integers or a condition, expected strings and no `when`", "parameters.IMPL")
        file._check_expressions()
        if reading:  # what the file says itself
            file._check_strings(f"{kind}.{name}" for kind in KINDS for name in getattr(self, kind))
        file._fill_default()
        file.check_default(file.shared_facts)
        return file

    def _with(self, limits: Limits, inherited: frozenset[str]) -> SpaceFile:
        """The file with the limits of its family.

        A parameter exists where the implementations that read it are chosen, unless the file says when. Those
        `inherited` from another file that none of them reads are left out. Refuses what does not go together.
        """
        for index, problem in enumerate(self.problems):
            if problem.op != limits.op:
                message = f"expected {show(limits.op)}, which the family {limits.family} computes"
                raise refuse(f"found {show(problem.op)}, {message}", f"problems[{index}].op")
        impl = self.parameters.get("IMPL")
        chosen = [value for value in impl.values if isinstance(value, str)] if impl is not None else []
        if not chosen:
            return self
        unread = {name for name in inherited - {"IMPL"} if not limits.readers(name, chosen)}
        own = {name: each for name, each in self.parameters.items() if name not in unread}
        constraints, named = limits.part(chosen, frozenset(own))
        added: dict[str, Any] = {
            "parameters": with_conditions(own, chosen, limits),
            "default": {name: value for name, value in self.default.items() if name not in unread},
            "constraints": (*self.constraints, *constraints),
        }
        for kind in KINDS:
            said, found = getattr(self, kind), named[kind]
            if kind == EXPECTED and said:  # what the file expects replaces what the family does
                continue
            if twice := next((name for name in said if name in found), None):
                raise refuse(f"{limits.path} has one of this name; expected another", f"{kind}.{twice}")
            added[kind] = {**found, **said}
        return self.model_copy(update=added)

    def _check_problems(self) -> None:
        first = self.problems[0]
        if not isinstance(self.objective, str) and len(self.objective) != len(self.problems):
            found = f"found {len(self.objective)} weights, expected one for each of {len(self.problems)} problems"
            raise refuse(found, "objective")
        for index, problem in enumerate(self.problems[1:], 1):
            if problem in self.problems[:index]:
                raise refuse("found the same problem twice, expected distinct problems", f"problems[{index}]")
            for key in ("op", "dtype", *first.COMPILED):
                found, expected = getattr(problem, key), getattr(first, key)
                if found != expected:
                    message = f"found {show(found)}, expected {show(expected)} as in problems[0]: {key} is compiled in"
                    raise refuse(message, f"problems[{index}].{key}")

    def _check_expressions(self) -> None:
        for key, expression in self.expressions.items():
            for name in sorted(expression.names):
                require_capitals(name, key, self.parameters)
                # A point exists once for all problems, so its parameters cannot depend on where the problems differ.
                if "when" in key and name in self.problems[0].facts().keys() - self.shared_facts.keys():
                    raise refuse(f"found {name}, which differs between the problems; expected facts they share", key)
        own = [f"{self.constraint_key(i)}.expression" for i, each in enumerate(self.constraints) if not each.place]
        self._check_strings([*(key for key in self.expressions if "when" in key), *own])
        len(self.order)  # refuses circles

    def _check_strings(self, keys: Iterable[str]) -> None:
        """Refuse a string that no value of its parameter is. Only in what the file itself says: a limit of the family
        may speak of a value that this space does not offer."""
        for key in keys:
            for name, text in sorted(self.expressions[key].string_tests):
                values = self.parameters[name].values if name in self.parameters else (text,)
                if isinstance(values[0], str) and text not in values:
                    hint = suggestion(text, map(str, values))
                    raise refuse(f"compares {name} with {text!r}, expected one of its values{hint}", key)

    def _fill_default(self) -> None:
        """Gives each parameter that the default point does not name, and that surely exists there, its first value."""
        for name in self.order:
            if name not in self.default and self.exists(name, self.default, self.shared_facts):
                self.default[name] = self.parameters[name].values[0]

    def check_default(self, facts: Facts) -> None:
        """Refuse a default point that has a wrong name, value or set of parameters, as far as these facts tell."""
        for name, value in self.default.items():
            if name not in self.parameters:
                raise refuse(f"unknown parameter{suggestion(name, self.parameters)}", f"default.{name}")
            values = self.parameters[name].values
            if value not in values:
                raise refuse(f"found {value!r}, expected one of {', '.join(map(repr, values))}", f"default.{name}")
        unsure: set[str] = set()
        for name in self.order:
            exists = None if self.controllers(name) & unsure else self.exists(name, self.default, facts)
            if exists is None:
                unsure.add(name)
            elif exists and name not in self.default:
                raise refuse("missing, but the parameter exists at the default point", f"default.{name}")
            elif not exists and name in self.default:
                when = self.parameters[name].when
                raise refuse(f"the parameter does not exist at the default point (when: {when})", f"default.{name}")
