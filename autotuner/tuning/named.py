"""Functions of a user's program by name, so that other processes find them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotuner.forge.languages import python as of_python
from autotuner.ops import OPS
from autotuner.values.errors import InputError, KernelError
from autotuner.values.outcome import NamedFunction


def baselines(named: Sequence[str | Callable[..., Any]], op: str) -> tuple[NamedFunction, ...]:
    """Functions that a user names as baselines: by themselves, as module:function, or by a library's name. Raises
    InputError."""
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
