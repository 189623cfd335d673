"""Kernel family: a folder with a kernel.toml and sources. Adding one takes no Python (docs/own-kernel.md)."""

from __future__ import annotations

import difflib
import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, ValidationError

from autotuner.build.family_limits import limits_of, limits_path, split
from autotuner.ops.sdpa.problem import Dtype, Problem
from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.spaces.limits import Limits, LimitTable
from autotuner.values import config
from autotuner.values.errors import KernelError
from autotuner.values.gate_policy import GatePolicy, Omission, OwnCase, Tolerance
from autotuner.values.model import Model
from autotuner.values.variant import Value, Variant

FACTS = ("DTYPE", "HEAD_DIM", "CAUSAL")
"""What an assert of kernel.toml may ask of the problem: the compile-time part."""


DEBUG_FLAGS = ("-G", "--device-debug", "-O0")
REACH = 512
"""So far from a case's lengths others are looked for that the variant serves."""


class Effect(Model):
    """A claim about the machine code that shows that a parameter took effect; checked on every build (G0.effect)."""

    when: str = Field(default="True", description="expression over parameters, DTYPE, HEAD_DIM and CAUSAL")
    contains: str | None = Field(default=None, description="regular expression that the disassembly must contain")
    lacks: str | None = Field(default=None, description="regular expression that the disassembly must not contain")
    reason: str


class Implementation(Model):
    """One IMPL of a family on one backend: a source file and what it can do."""

    source: str
    host: str | None = Field(default=None, description="CUDA: the host side, where it is more than one launch")
    fixed_lengths: str | None = Field(default=None, description="parameter that, set to 1, compiles SEQ_Q and SEQ_K in")
    domain: str = Field(default="True", description="expression over parameters and the problem: what is served")
    parameters: tuple[str, ...] = ()
    dtypes: tuple[Dtype, ...]
    head_dims: tuple[int, ...]
    flags: tuple[str, ...] = ()
    asserts: tuple[Effect, ...] = ()


class KernelDocument(Model):
    """kernel.toml: tables `[cpu.NAME]` and `[cuda.NAME]`, one an implementation."""

    family: str
    op: Literal["sdpa"]
    gate: GatePolicy = GatePolicy()
    cpu: dict[str, Implementation] = Field(default_factory=dict)
    cuda: dict[str, Implementation] = Field(default_factory=dict)


class Claims(Model):
    """What a kernel.toml says of one variant, for the gate to hold it to."""

    effects: tuple[Effect, ...] = ()
    policy: GatePolicy = GatePolicy()
    parameters: dict[str, Value] = Field(default_factory=dict)
    domain: str = "True"

    def serve(self, problem: Problem) -> bool:
        """True when the variant must answer the problem; another it must refuse."""
        return self.domain == "True" or bool(_parsed(self.domain).evaluate({**problem.facts(), **self.parameters}))

    def nearest(self, problem: Problem) -> Problem | None:
        """The problem with the nearest lengths that the variant serves; None when there are none within REACH."""
        if self.serve(problem):
            return problem
        near_q, near_k = (np.arange(max(1, n - REACH), n + REACH) for n in (problem.seq_q, problem.seq_k))
        scalars = {name: np.asarray(value) for name, value in {**problem.facts(), **self.parameters}.items()}
        columns = {**scalars, "SEQ_Q": near_q[:, None], "SEQ_K": near_k[None, :]}
        served = np.broadcast_to(_parsed(self.domain).evaluate_arrays(columns), (len(near_q), len(near_k)))
        if not served.any():
            return None
        away = np.abs(near_q - problem.seq_q)[:, None] + np.abs(near_k - problem.seq_k)
        at = np.unravel_index(np.where(served, away, 4 * REACH).argmin(), away.shape)
        return problem.model_copy(update={"seq_q": int(near_q[at[0]]), "seq_k": int(near_k[at[1]])})


_parsed = lru_cache(maxsize=64)(Expression.parse)


class Kernel(Model):
    """A loaded kernel family."""

    folder: Path
    document: KernelDocument
    limit_tables: dict[str, LimitTable] = Field(default_factory=dict, description="by device or device.IMPL")

    @classmethod
    def load(cls, folder: Path) -> Kernel:
        """Reads folder/kernel.toml. Raises KernelError naming the file and the key."""
        path = folder / "kernel.toml"
        try:
            content, tables = split(tomllib.loads(path.read_text("utf-8")), path)
            document = KernelDocument.model_validate(content)
        except OSError as error:
            raise KernelError(
                f"{path}: cannot be read ({error.strerror}); a kernel family needs a kernel.toml"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise KernelError(f"{path}: not TOML: {error}") from None
        except ValidationError as error:
            raise KernelError(f"{path}: {_first(error)}") from None
        kernel = cls(folder=folder.resolve(), document=document, limit_tables=tables)
        for backend, table in (("cpu", document.cpu), ("cuda", document.cuda)):
            for name, implementation in table.items():
                kernel._check(f"{path}: {backend}.{name}", implementation)
            kernel.limits(backend)
        return kernel

    def _check(self, where: str, implementation: Implementation) -> None:
        """Raises KernelError for what would otherwise show only when a variant is built."""
        for key, name in (("source", implementation.source), ("host", implementation.host)):
            if name is not None and not (self.folder / name).is_file():
                raise KernelError(f"{where}.{key}: there is no {name} in {self.folder}")
        if implementation.fixed_lengths not in (None, *implementation.parameters):
            raise KernelError(f"{where}.fixed_lengths: {implementation.fixed_lengths} is none of its parameters")
        reserved = sorted({"IMPL", *FACTS, "SEQ_Q", "SEQ_K"} & set(implementation.parameters))
        if reserved:
            raise KernelError(f"{where}.parameters: {reserved[0]} is defined by the build; choose another name")
        if debug := next((flag for flag in implementation.flags if flag in DEBUG_FLAGS), None):
            raise KernelError(f"{where}.flags: {debug} makes another, slower program than the one to tune; remove it")
        known = {*implementation.parameters, "IMPL", *FACTS}
        _check_expression(f"{where}.domain", implementation.domain, known | {"SEQ_Q", "SEQ_K"})
        for index, effect in enumerate(implementation.asserts):
            key = f"{where}.asserts.{index}"
            _check_expression(f"{key}.when", effect.when, known)
            try:
                re.compile(effect.contains or "")
                re.compile(effect.lacks or "")
            except re.error as error:
                raise KernelError(f"{key}: not a regular expression: {error}") from None

    @classmethod
    def find(cls, family: str, near: Path | None = None) -> Kernel:
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

    def table(self, backend: str) -> dict[str, Implementation]:
        """The implementations for a backend, by name."""
        return self.document.cpu if backend == "cpu" else self.document.cuda

    def limits(self, backend: str) -> Limits:
        """What its implementations cannot do on a backend. Raises KernelError where that is not in order."""
        parameters = {name: each.parameters for name, each in self.table(backend).items()}
        of, path = self.document, limits_path(self.folder)
        return limits_of(of.family, of.op, backend, parameters, self.limit_tables, path)

    def implementation(self, backend: str, impl: str) -> Implementation:
        """The implementation of that name. Raises KernelError when the family has none."""
        table = self.table(backend)
        if impl not in table:
            known = ", ".join(sorted(table)) or "none"
            raise KernelError(f"{self.folder}/kernel.toml: no [{backend}.{impl}]; implementations there: {known}")
        return table[impl]

    def admit(self, variant: Variant, problem: Problem) -> None:
        """Raises KernelError when the family does not take the variant's parameters or the problem's dtype or head dim.

        A parameter that no source reads would be dead; a space file with one is wrong.
        """
        implementation = self.implementation(variant.backend, variant.impl)
        where = f"{self.folder}/kernel.toml: [{variant.backend}.{variant.impl}]"
        unknown = sorted(set(variant.parameters) - set(implementation.parameters))
        if unknown:
            raise KernelError(f"{where} reads no parameter {unknown[0]}; remove it from the space or add it there")
        missing = sorted(set(implementation.parameters) - set(variant.parameters))
        if missing:
            raise KernelError(f"{where} needs parameter {missing[0]}, which the space does not define for this IMPL")
        if problem.dtype not in implementation.dtypes:
            raise KernelError(f"{where} has no dtype {problem.dtype}; it has {', '.join(implementation.dtypes)}")
        if problem.head_dim not in implementation.head_dims:
            raise KernelError(f"{where} has no head_dim {problem.head_dim}; it has {implementation.head_dims}")

    def claims(self, variant: Variant, problem: Problem) -> Claims:
        """What kernel.toml says of this variant."""
        facts = problem.facts()
        values = {**{name: facts[name] for name in FACTS}, **variant.point}
        implementation = self.implementation(variant.backend, variant.impl)
        effects = tuple(each for each in implementation.asserts if _parsed(each.when).evaluate(values))
        domain = implementation.domain
        return Claims(effects=effects, policy=self.document.gate, parameters=variant.point, domain=domain)


def find_limits(family: str, backend: str, near: Path) -> Limits:
    """What the implementations of a family cannot do on a backend, for a space file in that folder. Raises KernelError
    when there is no such family."""
    return Kernel.find(family, near).limits(backend)


def _check_expression(where: str, text: str, known: set[str]) -> None:
    """Raises KernelError for an expression that cannot be read or asks for what is not known."""
    try:
        unknown = sorted(Expression.parse(text).names - known)
    except ExpressionError as error:
        raise KernelError(f"{where}: {error.reason}") from None
    if unknown:
        raise KernelError(f"{where}: {unknown[0]} is no parameter of it; known: {', '.join(sorted(known))}")


def _first(error: ValidationError) -> str:
    """The error to mend first, in words: a key that is not known explains one that is missing."""
    found = sorted(error.errors(), key=lambda each: each["type"] != "extra_forbidden")[0]
    key = ".".join(str(part) for part in found["loc"])
    if found["type"] != "extra_forbidden":
        return f"{key}: {found['msg'].removeprefix('Value error, ')}"
    tables = (Implementation, Effect, KernelDocument, LimitTable, GatePolicy, Tolerance, OwnCase, Omission)
    known = [name for table in tables for name in table.model_fields]
    near = difflib.get_close_matches(str(found["loc"][-1]), known, n=1)
    return f"{key}: unknown key" + (f"; did you mean {near[0]}?" if near else "")
