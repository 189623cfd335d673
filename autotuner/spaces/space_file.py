"""A space file: the TOML document, checked as far as it can be without a device."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainValidator, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from autotuner.ops import OPS
from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.values import first_documents
from autotuner.values.errors import SpaceError
from autotuner.values.model import Model
from autotuner.values.problem import Problem
from autotuner.values.variant import Value

Array = NDArray[Any]
Facts = Mapping[str, int | str | bool]

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_STRING = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
_WORDS = {
    "Input should be ": "expected ",
    "expected greater": "expected a number greater",
    "String should have": "expected a string of",
    "Tuple should have": "expected a list of",
    " after validation, not 0": "",
    "a valid tuple": "a list",
    "a valid dictionary or instance of ": "a table: ",
    "a valid dictionary": "a table",
    "a valid ": "a ",
    "a integer": "an integer",
    "a boolean": "true or false",
}
EXPECTED = "expected_latency"


def refuse(message: str, key: str = "") -> PydanticCustomError:
    """A refusal of the space file's content; `key` is where, when pydantic cannot know."""
    return PydanticCustomError("space", "{message}", {"message": message, "key": key})


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _problems(value: object) -> object:
    """Problems that name no op are of the first."""
    if not isinstance(value, list):
        return value
    return tuple({"op": first_documents.OP, **each} if isinstance(each, dict) else each for each in value)


def _parameter_value(value: object) -> Value:
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise refuse(f"found {value}, expected an integer of 64 bits")
        return value
    if not isinstance(value, str):
        remedy = " (write 0 or 1)" if isinstance(value, bool) else ""
        raise refuse(f"found {show(value)}, expected an integer or a string{remedy}")
    if not _STRING.fullmatch(value):
        raise refuse(f"found {show(value)}, expected a string of 1 to 64 letters, digits, and _ . + -")
    return value


def _threads(value: object) -> int | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise refuse(f'found {show(value)}, expected "all" or a positive integer')


def _expression(text: object) -> str:
    if not isinstance(text, str):
        raise refuse(f"found {show(text)}, expected a string with an expression")
    try:
        Expression.parse(text)
    except ExpressionError as error:
        raise refuse(f"found {show(text)}: {error.reason}") from None
    return text


def show(value: object) -> str:
    """The value for a one-line message, with what it is where its look does not tell."""
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    text = text if len(text) <= 60 else text[:57] + "..."
    kinds = {bool: "a boolean", float: "a float", dict: "a table", list: "a list"}
    kind = kinds.get(type(value))
    return f"{text} ({kind})" if kind else text


def suggestion(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


ParameterValue = Annotated[Value, PlainValidator(_parameter_value)]
ExpressionText = Annotated[str, PlainValidator(_expression)]


class Parameter(Model):
    """A parameter: its values in the order of the file and, for a conditional one, when it exists."""

    values: Annotated[tuple[ParameterValue, ...], BeforeValidator(_tuple)]
    when: ExpressionText | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, int | float | str):
            raise refuse(f"found {show(value)}, expected a list of values, or a table with values and when")
        return {"values": value} if isinstance(value, list | tuple) else value

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: tuple[Value, ...]) -> tuple[Value, ...]:
        if not 0 < len(values) < 2**15:
            raise refuse(f"found {len(values) or 'no'} values, expected 1 to {2**15 - 1}")
        if len({type(value) for value in values}) > 1:
            raise refuse("found both integers and strings, expected one kind")
        twice = next((value for index, value in enumerate(values) if value in values[:index]), None)
        if twice is not None:
            raise refuse(f"found {twice!r} twice, expected distinct values")
        return values

    @cached_property
    def condition(self) -> Expression | None:
        """`when`, parsed."""
        return None if self.when is None else Expression.parse(self.when)

    @cached_property
    def array(self) -> Array:
        """The values as an int64 or str array."""
        return np.asarray(self.values)


class Constraint(Model):
    """What must hold at every valid point, for every problem, and why."""

    expression: ExpressionText
    reason: str = Field(min_length=1)

    @cached_property
    def parsed(self) -> Expression:
        """`expression`, parsed."""
        return Expression.parse(self.expression)


class SpaceFile(Model):
    """A space file: what can be tuned, for which problems, under which constraints. See docs/space-files.md."""

    path: str = Field(default="space.toml", description="where it was read; not a key of the file")
    title: str
    family: str
    backend: str = Field(pattern="^[a-z][a-z0-9_]*$")
    threads: Annotated[int | Literal["all"], PlainValidator(_threads)] = "all"
    cache: Literal["cold", "warm"] = "cold"
    objective: Literal["mean", "max"] = "mean"
    problems: Annotated[tuple[Problem, ...], BeforeValidator(_problems)] = Field(min_length=1)
    parameters: dict[str, Parameter]
    constraints: Annotated[tuple[Constraint, ...], BeforeValidator(_tuple)] = ()
    derived: dict[str, ExpressionText] = Field(default_factory=dict)
    expected_latency: dict[str, ExpressionText] = Field(default_factory=dict)
    default: dict[str, ParameterValue]

    @classmethod
    def load(cls, path: str | Path) -> SpaceFile:
        """Read and check a file. Raises SpaceError: one line with the file, the key, what was found and expected."""
        try:
            text = Path(path).read_bytes().decode()
        except OSError as error:
            raise SpaceError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise SpaceError(f"{path}: not UTF-8 text (byte {error.start})") from None
        return cls.parse(text, path)

    @classmethod
    def parse(cls, text: str, path: str | Path = "space.toml") -> SpaceFile:
        """Check the text of a space file; `path` names it in messages. Raises SpaceError as `load` does."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            last = f" (line {len(text.splitlines())})" if "line" not in str(error) else ""
            raise SpaceError(f"{path}: not TOML: {error}{last}") from None
        if "path" in document:
            raise SpaceError(f"{path}: path: unknown key")
        try:
            return cls.model_validate({**document, "path": str(path)}, strict=True)
        except ValidationError as error:
            # A misspelt key is unknown and leaves the right one missing: the first says more.
            first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
            raise SpaceError(f"{path}: {_explain(first)}") from None

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
        whens = {f"parameters.{name}.when": item.condition for name, item in self.parameters.items()}
        result = {key: condition for key, condition in whens.items() if condition is not None}
        result |= {f"constraints[{i}].expression": item.parsed for i, item in enumerate(self.constraints)}
        result |= {f"derived.{name}": Expression.parse(text) for name, text in self.derived.items()}
        result |= {f"{EXPECTED}.{name}": Expression.parse(text) for name, text in self.expected_latency.items()}
        return result

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
        self.check_default(self.shared_facts)
        return self

    def _check_problems(self) -> None:
        first = self.problems[0]
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
            if not _NAME.fullmatch(name):
                raise refuse("expected a name of capitals, digits and _, a capital first", f"parameters.{name}")
            if name in self.problems[0].facts():
                raise refuse("the problem already has a fact of this name; expected another", f"parameters.{name}")
        for table, names in (("derived", self.derived), (EXPECTED, self.expected_latency)):
            for name in names:
                if not _NAME.fullmatch(name):
                    raise refuse("expected a name of capitals, digits and _, a capital first", f"{table}.{name}")
                if name in self.parameters or name in self.problems[0].facts():
                    raise refuse("a parameter or a fact has this name; expected another", f"{table}.{name}")
                if table == EXPECTED and name in self.derived:
                    raise refuse("a derived quantity has this name; expected another", f"{table}.{name}")
        if "IMPL" not in self.parameters:
            raise refuse("missing; expected the list of implementations", "parameters.IMPL")
        impl = self.parameters["IMPL"]
        if impl.when is not None or not isinstance(impl.values[0], str):
            raise refuse("found integers or a condition, expected strings and no `when`", "parameters.IMPL")

    def _check_expressions(self) -> None:
        for key, expression in self.expressions.items():
            for name in sorted(expression.names):
                if not _NAME.fullmatch(name):
                    hint = suggestion(name.upper(), self.parameters)
                    raise refuse(f"found the name {name}, expected a parameter or a fact, in capitals{hint}", key)
                # A point exists once for all problems, so its parameters cannot depend on where the problems differ.
                if "when" in key and name in self.problems[0].facts().keys() - self.shared_facts.keys():
                    raise refuse(f"found {name}, which differs between the problems; expected facts they share", key)
            for name, text in sorted(expression.string_tests):
                values = self.parameters[name].values if name in self.parameters else (text,)
                if isinstance(values[0], str) and text not in values:
                    hint = suggestion(text, map(str, values))
                    raise refuse(f"compares {name} with {text!r}, expected one of its values{hint}", key)
        len(self.order)  # refuses circles

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


def _explain(error: ErrorDetails) -> str:
    """One line for pydantic's first complaint: the dotted key, what was found and what was expected."""
    places = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
    context = error.get("ctx", {})
    key = context.get("key") or "".join(places).removeprefix(".")
    if error["type"] == "extra_forbidden":
        return f"{key}: unknown key{suggestion(str(error['loc'][-1]), _keys_beside(error['loc']))}"
    if error["type"] == "missing":
        return f"{key}: missing; this key is required"
    if error["type"] == "space":
        return f"{key}: {error['msg']}"
    message = error["msg"]
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    return f"{key}: found {show(error['input'])}, {message}"


def _keys_beside(place: tuple[int | str, ...]) -> list[str]:
    """The keys that are known where an unknown one stands."""
    tables: dict[int | str, type[Model]] = {
        "problems": OPS[first_documents.OP].problem,
        "parameters": Parameter,
        "constraints": Constraint,
    }
    table = tables.get(place[0], SpaceFile) if len(place) > 1 else SpaceFile
    return [key for key in table.model_fields if key not in ("path", "op")]
