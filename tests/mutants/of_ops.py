"""Mutants and right implementations of ops other than the first: what the gate must say of each.

An op NAME has a folder tests/mutants/NAME with two kernel families, `wrong` and `right`, and a file expected.toml for
each kind of device. It says on which problem they are judged, and of each in which element types and with which code.
"""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from autotuner.forge.family import Family
from autotuner.ops import OPS
from autotuner.run.executor import Executor
from autotuner.values.outcome import Outcome
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant
from tests.helpers.judging import briefly, judged
from tests.mutants.expectations import FILES, SEEDS, Backend, Seeds

MUTANTS = Path(__file__).parent
TABLES = ("wrong", "right")


def folders() -> list[str]:
    """The ops that have such a folder and are there."""
    return sorted(path.parent.name for path in MUTANTS.glob("*/expected.toml") if path.parent.name in OPS)


def family(op: str, table: str) -> Family:
    """The kernel family of a table."""
    return Family.load(MUTANTS / op / table)


class Setting(NamedTuple):
    """One implementation in one element type, and the codes of first failure that are acceptable."""

    op: str
    backend: Backend
    table: str
    name: str
    dtype: str
    codes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op}-{self.name}-{self.dtype}"

    @property
    def variant(self) -> Variant:
        """The variant to judge."""
        document = family(self.op, self.table).document
        impl, implementation = next(iter(document.devices[self.backend].items()))
        (parameter,) = implementation.parameters
        return Variant(family=document.family, backend=self.backend, impl=impl, parameters={parameter: self.name})

    @property
    def problem(self) -> Problem:
        """The problem of the file."""
        fields = {**_document(self.op, self.backend)["problem"], "op": self.op, "dtype": self.dtype}
        return OPS[self.op].problem.model_validate(fields, strict=True)

    @property
    def source(self) -> Path:
        """The source file."""
        document = family(self.op, self.table).document
        return MUTANTS / self.op / self.table / next(iter(document.devices[self.backend].values())).source

    def judge(self, executor: Executor, seeds: Seeds = SEEDS) -> Outcome:
        """The outcome of its job, with the shortest race; soak and audit are only where they must find the mutant."""
        conditions = briefly(self.problem, seeds, OPS[self.op].tensors().PEER)
        return judged(executor, self.variant, conditions, "promoted" if "measure.memory" in self.codes else "never")


def settings(op: str, backend: Backend, table: str) -> list[list[Setting]]:
    """For each entry of a table all its element types."""
    found = []
    for entry in _document(op, backend)[table]:
        codes = tuple(entry.get("codes", ("pass",) if table == "right" else ()))
        found.append([Setting(op, backend, table, entry["name"], dtype, codes) for dtype in entry["dtype"]])
    return found


def _document(op: str, backend: Backend) -> dict[str, Any]:
    return tomllib.loads((MUTANTS / op / FILES[backend]).read_text())
