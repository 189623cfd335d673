"""A space file: the TOML document, checked as far as it can be without a device."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field, PlainValidator, ValidationError, create_model, model_validator
from pydantic_core import PydanticCustomError

from autotuner.ops import DEFAULT_OP, OPS
from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.spaces.fields import (
    EXPECTED,
    NAME,
    Constraint,
    ExpressionText,
    Facts,
    Parameter,
    ParameterValue,
    as_tuple,
    parsed_amounts,
)
from autotuner.spaces.limits import KINDS, FindLimits, merged
from autotuner.spaces.space_document import Document, complete, parse_document, read_document
from autotuner.values.errors import InputError, KernelError, SpaceError
from autotuner.values.model import Model
from autotuner.values.problem import Problem
from autotuner.values.ratio import Objective
from autotuner.values.validation import explanation, refuse, show, suggestion
from autotuner.values.variant import Value

MOST = {"problems": 256, "parameters": 128, "constraints": 512, "amounts": 64, "derived": 64, EXPECTED: 64}
"""Entries of each table or list, at most, those of the family among them."""

COUNT, US = "count", "us"
"""What a file of problems may say of each beside its fields: calls of it, and the baseline's microseconds."""
WEIGHED = {COUNT, US}

HIDDEN = ("path", "op", "limit_of", "place")
"""Fields that are no keys of a file, or not to be suggested."""


def _threads(value: object) -> int | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise refuse(f'found {show(value)}, expected "all" or a positive integer')


def _of_an_op(document: Document) -> Document:
    """The document whose problems name their op: where neither they nor a family do, the first one."""
    problems = document.get("problems")
    if not isinstance(problems, list):
        return document
    named = [{"op": DEFAULT_OP, **each} if isinstance(each, dict) else each for each in problems]
    return {**document, "problems": named}


def problem_documents(texts: Iterable[str], op: str = DEFAULT_OP) -> list[Document]:
    """Problems as a file would have them, from the form in which the op writes them. Raises InputError."""
    kind, found = OPS[op].problem, []
    for text in texts:
        try:
            found.append(kind.parse(text).model_dump())
        except ValidationError as error:
            raise InputError(f"problem {show(text)}: {explanation(error, kind)}") from None
        except ValueError as error:
            raise InputError(f"problem: {error}") from None
    return found


class Asked(NamedTuple):
    """Problems that one study can be about, as a file would have them, and what counts of them."""

    problems: list[Document]
    weights: tuple[float, ...] = ()
    """One a problem; none: they count alike."""


def problems_in(path: Path) -> list[Document]:
    """The tables [[problems]] of a file that may have nothing else; each may say how often it is called (`count`) and
    what the baseline takes for it (`us`, microseconds). Raises SpaceError."""
    document = read_document(path)
    problems = document.get("problems")
    if not isinstance(problems, list) or not problems or not all(isinstance(each, dict) for each in problems):
        raise SpaceError(f"{path}: problems: missing; expected tables [[problems]] as in a space file")
    for index, each in enumerate(problems):
        for key, other in ((COUNT, US), (US, COUNT)):
            if key not in each:
                continue
            where = f"{path}: problems[{index}].{key}"
            if other not in each or not all(WEIGHED & each.keys() for each in problems):
                raise SpaceError(f"{where}: give every problem {COUNT} and {US}, or none")
            if isinstance(each[key], bool) or not isinstance(each[key], int | float) or not 0 < each[key] < math.inf:
                raise SpaceError(f"{where}: found {show(each[key])}, expected a number greater than 0")
    named = _of_an_op({"problems": [_unweighed(each) for each in problems]})
    try:
        _Problems.model_validate(named, strict=True)
    except ValidationError as error:
        raise SpaceError(f"{path}: {_explained(error, named)}") from None
    return problems


class _Problems(Model):
    """What a file of problems has, without weights."""

    problems: Annotated[tuple[Problem, ...], BeforeValidator(as_tuple)]


def _unweighed(document: Document) -> Document:
    return {name: value for name, value in document.items() if name not in WEIGHED}


def asked(documents: Iterable[Document]) -> list[Asked]:
    """The problems in groups that one artifact can serve each, in the order in which the groups begin; the weights are
    count times microseconds, and what is there twice counts as often as both."""
    groups: dict[object, dict[str, tuple[Document, float]]] = {}
    for document in documents:
        weight = float(document.get(COUNT, 0)) * float(document.get(US, 0))
        rest = _unweighed(document)
        group = groups.setdefault(_compiled_part(rest), {})
        key = json.dumps(rest, sort_keys=True, default=str) if weight else f"{len(group)}"
        group[key] = rest, weight + (group[key][1] if key in group else 0.0)
    return [_of_group(list(group.values())) for group in groups.values()]


def _of_group(group: list[tuple[Document, float]]) -> Asked:
    weights = tuple(weight for _, weight in group)
    shares = tuple(float(f"{weight / math.fsum(weights):.3g}") for weight in weights) if all(weights) else ()
    return Asked([problem for problem, _ in group], shares if len(group) > 1 else ())


def _compiled_part(document: Document) -> object:
    """What the problems of one study share; nothing where the document is no problem, which is refused later."""
    try:
        problem = Problem.model_validate({"op": DEFAULT_OP, **document}, strict=True)
    except (ValidationError, PydanticCustomError):
        return None
    return problem.op, tuple(sorted(problem.compiled.items()))


def _about(document: Document, asked: Asked, path: str | Path) -> Document:
    """The document with other problems. Weights of its own are those of its own problems: they go with these."""
    kept = {key: value for key, value in document.items() if key != "objective" or not isinstance(value, list)}
    weights = {"objective": list(asked.weights)} if asked.weights else {}
    title = f"{Path(path).stem} for problems of the caller"
    return {**kept, "problems": asked.problems, "title": title, **weights}


def _bounded(document: Document) -> Document:
    """The document. Raises a refusal where a table or a list has more entries than a search can do anything with."""
    for key, most in MOST.items():
        entries = document.get(key)
        if isinstance(entries, dict | list) and len(entries) > most:
            raise refuse(f"found {len(entries)} entries, expected at most {most}", key)
    return document


def _explained(error: ValidationError, document: Document) -> str:
    """What is wrong with the document, in one line; of its problems the keys are known that their op has."""
    problems = document.get("problems")
    first = problems[0] if isinstance(problems, list) and problems and isinstance(problems[0], dict) else {}
    op = first.get("op", DEFAULT_OP)
    problem: Any = OPS[op].problem if isinstance(op, str) and op in OPS else Problem
    known = create_model("SpaceFile", __base__=SpaceFile, problems=(tuple[problem, ...], ...))
    return explanation(error, known, HIDDEN)


class SpaceFile(Model):
    """A space file: what can be tuned, for which problems, under which constraints. See docs/space-files.md."""

    path: str = Field(default="space.toml", description="where it was read; not a key of the file")
    like: str | None = Field(default=None, description="the space file that it takes over what it does not say from")
    title: str
    family: str = Field(pattern="^[A-Za-z][A-Za-z0-9_]{0,63}$")
    backend: str = Field(pattern="^[a-z][a-z0-9_]{0,63}$")
    threads: Annotated[int | Literal["all"], PlainValidator(_threads)] = "all"
    cache: Literal["cold", "warm"] = "cold"
    objective: Objective = "mean"
    problems: Annotated[tuple[Problem, ...], BeforeValidator(as_tuple)] = Field(min_length=1)
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
        return cls._of(read_document(Path(path)), path, limits, problems)

    @classmethod
    def parse(cls, text: str, path: str | Path = "space.toml", limits: FindLimits | None = None) -> SpaceFile:
        """Check the text of a space file, as `load` does; `path` names it in messages."""
        return cls._of(parse_document(text, path), path, limits)

    @classmethod
    def stored(cls, document: str) -> SpaceFile:
        """The space of a study, from its record in a store. Raises SpaceError where that cannot be read."""
        try:
            return cls.model_validate_json(document)
        except (ValueError, PydanticCustomError, RecursionError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise SpaceError(f"the record of the study's space cannot be read ({first}): restore the store") from None

    @classmethod
    def _of(
        cls, written: Document, path: str | Path, find: FindLimits | None, problems: Asked | None = None
    ) -> SpaceFile:
        own, inherited = complete(written, path)
        if problems is not None:
            own = _about(own, problems, path)
        family, device = own.get("family"), own.get("backend")
        if find is None or not isinstance(family, str) or not isinstance(device, str):
            return cls._checked(own, path)
        try:
            limits = find(family, device, Path(path).resolve().parent)
        except KernelError:
            cls._checked(own, path)  # what is wrong with the file itself comes first
            raise
        return cls._checked(own, path, lambda document: merged(document, limits, inherited))

    @classmethod
    def _checked(
        cls, own: Document, path: str | Path, add: Callable[[Document], Document] = lambda document: document
    ) -> SpaceFile:
        where = f"{path} (like {own['like']})" if "like" in own else f"{path}"
        try:
            document = add(_bounded(own))
            file = cls.model_validate({**_of_an_op(_bounded(document)), "path": str(path)}, strict=True)
            file._check_strings(f"{kind}.{name}" for kind in KINDS for name in own.get(kind, ()))
        except ValidationError as error:
            raise SpaceError(f"{where}: {_explained(error, own)}") from None
        except PydanticCustomError as error:
            raise SpaceError(f"{where}: {(error.context or {})['key']}: {error.message()}") from None
        return file

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
        done: list[str] = []
        while len(done) < len(self.parameters):
            ready = [name for name in self.parameters if name not in done and self.controllers(name) <= {*done}]
            if not ready:
                raise refuse(*self._cycle({*self.parameters} - {*done}))
            done.append(ready[0])
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
    def _check(self) -> SpaceFile:
        self._check_problems()
        self._check_names()
        self._check_expressions()
        self._fill_default()
        self.check_default(self.shared_facts)
        return self

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

    def _check_names(self) -> None:
        for name in self.parameters:
            if not NAME.fullmatch(name):
                raise refuse("expected a name of capitals, digits and _, a capital first", f"parameters.{name}")
            if name in self.problems[0].facts():
                raise refuse("the problem already has a fact of this name; expected another", f"parameters.{name}")
        tables = {"amounts": self.amounts, "derived": self.derived, EXPECTED: self.expected_latency}
        for table, names in tables.items():
            for name in names:
                if not NAME.fullmatch(name):
                    raise refuse("expected a name of capitals, digits and _, a capital first", f"{table}.{name}")
                if name in self.parameters or name in self.problems[0].facts():
                    raise refuse("a parameter or a fact has this name; expected another", f"{table}.{name}")
                if table == EXPECTED and name in self.derived:
                    raise refuse("a derived quantity has this name; expected another", f"{table}.{name}")
                if table != "amounts" and name in self.amounts:
                    raise refuse("an amount has this name; expected another", f"{table}.{name}")
        if "IMPL" not in self.parameters:
            raise refuse("missing; expected the list of implementations", "parameters.IMPL")
        impl = self.parameters["IMPL"]
        if impl.when is not None or not isinstance(impl.values[0], str):
            raise refuse("found integers or a condition, expected strings and no `when`", "parameters.IMPL")

    def _check_expressions(self) -> None:
        for key, expression in self.expressions.items():
            for name in sorted(expression.names):
                if not NAME.fullmatch(name):
                    hint = suggestion(name.upper(), self.parameters)
                    raise refuse(f"found the name {name}, expected a parameter or a fact, in capitals{hint}", key)
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
