"""Mutants of IMPL = wgmma_fp8, of IMPL = mma_fp8 where the point has WARPS, and of IMPL = decode where Q has 16 bits:
their sources with edits (fp8.toml), judged on the emulator by the gate's quick cases and by the op's invariants."""

import shutil
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

import torch
from pydantic import Field
from torch import Tensor

from autotuner.forge.family import Family
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.tolerance import broken, truth
from autotuner.ops import OPS
from autotuner.ops.op import Relation
from autotuner.ops.sdpa_fp8 import SdpaFp8Problem
from autotuner.ops.tensors import Tensors
from autotuner.values import config
from autotuner.values.gate_report import Tolerance
from autotuner.values.model import Model
from autotuner.values.variant import Value
from tests.emulator.emulator import EmulationError, emulate_fp8
from tests.mutants.expectations import SEEDS
from tests.mutants.warpgroups import edit

OP = OPS["sdpa_fp8"]
DOCUMENT = tomllib.loads((Path(__file__).parent / "fp8.toml").read_text())
SCHEDULES = 3
"""Seeds of the emulator in which a first case must give the same bits."""


class Mutant(Model):
    """One entry of fp8.toml, where the fields are explained."""

    name: str
    what: str
    edits: tuple[tuple[str, str, str], ...]
    point: dict[str, Value] = Field(default_factory=dict)
    problem: str = "(1,8:2,512,128) bfloat16"
    codes: tuple[str, ...]

    @property
    def parameters(self) -> dict[str, Value]:
        return whole(self.problem, self.point)[1]

    def write(self, parent: Path) -> Path:
        """The family's sources with the edits beside those of attention, in a folder of `parent`; each edit finds the
        text that it replaces once."""
        for family in ("sdpa", "sdpa_fp8"):
            shutil.copytree(config.kernels_dir() / family, parent / family)
        edit(parent / "sdpa_fp8", self.edits)
        return parent / "sdpa_fp8" / whole(self.problem, self.point)[0]

    def first_failure(self, parent: Path) -> str:
        """What finds it."""
        return first_failure(self.write(parent), self.parameters, SdpaFp8Problem.parse(self.problem))


def whole(problem: str, change: dict[str, Value]) -> tuple[str, dict[str, Value]]:
    """The file that serves it with these parameters, and the point of all."""
    others = "mma_fp8" if "WARPS" in change else "wgmma_fp8"
    impl = "decode" if SdpaFp8Problem.parse(problem).fp8_cache else others
    return f"{impl}.cu", {**DOCUMENT["points"][impl], **change}


@cache
def mutants() -> tuple[Mutant, ...]:
    return tuple(Mutant.model_validate(entry) for entry in DOCUMENT["mutants"])


def first_failure(source: Path, parameters: dict[str, Value], problem: SdpaFp8Problem) -> str:
    """The code of the first check that finds something, in the gate's order as far as they are numbers; "pass"."""
    return next(_failures(source, parameters, Matrix(problem)), "pass")


def _failures(source: Path, parameters: dict[str, Value], matrix: Matrix) -> Iterator[str]:
    tolerance = Family.find("sdpa_fp8").implementation("cuda", source.stem).tolerance or Tolerance()

    def launch(case: Case, inputs: Tensors, seed: int = 0) -> Tensors:
        return emulate_fp8(source, parameters, cast(SdpaFp8Problem, case.problem), inputs, seed)

    try:
        for index, case in enumerate(matrix.quick()):
            expected = truth(case, SEEDS[index % 4])
            errors = broken(launch(case, expected.inputs), expected, tolerance)
            if errors:
                yield f"G2.{errors.failed_rule}"
        invariant = matrix.case(OP.cases.invariant)
        inputs = truth(invariant, SEEDS[0]).inputs
        plain = launch(invariant, inputs)
        if any(not _alike(launch(invariant, inputs, seed)[0], plain[0]) for seed in range(1, SCHEDULES)):
            yield "G3.repeat"
        for check in OP.invariants:
            case = matrix.case(check.shape or OP.cases.invariant)
            if check.applies(case.problem):
                drawn = truth(case, SEEDS[0]).inputs
                for relation in check.relations(case.problem, drawn, SEEDS[1]):
                    before = launch(case, drawn if relation.before is None else relation.before)
                    if not _holds(relation, before, launch(case, relation.inputs)):
                        yield check.code
    except EmulationError as error:
        yield f"emulator: {error}"


def _alike(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.view(torch.int16), other.view(torch.int16))


def _holds(relation: Relation, before: Tensors, other: Tensors) -> bool:
    got, want = relation.compared(before, other)
    if relation.within:
        return float((got.double() - want.double()).abs().max()) <= relation.within
    return bool(((got == want) | (got.isnan() & want.isnan())).all())
