"""Kernel family: a folder with a kernel.toml and sources. Adding one takes no Python (docs/my-kernel.md)."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from autotuner.forge.languages import language_of
from autotuner.forge.languages.language import checked
from autotuner.ops import OPS, Op
from autotuner.spaces.expression import Expression
from autotuner.spaces.fields import ParameterValue, Read, Rule
from autotuner.spaces.limits import FILE, Limits, LimitTable, read_limits
from autotuner.values import config
from autotuner.values.errors import KernelError
from autotuner.values.gate_report import GatePolicy, Tolerance
from autotuner.values.model import Model
from autotuner.values.problem import Dtype, Problem
from autotuner.values.toml_text import read_toml
from autotuner.values.validation import explanation, refuse, show, suggestion
from autotuner.values.variant import Value, Variant

ABI_VERSION = 2
"""Of kernels/abi/variant.h: what sources may assume."""
LAUNCHER = "launch.cpp"
"""The file in an op's ABI folder that launches a variant of one kernel."""

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
"""A file in the family's folder itself, whose name can stand in an #include."""

REACH = 512
"""How far from a case's lengths others are looked for that the variant serves."""


class Effect(Model):
    """A claim about the machine code that shows that a parameter took effect; checked on every build (G0.effect)."""

    when: str = Field(default="True", description="expression over parameters and the compile-time part of the problem")
    contains: str | None = Field(default=None, description="regular expression that the disassembly must contain")
    lacks: str | None = Field(default=None, description="regular expression that the disassembly must not contain")
    reason: str


class TritonCall(Model):
    """How a kernel of Triton is called: as forge/languages/triton.py reads it."""

    kernel: str = Field(description="the @triton.jit function of the source")
    grid: tuple[str, ...] = Field(description="one to three expressions over parameters and sizes")
    arguments: dict[str, str] = Field(
        default_factory=dict, description="by argument: a tensor, its stride, a scalar of the op, or an expression"
    )


class Implementation(Model):
    """One IMPL of a family on one kind of device: a source file, or a function of Python, and what it can do."""

    source: str = ""
    language: str | None = Field(default=None, description="of the source; None: what its suffix says")
    python: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="in place of a source: module:function, called with the op's tensors and the parameters by name",
    )
    path: str | None = Field(default=None, description="the folder in which that module is found; None: the family's")
    triton: TritonCall | None = Field(
        default=None, description="of a source that is a kernel of Triton: how it is called"
    )
    host: str | None = Field(default=None, description="the host side, where it is more than the op's own launcher")
    arch: str | None = Field(
        default=None, min_length=1, description="the one architecture whose own instructions it uses, where it uses any"
    )
    fixed_lengths: str | None = Field(default=None, description="parameter that, set to 1, compiles the lengths in")
    domain: str = Field(default="True", description="expression over parameters and the problem: what is served")
    parameters: Read = Field(default_factory=dict, description="with the values that a space has unless it says others")
    default: dict[str, ParameterValue] = Field(
        default_factory=dict, description="where a search starts, beside the first values"
    )
    dtypes: tuple[Dtype, ...] = ()
    served: dict[str, tuple[Value, ...]] = Field(
        default_factory=dict,
        description="values of the op's other compile-time fields; its key in the file is a plural",
    )
    flags: tuple[str, ...] = ()
    asserts: tuple[Effect, ...] = ()
    tolerance: Tolerance | None = Field(default=None, description="in place of the one of the family's table [gate]")
    state: str | None = Field(
        default=None, min_length=1, description="why its host code keeps static state, or calls what no variant needs"
    )

    def rules(self) -> dict[str, Rule]:
        """Which problems its sources take, by key."""
        taken = {"dtype": self.dtypes, **self.served} if self.dtypes else self.served
        return {f"{name}s": _among(name, values) for name, values in taken.items()}

    def fixes(self, variant: Variant) -> bool:
        """Whether the variant is compiled for one pair of lengths."""
        return self.fixed_lengths is not None and variant.parameters[self.fixed_lengths] == 1


class FamilyDocument(Model):
    """kernel.toml: tables `[DEVICE.NAME]`, one an implementation of the family on a kind of device."""

    family: str
    abi: int = Field(default=1, description="version of the kernel ABI that the sources are written for")
    op: str | None = Field(default=None, description="None: what the harness itself runs, which computes no op")
    gate: GatePolicy = GatePolicy()
    devices: dict[str, dict[str, Implementation]] = Field(
        default_factory=dict, description="by kind of device; in the file each is a table of its own"
    )

    @model_validator(mode="before")
    @classmethod
    def _by_device(cls, document: Any) -> Any:
        """Gathers the devices' tables, and of each implementation the plurals of the op's compile-time fields."""
        if not isinstance(document, dict) or "devices" in document:
            return document
        kept = {name: value for name, value in document.items() if name in cls.model_fields}
        tables = {name: value for name, value in document.items() if name not in kept and _is_table_of_tables(value)}
        unknown = {name: value for name, value in document.items() if name not in kept and name not in tables}
        plurals = {f"{name}s": name for name in _op_of(document).problem.COMPILED} if document.get("op") else {}
        devices = {
            device: {name: _with_served(each, plurals) for name, each in table.items()}
            for device, table in tables.items()
        }
        return {**kept, **unknown, "devices": devices}


def _among(name: str, values: Sequence[Value]) -> Rule:
    listed = ", ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in values)
    known = ", ".join(map(str, values))
    return Rule(expression=f"{name.upper()} in [{listed}]", reason=f"its sources have {name} {known}")


def _is_table_of_tables(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(each, dict) for each in value.values())


def _with_served(implementation: dict[str, Any], plurals: Mapping[str, str]) -> dict[str, Any]:
    served = {plurals[name]: value for name, value in implementation.items() if name in plurals}
    rest = {name: value for name, value in implementation.items() if name not in plurals}
    return {**rest, "served": served} if served else rest


def _op_of(document: Mapping[str, Any]) -> Op:
    try:
        return OPS[str(document["op"])]
    except KeyError as error:
        raise refuse(str(error.args[0]), "op") from None


class Claims(Model):
    """What a kernel.toml says of one variant, for the gate to hold it to."""

    effects: tuple[Effect, ...] = ()
    policy: GatePolicy = GatePolicy()
    parameters: dict[str, Value] = Field(default_factory=dict)
    domain: str = "True"
    state: str | None = None

    def serve(self, problem: Problem) -> bool:
        """True when the variant must answer the problem; another it must refuse."""
        return bool(Expression.parse(self.domain).evaluate({**problem.facts(), **self.parameters}))

    def nearest(self, problem: Problem) -> Problem | None:
        """The problem with the nearest lengths that the variant serves; None when there are none within REACH."""
        if self.serve(problem):
            return problem
        here = problem.lengths
        grid = np.ix_(*(np.arange(max(1, length - REACH), length + REACH) for length in here.values()))
        scalars = {name: np.asarray(value) for name, value in {**problem.facts(), **self.parameters}.items()}
        size = np.broadcast_shapes(*(each.shape for each in grid))
        columns = {**scalars, **dict(zip(here, grid, strict=True))}
        served = np.broadcast_to(Expression.parse(self.domain).evaluate_arrays(columns), size)
        if not served.any():
            return None
        away = sum(np.abs(each - length) for each, length in zip(grid, here.values(), strict=True))
        at = np.unravel_index(np.where(served, away, 2 * len(grid) * REACH).argmin(), size)
        found = (int(each.flat[place]) for each, place in zip(grid, at, strict=True))
        return problem.model_copy(update=dict(zip(problem.LENGTHS, found, strict=True)))


class Family(Model):
    """A loaded kernel family."""

    folder: Path
    document: FamilyDocument
    limit_tables: dict[str, dict[str, LimitTable]] = Field(
        default_factory=dict, description="by kind of device and IMPL"
    )
    built_from: str = Field(default="", description="as build_inputs.py makes it: nothing is built of other sources")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads folder/kernel.toml. Raises KernelError naming the file and the key."""
        path = folder / "kernel.toml"
        written = read_toml(path, KernelError)
        OPS.look_beside(str(written.get("op")), folder.resolve())
        try:
            document = FamilyDocument.model_validate(written)
        except ValidationError as error:
            raise KernelError(f"{path}: {_explained(error)}") from None
        if document.abi != ABI_VERSION:
            raise KernelError(
                f"{path}: abi: its sources are for version {document.abi} of the kernel ABI: change them as"
                f" docs/reference/kernel-abi.md#from-version-1 says, then write abi = {ABI_VERSION}"
            )
        family = cls(folder=folder.resolve(), document=document, limit_tables=read_limits(folder))
        family._check_policy(f"{path}: gate")
        for device, table in document.devices.items():
            for name, implementation in table.items():
                family._check(f"{path}: {device}.{name}", implementation)
        for device in family.limit_tables:
            family._check_limits(folder / FILE, device)
        return family

    @property
    def op(self) -> Op | None:
        """What the family computes; None for the harness's own instruments."""
        if self.document.op is None:
            return None
        OPS.look_beside(self.document.op, self.folder)
        return OPS[self.document.op]

    @property
    def facts(self) -> tuple[str, ...]:
        """What an assert of kernel.toml may ask of the problem: the compile-time part."""
        return ("DTYPE", *(name.upper() for name in self.op.problem.COMPILED)) if self.op is not None else ()

    @property
    def lengths(self) -> tuple[str, ...]:
        """Sizes that a problem may fix."""
        return tuple(name.upper() for name in self.op.problem.LENGTHS) if self.op is not None else ()

    def _check_policy(self, where: str) -> None:
        """Raises KernelError for a distribution or a shape that the op does not have."""
        if self.op is None:
            return
        for device, table in self.document.devices.items():
            for name, implementation in table.items():
                asked = self._policy(implementation).tolerance.emulation
                if asked is not None and asked not in self.op.emulations:
                    there = (
                        f"; there are {', '.join(self.op.emulations)}" if self.op.emulations else ": it has no others"
                    )
                    raise KernelError(
                        f"{where}: {device}.{name}.tolerance: no emulation {asked!r} of {self.op.name}{there}"
                    )
        policy, known = self.document.gate, self.op.words.distributions
        named = {f"without[{i}]": each.distribution for i, each in enumerate(policy.without)}
        named |= {f"cases[{i}]": case.distribution for i, case in enumerate(policy.cases)}
        for key, name in named.items():
            if name not in known:
                hint = suggestion(name, known) or f"; there are {', '.join(known)}"
                raise KernelError(f"{where}.{key}.distribution: no {name!r}{hint}")
        if self.op.ordinary in policy.omitted:
            raise KernelError(f"{where}.without: {self.op.ordinary} cannot be left out: nothing would be judged")
        dims = self.op.problem.DIMS
        for i, one in enumerate(policy.cases):
            if not self.op.problem.takes(one.shape):
                raise KernelError(f"{where}.cases[{i}].shape: found {len(one.shape)} sizes, expected {', '.join(dims)}")

    def _check(self, where: str, implementation: Implementation) -> None:
        """Raises KernelError for what would otherwise show only when a variant is built."""
        if bool(implementation.source) == (implementation.python is not None):
            raise KernelError(
                f"{where}.source: expected the name of a file, or module:function as python; one of the two"
            )
        for key, name in (("source", implementation.source or None), ("host", implementation.host)):
            if name is not None and not FILE_NAME.fullmatch(name):
                raise KernelError(f"{where}.{key}: {show(name)} is no file name; a source lies in the family's folder")
            if name is not None and not (self.folder / name).is_file():
                raise KernelError(f"{where}.{key}: there is no {name} in {self.folder}")
        try:
            language = language_of(implementation)
        except KernelError as error:
            raise KernelError(f"{where}.language: {error}") from None
        language.check(where, self, implementation)
        self._check_served(where, implementation)
        for name, value in implementation.default.items():
            values = implementation.parameters.get(name, ())
            if value not in values:
                known = f"one of {', '.join(map(repr, values))}" if values else "no value: parameters gives it none"
                raise KernelError(f"{where}.default.{name}: found {value!r}, expected {known}")
        if implementation.fixed_lengths not in (None, *implementation.parameters):
            raise KernelError(f"{where}.fixed_lengths: {implementation.fixed_lengths} is none of its parameters")
        reserved = sorted({"IMPL", *self.facts, *self.lengths} & set(implementation.parameters))
        if reserved:
            raise KernelError(f"{where}.parameters: {reserved[0]} is defined by the build; choose another name")
        names = {*implementation.parameters, "IMPL", *self.facts}
        checked(f"{where}.domain", implementation.domain, names | {*self.lengths})
        for index, effect in enumerate(implementation.asserts):
            key = f"{where}.asserts[{index}]"
            checked(f"{key}.when", effect.when, names)
            try:
                re.compile(effect.contains or "")
                re.compile(effect.lacks or "")
            except re.error as error:
                raise KernelError(f"{key}: not a regular expression: {error}") from None

    def _check_served(self, where: str, implementation: Implementation) -> None:
        """Raises KernelError for a value that no problem of the op can have."""
        for name, values in implementation.served.items():
            assert self.op is not None  # which has the field
            field = self.op.problem.model_fields[name]
            kind: Any = Annotated[field.annotation, field]
            if not values:
                raise KernelError(f"{where}.{name}s: found no value, expected one or more")
            for index, value in enumerate(values):
                try:
                    TypeAdapter(kind).validate_python(value)
                except ValidationError as error:
                    raise KernelError(f"{where}.{name}s[{index}]: {error.errors()[0]['msg']}") from None

    @classmethod
    def find(cls, family: str, near: Path | None = None) -> Self:
        """The family of this name: a folder beside the space file (or in its kernels/), else one that is shipped.

        Raises KernelError when there is none.
        """
        folders = [config.kernels_dir()]
        if near is not None:
            folders = [near, near / "kernels", near.parent / "kernels", *folders]
        for folder in folders:
            if (folder / family / "kernel.toml").is_file():
                found = cls.load(folder / family)
                if found.document.family != family:
                    where = f"{found.folder}/kernel.toml: family"
                    raise KernelError(f"{where}: found {found.document.family!r}, expected the folder's name")
                return found
        looked = ", ".join(str(folder) for folder in folders)
        raise KernelError(f"no kernel family {family!r}: looked for {family}/kernel.toml in {looked}")

    def table(self, device: str) -> dict[str, Implementation]:
        """The implementations for a kind of device, by name."""
        return self.document.devices.get(device, {})

    def limits(self, device: str) -> Limits:
        """What its implementations cannot do on a kind of device."""
        return Limits(
            family=self.document.family,
            device=device,
            op=self.document.op or "",
            path=str(self.folder / FILE),
            parameters={name: each.parameters for name, each in self.table(device).items()},
            defaults={name: each.default for name, each in self.table(device).items()},
            served={name: each.rules() for name, each in self.table(device).items()},
            tables=self.limit_tables.get(device, {}),
        )

    def _check_limits(self, path: Path, device: str) -> None:
        if device not in self.document.devices:
            raise KernelError(f"{path}: {device}: kernel.toml has no such table; expected limits of those that it has")
        facts = self.op.problem.fact_names() if self.op is not None else ()
        self.limits(device).check(frozenset(name.upper() for name in facts))

    def implementation(self, device: str, impl: str) -> Implementation:
        """The implementation of that name. Raises KernelError when the family has none."""
        table = self.table(device)
        if impl not in table:
            known = ", ".join(sorted(table)) or "none"
            raise KernelError(f"{self.folder}/kernel.toml: no [{device}.{impl}]; implementations there: {known}")
        return table[impl]

    def source(self, implementation: Implementation) -> Path:
        """The file that is compiled: of a function of Python the one that calls it."""
        return language_of(implementation).source(self, implementation)

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """Folders of headers of the family and its op."""
        return (*([self.op.abi()] if self.op is not None else []), self.folder)

    def host(self, implementation: Implementation) -> Path:
        """The host side of an implementation: its own, or the op's launcher. Raises KernelError when there is none."""
        if implementation.host is not None:
            return self.folder / implementation.host
        if self.op is not None and (self.op.abi() / LAUNCHER).is_file():
            return self.op.abi() / LAUNCHER
        raise KernelError(
            f"{self.folder}/kernel.toml: {self.source(implementation).name} needs a key host: the op has no launcher"
        )

    def admit(self, variant: Variant, problem: Problem | None) -> None:
        """Raises KernelError when the family does not take the variant's parameters or the problem.

        A parameter that no source reads would be dead; a space file with one is wrong.
        """
        implementation = self.implementation(variant.backend, variant.impl)
        where = f"{self.folder}/kernel.toml: [{variant.backend}.{variant.impl}]"
        unknown = sorted(set(variant.parameters) - set(implementation.parameters))
        if unknown:
            hint = suggestion(unknown[0], set(implementation.parameters) - set(variant.parameters))
            remedy = hint or "; remove it from the space or add it there"
            raise KernelError(f"{where} reads no parameter {unknown[0]}{remedy}")
        missing = sorted(set(implementation.parameters) - set(variant.parameters))
        if missing:
            raise KernelError(f"{where} needs parameter {missing[0]}, which the space does not define for this IMPL")
        if problem is not None:
            self._admit_problem(where, implementation, problem)

    def _admit_problem(self, where: str, implementation: Implementation, problem: Problem) -> None:
        if problem.op != self.document.op:
            raise KernelError(f"{self.folder}/kernel.toml: op: it computes {self.document.op}, not {problem.op}")
        if problem.dtype not in implementation.dtypes:
            raise KernelError(f"{where} has no dtype {problem.dtype}; it has {', '.join(implementation.dtypes)}")
        for name, values in implementation.served.items():
            value = getattr(problem, name)
            if value not in values:
                raise KernelError(f"{where} has no {name} {value}; it has {', '.join(map(str, values))}")

    def claims(self, variant: Variant, problem: Problem) -> Claims:
        """What kernel.toml says of this variant."""
        facts = problem.facts()
        values = {**{name: facts[name] for name in self.facts}, **variant.point}
        implementation = self.implementation(variant.backend, variant.impl)
        effects = tuple(each for each in implementation.asserts if Expression.parse(each.when).evaluate(values))
        calls = f"it calls {implementation.python}" if implementation.python is not None else None
        said = {"domain": implementation.domain, "state": implementation.state or calls}
        return Claims(effects=effects, policy=self._policy(implementation), parameters=variant.point, **said)

    def _policy(self, implementation: Implementation) -> GatePolicy:
        """The family's table [gate], with the implementation's own tolerance where it has one."""
        own = {"tolerance": implementation.tolerance} if implementation.tolerance is not None else {}
        return self.document.gate.model_copy(update=own)


def find_limits(family: str, device: str, near: Path) -> Limits:
    """What the implementations of a family cannot do on a kind of device, for a space file in that folder.

    Raises KernelError when there is no such family.
    """
    return Family.find(family, near).limits(device)


def _explained(error: ValidationError) -> str:
    """What is wrong with a kernel.toml, in one line, with the keys that it has there."""
    said = explanation(error, FamilyDocument, ("devices", "served")).removeprefix("devices.")
    return re.sub(r"^(\w+\.\w+)\.served\.(\w+)", r"\1.\2s", said)
