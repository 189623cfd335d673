"""A space file: the TOML document, with what the kernel family says of each implementation, checked as far as it can be
without a device."""

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainValidator, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from autotuner.ops import DEFAULT_OP
from autotuner.spaces import fields
from autotuner.spaces.branch import Branch, completed, union
from autotuner.spaces.expression import Expression
from autotuner.spaces.limits import FindLimits, Limits
from autotuner.spaces.problem_files import Asked, Problems, explained
from autotuner.values.errors import KernelError, SpaceError
from autotuner.values.model import Model
from autotuner.values.outcome import NamedFunction
from autotuner.values.ratio import Objective
from autotuner.values.toml_text import Document, parse_toml, read_toml
from autotuner.values.validation import refusal, refuse, show, suggestion
from autotuner.values.variant import Value

OF_BRANCHES = "of_branches"
"""Where a document has its tables `[parameters.IMPL]` while it is checked."""

Lists = Mapping[str, tuple[Value, ...]]
"""The values of parameters."""


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


class _Common(Model):
    """What a space file says and a space keeps."""

    title: str = ""
    family: str = Field(pattern="^[A-Za-z][A-Za-z0-9_]{0,63}$")
    backend: str = Field(pattern="^[a-z][a-z0-9_]{0,63}$")
    threads: Annotated[int | Literal["all"], PlainValidator(_threads)] = "all"
    cache: Literal["cold", "warm"] = "cold"
    objective: Objective = "mean"
    problems: Problems

    def check_problems(self) -> None:
        """Refuses problems that no variant serves together, and weights that are not theirs."""
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


class SpaceDocument(_Common):
    """A space file as it is written: docs/reference/space-files.md."""

    parameters: dict[str, fields.Values] = Field(default_factory=dict)
    of_branches: dict[str, dict[str, fields.Values]] = Field(default_factory=dict, description="[parameters.IMPL]")
    constraints: Annotated[tuple[fields.Rule, ...], BeforeValidator(fields.as_tuple)] = ()
    default: dict[str, fields.ParameterValue] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _tables_of_branches(cls, document: Any) -> Any:
        said = document.get(fields.PARAMETERS) if isinstance(document, dict) else None
        if OF_BRANCHES in document or not isinstance(said, dict):
            return document
        own = {name: each for name, each in said.items() if isinstance(each, dict)}
        return {**document, fields.PARAMETERS: {n: v for n, v in said.items() if n not in own}, OF_BRANCHES: own}

    def branches(self, limits: Limits | None) -> tuple[Branch, ...]:
        """A branch for each implementation that the file names, else for each of the family; that of the default point
        first. Refuses what does not go together."""
        self.check_problems()
        if limits is not None:
            self._check_op(limits)
        implementations = self._implementations(limits)
        lists = {impl: self._lists(impl, limits) for impl in implementations}
        self._check_written(implementations, lists, limits is not None)
        chosen = self.default.get("IMPL", implementations[0])
        if chosen not in implementations:
            known = ", ".join(map(repr, implementations))
            raise refuse(f"found {chosen!r}, expected one of {known}", "default.IMPL")
        everywhere = {name for each in lists.values() for name in each}
        found = [self._branch(impl, lists[impl], everywhere, impl == chosen, limits) for impl in implementations]
        return tuple(sorted(found, key=lambda each: each.impl != chosen))

    def _check_op(self, limits: Limits) -> None:
        for index, problem in enumerate(self.problems):
            if problem.op != limits.op:
                message = f"expected {show(limits.op)}, which the family {limits.family} computes"
                raise refuse(f"found {show(problem.op)}, {message}; another op needs a space", f"problems[{index}].op")

    def _implementations(self, limits: Limits | None) -> list[str]:
        named = self.parameters.get("IMPL")
        if named is None:
            if limits is None:
                raise refuse("missing; expected the list of implementations", "parameters.IMPL")
            if not limits.parameters:
                raise refuse(f"{limits.family} has no implementation for {show(limits.device)}", "backend")
            named = tuple(limits.parameters)
        if not isinstance(named[0], str):
            raise refuse("found integers, expected strings", "parameters.IMPL")
        implementations = list(map(str, named))
        for impl in self.of_branches:
            if impl not in implementations:
                raise refuse(f"no such implementation{suggestion(impl, implementations)}", f"parameters.{impl}")
        return implementations

    def _lists(self, impl: str, limits: Limits | None) -> dict[str, tuple[Value, ...]]:
        """The parameters that the implementation of a branch reads, with values of the file, else of kernel.toml."""
        said = {name: each for name, each in self.parameters.items() if name != "IMPL"}
        own = self.of_branches.get(impl, {})
        if limits is None or impl not in limits.parameters:  # an implementation that is not there is refused when built
            return {**said, **own}
        found = {}
        reads = limits.parameters[impl]
        for name in dict.fromkeys([*(each for each in {**said, **own} if each in reads), *reads]):
            values = reads[name]
            found[name] = own.get(name, said.get(name, values))
            if not found[name]:
                meant = difflib.get_close_matches(name, {*said} - limits.all_parameters, n=1)
                hint = f"; {meant[0]}, which nothing reads, may be meant" if meant else ""
                message = f"missing; {limits.key(impl)} of {limits.family} reads it{hint}"
                raise refuse(message, f"parameters.{name}")
        return found

    def _check_written(self, implementations: list[str], lists: Mapping[str, Lists], are_read: bool) -> None:
        """Refuses names, parameters that nobody reads where it is known which `are_read`, and strings that no value is,
        in what the file itself says."""
        all_lists = union([*lists.values()])
        said = {**self.parameters, **{name: each for own in self.of_branches.values() for name, each in own.items()}}
        fields.check_names({fields.PARAMETERS: said}, self.problems[0].facts())
        if are_read:
            idle = [name for name in self.parameters if name not in {"IMPL", *all_lists}]
            for impl, own in self.of_branches.items():
                idle += [f"{impl}.{name}" for name in own if name not in lists[impl]]
            for key in idle:
                name = key.rpartition(".")[2]
                hint = suggestion(name, all_lists) or "; leave it out"
                raise refuse(f"no implementation of it reads {name}{hint}", f"parameters.{key}")
        known = {**all_lists, "IMPL": tuple(implementations)}
        for index, rule in enumerate(self.constraints):
            key, expression = f"constraints[{index}].expression", Expression.parse(rule.expression)
            for name in sorted(expression.names):
                fields.require_capitals(name, key, known)
            for name, string in sorted(expression.string_tests):
                values = known.get(name, (string,))
                if isinstance(values[0], str) and string not in values:
                    hint = suggestion(string, map(str, values))
                    raise refuse(f"compares {name} with {string!r}, expected one of its values{hint}", key)

    def _branch(self, impl: str, lists: Lists, everywhere: set[str], is_default: bool, limits: Limits | None) -> Branch:
        """The branch of an implementation. What the file says of a parameter that others alone have is not for it."""
        known = limits is not None and impl in limits.parameters
        constraints, named = (
            limits.part(impl) if limits is not None and known else ([], {kind: {} for kind in fields.KINDS})
        )
        amounts = fields.parsed_amounts(named["amounts"])

        def here(text: str) -> bool:
            return not Expression.parse(text, amounts).names & (everywhere - lists.keys())

        own = [
            fields.Constraint(expression=one.expression, reason=one.reason, place=f"constraints[{index}]", limit=False)
            for index, one in enumerate(self.constraints)
            if here(one.expression)
        ]
        shipped = limits.defaults.get(impl, {}) if limits is not None else {}
        own_default = {name: value for name, value in self.default.items() if name != "IMPL"}
        default = own_default if is_default else {}
        for others in (shipped, {} if is_default else own_default):  # what fits; the file's own is for its IMPL first
            fitting = {name: value for name, value in others.items() if value in lists.get(name, ())}
            default = {**fitting, **default}
        fields.check_names({fields.PARAMETERS: lists, **named}, self.problems[0].facts())
        return Branch(
            impl=impl,
            peak_percent=limits.peak_percent(impl) if limits is not None and known else "100",
            parameters=dict(lists),
            default=completed(default, lists),
            constraints=(*own, *constraints),
            **named,
        )


class SpaceFile(_Common):
    """What can be tuned, for which problems: a union of branches, one an implementation. A study keeps it whole."""

    path: str = Field(default="space.toml", description="where it was read")
    branches: Annotated[tuple[Branch, ...], BeforeValidator(fields.as_tuple)] = Field(
        min_length=1, description="that of the default point first"
    )
    baselines: tuple[NamedFunction, ...] = Field(default=(), description="the user's, beside those of the op")

    @classmethod
    def load(cls, path: str | Path, limits: FindLimits | None = None, problems: Asked | None = None) -> Self:
        """Read and check a file and add what `limits` finds for its family; None where the file says all there is.
        `problems` replace those of the file, and their weights its objective; without weights they count alike.

        Raises SpaceError, one line with the file, the key, what was found and expected; and what `limits` raises.
        """
        return cls._read(read_toml(Path(path), SpaceError), path, limits, problems)

    @classmethod
    def parse(cls, text: str, path: str | Path = "space.toml", limits: FindLimits | None = None) -> Self:
        """Check the text of a space file, as `load` does; `path` names it in messages."""
        return cls._read(parse_toml(text, path, SpaceError), path, limits)

    @classmethod
    def stored(cls, document: str) -> Self:
        """The space of a study, from its record in a store, which may name a file that it was like: such keys are gone.
        Raises SpaceError where it cannot be read."""
        try:
            return cls.model_validate_json(re.sub(r'"like":(null|"[^"]*"),', "", document, count=1))
        except (ValueError, PydanticCustomError, RecursionError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise SpaceError(f"the record of the study's space cannot be read ({first}): restore the store") from None

    @classmethod
    def _read(cls, written: Document, path: str | Path, find: FindLimits | None, problems: Asked | None = None) -> Self:
        document = written if problems is None else _about(written, problems, path)
        family, device = document.get("family"), document.get("backend")
        if find is None or not isinstance(family, str) or not isinstance(device, str):
            return cls.of(document, path)
        try:
            limits = find(family, device, Path(path).resolve().parent)
        except KernelError:
            if isinstance(own := document.get("parameters"), dict) and "IMPL" in own:
                cls.of(document, path)  # what is wrong with the file itself comes first
            raise
        return cls.of(document, path, limits)

    @classmethod
    def of(cls, document: Document, path: str | Path = "space.toml", limits: Limits | None = None) -> Self:
        """The space that a document says. Raises SpaceError, one line."""
        if OF_BRANCHES in document:
            raise SpaceError(f"{path}: {OF_BRANCHES}: unknown key")
        op = limits.op if limits is not None else DEFAULT_OP
        try:
            read = SpaceDocument.model_validate(document, strict=True, context={"op": op})
            kept = {name: getattr(read, name) for name in _Common.model_fields}
            return cls(path=str(path), branches=read.branches(limits), **kept)
        except ValidationError as error:
            said = explained(error, document, SpaceDocument, op).replace(f"{OF_BRANCHES}.", f"{fields.PARAMETERS}.")
            raise SpaceError(f"{path}: {said}") from None
        except PydanticCustomError as error:
            raise SpaceError(f"{path}: {refusal(error)}") from None

    @property
    def name(self) -> str:
        """The file's name without folder and suffix."""
        return Path(self.path).stem

    @cached_property
    def parameters(self) -> dict[str, tuple[Value, ...]]:
        """IMPL and the parameters of all branches, with the values that they have in any."""
        impls = tuple(branch.impl for branch in self.branches)
        return {"IMPL": impls, **union([branch.parameters for branch in self.branches])}

    @property
    def default(self) -> dict[str, Value]:
        """The default point."""
        return {"IMPL": self.branches[0].impl, **self.branches[0].default}

    def branch(self, impl: str) -> Branch:
        """The branch of an implementation. Raises KeyError where it has none."""
        return {branch.impl: branch for branch in self.branches}[impl]

    def only(self, *impls: str) -> Self:
        """The same with the branches of these implementations alone. Raises KeyError where it has none of one."""
        return self.with_branches(self.branch(impl) for impl in impls)

    def with_branches(self, branches: Iterable[Branch]) -> Self:
        """The same with other branches."""
        return self.model_copy(update={"branches": tuple(branches)})
