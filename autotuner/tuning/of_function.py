"""A function of a program as a kernel family: what `tune(function, ...)` writes before it searches."""

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotuner.devices import DEVICES
from autotuner.forge.family import ABI_VERSION
from autotuner.forge.languages import python as of_python
from autotuner.ops import OPS
from autotuner.spaces.problem_files import parsed_problem
from autotuner.values import config
from autotuner.values.errors import InputError, KernelError
from autotuner.values.files import write_atomically
from autotuner.values.outcome import NamedFunction
from autotuner.values.problem import ITEM_BYTES, Problem
from autotuner.values.validation import no_such
from autotuner.values.variant import Value, digest_of


def space_of(
    function: Callable[..., Any], problems: Sequence[str | Problem], values: Mapping[str, Sequence[Value]], op: str
) -> Path:
    """The space file of a function over the values of its parameters, beside its kernel family, in the cache.

    The function takes the op's tensors, by place, and each parameter by name; of the options of torch's function those
    that it has a name for. Raises InputError for what no other process could import or call.
    """
    if op not in OPS:
        raise InputError(no_such("op", op, OPS))
    asked = [each if isinstance(each, Problem) else parsed_problem(each, op) for each in problems]
    if not asked:
        raise InputError("a function is tuned for problems: tune(function, problems='(1,8,512,64) float32', ...)")
    module, path = importable(function)
    given = OPS[op].problem.SCALARS if OPS[op].call is None else ()
    _require_parameters(function, values, given)
    from autotuner.ops.functions import lacks  # imports torch

    for problem in asked:
        if (missing := lacks(function, problem)) is not None:
            raise InputError(f"{function.__name__} has no argument {missing}, which {problem} asks for")
    name = function.__name__
    kinds = sorted(DEVICES.values(), key=lambda kind: -kind.preference)
    backend = next(kind.name for kind in kinds if kind.missing() is None)
    python = f"{module}:{name}"
    family = [
        f"family = {json.dumps(name)}\nabi = {ABI_VERSION}\nop = {json.dumps(op)}\n\n[{backend}.{name}]",
        f"python = {json.dumps(python)}\npath = {json.dumps(str(path))}\ndtypes = {json.dumps([*ITEM_BYTES])}",
        *(f"parameters.{each} = {json.dumps(list(held))}" for each, held in values.items()),
    ]
    space = [
        f"title = {json.dumps(python)}\nfamily = {json.dumps(name)}\nbackend = {json.dumps(backend)}",
        "\n[[problems]]",
        *(f"{key} = {json.dumps(value)}" for key, value in asked[0].model_dump().items()),
    ]
    text = "\n".join([*family, ""])
    folder = config.cache_dir().absolute() / "functions" / digest_of([text, op])[:16]
    (folder / name).mkdir(parents=True, exist_ok=True)
    written = folder / f"{name}.toml"
    write_atomically(folder / name / "kernel.toml", text)
    write_atomically(written, "\n".join([*space, ""]))
    return written


def _require_parameters(
    function: Callable[..., Any], values: Mapping[str, Sequence[Value]], given: Sequence[str]
) -> None:
    taken = inspect.signature(function).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in taken.values())
    unknown = next((each for each in values if each not in taken and not anything), None)
    if unknown is not None:
        raise InputError(f"{function.__name__}: {no_such('parameter', unknown, taken)}")
    for name, held in values.items():
        if isinstance(held, str) or not isinstance(held, Sequence) or not {int, str} >= {*map(type, held)} > set():
            expected = "expected a list of integers or names, such as [64, 128]"
            raise InputError(f"{function.__name__}: the space's {name}: found {held!r}, {expected}")
    wanted = [name for name, each in taken.items() if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
    missing = next((name for name in wanted if name not in {*values, *given}), None)
    if missing is not None:
        raise InputError(f"{function.__name__} needs {missing}, which the space has not: space={{{missing!r}: [...]}}")


def baselines(named: Sequence[str | Callable[..., Any]], op: str) -> tuple[NamedFunction, ...]:
    """Functions that a user names as baselines: themselves, module:function, or a library. Raises InputError."""
    found = []
    for each in named:
        if callable(each):
            module, path = importable(each)
            python = name = f"{module}:{each.__name__}"
        else:
            name, python, path = each, _python(each, op), Path.cwd()
        try:
            of_python.function(python, str(path))
        except KernelError as error:
            raise InputError(f"the baseline {error}") from None
        digest = of_python.digest_of_function(name, python)
        found.append(NamedFunction(name=name, python=python, path=str(path), digest=digest))
    return tuple({each.name: each for each in found}.values())


def _python(name: str, op: str) -> str:
    """module:function of what is named. Raises InputError."""
    if ":" in name:
        return name
    libraries = OPS[op].libraries
    if name not in libraries:
        known = ", ".join(libraries)
        raise InputError(f"{name} is no baseline: expected module:function{f', or {known}' if known else ''}")
    if find_spec(name) is None:
        raise InputError(f"the baseline {name} is not installed: pip install {libraries[name]}")
    return f"{OPS[op].package}.libraries:{name}"


def importable(function: Callable[..., Any]) -> tuple[str, Path]:
    """The module of a function, and the folder from which it is imported by that name."""
    name, module = getattr(function, "__qualname__", repr(function)), getattr(function, "__module__", None)
    remedy = "the processes that judge it import it by name: define it at the top of a module, and import that"
    if module in (None, "__main__"):
        raise InputError(f"{name} is of the main program; {remedy}")
    assert module is not None
    if "<" in name or "." in name or getattr(sys.modules.get(module), name, None) is not function:
        raise InputError(f"{name} is not {module}.{name}, so nobody else can have it; {remedy}")
    file = getattr(sys.modules[module], "__file__", None)
    if file is None:
        raise InputError(f"{module} has no file; {remedy}")
    path = Path(file).resolve()
    return module, path.parents[module.count(".") + (path.name == "__init__.py")]
