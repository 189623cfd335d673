"""Problems as files and callers give them: the tables [[problems]], and the form in which an op writes one."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, create_model

from autotuner.ops import DEFAULT_OP, OPS
from autotuner.values.errors import InputError, SpaceError
from autotuner.values.model import Model
from autotuner.values.problem import Problem
from autotuner.values.toml_text import Document, read_toml
from autotuner.values.validation import explanation, show

COUNT, US, BETWEEN_US = "count", "us", "between_us"
"""What a file of problems may say of each beside its fields: calls of it, the baseline's microseconds, and those from
one call of it to the next call of any, in the model."""
WEIGHED = {COUNT, US}
HIDDEN = ("path", "op", "limit_of", "place")
"""Fields that are no keys of a file, or not to be suggested."""


def _named(value: object, info: ValidationInfo) -> object:
    """Problems that name their op: where they do not, that of the context, or the first one."""
    if not isinstance(value, list):
        return value
    op = (info.context or {}).get("op", DEFAULT_OP)
    return tuple({"op": op, **each} if isinstance(each, dict) else each for each in value)


Problems = Annotated[tuple[Problem, ...], Field(min_length=1), BeforeValidator(_named)]


class ProblemsFile(Model):
    """A file of problems, without what it says of their weights."""

    problems: Problems


def explained(error: ValidationError, document: Document, model: type[Model], op: str = DEFAULT_OP) -> str:
    """What is wrong with the document, in one line; of its problems the keys are known that their op has."""
    problems = document.get("problems")
    first = problems[0] if isinstance(problems, list) and problems and isinstance(problems[0], dict) else {}
    name = first.get("op", op)
    problem: Any = OPS[name].problem if isinstance(name, str) and name in OPS else Problem
    known = create_model(model.__name__, __base__=model, problems=(tuple[problem, ...], ...))
    return explanation(error, known, HIDDEN)


class Asked(NamedTuple):
    """Problems that one study can be about, and what counts of them."""

    problems: Sequence[Problem]
    weights: tuple[float, ...] = ()
    """One a problem; none: they count alike."""


def parsed_problem(text: str, op: str = DEFAULT_OP) -> Problem:
    """A problem in the form in which the op writes it. Raises InputError."""
    kind = OPS[op].problem
    try:
        return kind.parse(text)
    except ValidationError as error:
        raise InputError(f"problem {show(text)}: {explanation(error, kind)}") from None
    except ValueError as error:
        raise InputError(f"problem: {error}") from None


def problems_in(path: Path, op: str) -> list[tuple[Problem, float]]:
    """The problems of a file that may have nothing else, each with its weight: how often it is called (`count`) times
    what the baseline takes for it (`us`, microseconds), 0 where the file says neither. `op` is that of those that name
    none. Raises SpaceError."""
    document = read_toml(path, SpaceError)
    problems = document.get("problems")
    if not isinstance(problems, list) or not problems or not all(isinstance(each, dict) for each in problems):
        raise SpaceError(f"{path}: problems: missing; expected tables [[problems]] as in a space file")
    weights = [_weight(f"{path}: problems[{index}]", each, problems) for index, each in enumerate(problems)]
    plain = [{name: value for name, value in each.items() if name not in {*WEIGHED, BETWEEN_US}} for each in problems]
    try:
        file = ProblemsFile.model_validate({"problems": plain}, strict=True, context={"op": op})
    except ValidationError as error:
        raise SpaceError(f"{path}: {explained(error, document, ProblemsFile, op)}") from None
    return list(zip(file.problems, weights, strict=True))


def share_of_model(path: Path) -> float | None:
    """Of a model's time, as `record` has noted it, the share of the calls in a file, 0..1; None where it says nothing
    of the model. To be called after `problems_in`."""
    problems = read_toml(path, SpaceError)["problems"]
    if not all({COUNT, US, BETWEEN_US} <= each.keys() for each in problems):
        return None
    calls, model = (math.fsum(each[COUNT] * each[key] for each in problems) for key in (US, BETWEEN_US))
    return min(1.0, calls / model)


def _weight(where: str, problem: Document, problems: Iterable[Document]) -> float:
    said = {key: problem[key] for key in (COUNT, US) if key in problem}
    for key, value in {key: problem[key] for key in (*WEIGHED, BETWEEN_US) if key in problem}.items():
        if len(said) < len(WEIGHED) or not all(WEIGHED & each.keys() for each in problems):
            raise SpaceError(f"{where}.{key}: give every problem {COUNT} and {US}, or none")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise SpaceError(f"{where}.{key}: found {show(value)}, expected a number greater than 0")
    return math.prod(map(float, said.values())) if said else 0.0


def asked(problems: Iterable[tuple[Problem, float]]) -> list[Asked]:
    """Problems and their weights in groups that one artifact can serve each, in the order in which the groups begin;
    what is there twice with a weight counts as often as both."""
    groups: dict[object, dict[object, tuple[Problem, float]]] = {}
    for problem, weight in problems:
        group = groups.setdefault((problem.op, tuple(sorted(problem.compiled.items()))), {})
        key: object = problem if weight else len(group)
        group[key] = problem, weight + (group[key][1] if key in group else 0.0)
    return [_of_group(list(group.values())) for group in groups.values()]


def _of_group(group: list[tuple[Problem, float]]) -> Asked:
    weights = tuple(weight for _, weight in group)
    shares = tuple(float(f"{weight / math.fsum(weights):.3g}") for weight in weights) if all(weights) else ()
    return Asked([problem for problem, _ in group], shares if len(group) > 1 else ())
