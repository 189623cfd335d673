"""First points: what was the fastest of each implementation at some problems, which a kernel family ships.

They stand in the family's first_points.toml, in tables `[[cuda.mma]]`, one a point. A program draws them from kept
results (benchmarks/search/first_points.py). A new study begins with those of the nearest problems.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo

from autotuner.ops import op_of
from autotuner.spaces.fields import Facts, ParameterValue
from autotuner.spaces.problem_files import parsed_problem
from autotuner.values.errors import InputError, KernelError
from autotuner.values.model import Model
from autotuner.values.problem import Problem
from autotuner.values.toml_text import read_toml
from autotuner.values.validation import explanation, show
from autotuner.values.variant import Value

FILE = "first_points.toml"
SAME_CLASS = 1.0
"""Problems that are nearer to each other are of one class: less than a doubling of both lengths, or another mask."""
FADES = math.log(1 / 0.7)
"""What a speedup loses for each unit of distance: what is known of a near problem goes before more of a far one."""


def _written(value: object, info: ValidationInfo) -> object:
    return parsed_problem(value, (info.context or {})["op"]) if isinstance(value, str) else value


class FirstPoint(Model):
    """The fastest point of an implementation that was found for a problem on a device."""

    problem: Annotated[Problem, BeforeValidator(_written)] = Field(description="in a file as the op writes it")
    device: str
    speedup: float = Field(gt=0, description="t_baseline / t_variant there")
    point: dict[str, ParameterValue] = Field(description="a value may be the name of a fact of the device")

    def on(self, facts: Facts) -> dict[str, Value]:
        """The point on another device: what is named by a fact is what the fact is there."""
        named = {name: facts[each] for name, each in self.point.items() if isinstance(each, str) and each in facts}
        return {**self.point, **{name: int(fact) for name, fact in named.items()}}

    def distance(self, problems: Sequence[Problem]) -> float:
        """How far its problem is from the nearest of these, in doublings and changes."""
        return min(op_of(problem).distance(self.problem, problem) for problem in problems)

    def hoped(self, problems: Sequence[Problem]) -> float:
        """The objective to hope for at these, ln(t_variant / t_baseline)."""
        return FADES * self.distance(problems) - math.log(self.speedup)


def read_first_points(folder: Path, device: str, op: str) -> dict[str, tuple[FirstPoint, ...]]:
    """The first points of a family by implementation; none where it has no such file.

    Raises KernelError, one line with the file and the key.
    """
    path = folder / FILE
    tables = read_toml(path, KernelError).get(device, {}) if path.is_file() else {}
    found: dict[str, tuple[FirstPoint, ...]] = {}
    for impl, rows in tables.items() if isinstance(tables, dict) else ():
        if not isinstance(rows, list):
            raise KernelError(f"{path}: {device}.{impl}: found {show(rows)}, expected tables [[{device}.{impl}]]")
        found[impl] = tuple(_read(f"{path}: {device}.{impl}[{index}]", row, op) for index, row in enumerate(rows))
    return found


def _read(where: str, row: object, op: str) -> FirstPoint:
    try:
        return FirstPoint.model_validate(row, strict=True, context={"op": op})
    except ValidationError as error:
        raise KernelError(f"{where}: {explanation(error, FirstPoint)}") from None
    except InputError as error:
        raise KernelError(f"{where}: {error}") from None


def nearest(
    points: Sequence[FirstPoint], problems: Sequence[Problem], but_class: bool = False
) -> tuple[FirstPoint, ...]:
    """The points, that of the nearest problem first; with `but_class` without those of the problems' own class."""
    ranked = sorted(points, key=lambda each: (each.distance(problems), -each.speedup))
    return tuple(each for each in ranked if not but_class or each.distance(problems) > SAME_CLASS)
