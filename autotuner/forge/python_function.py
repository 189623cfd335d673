"""A variant that is a function of Python: where its source lies, and what its caller is told.

Such a variant is built like any other: its library is kernels/abi/python_function.cpp, which hands each call to
devices/python_function.py. So the gate, the races and the store know no difference.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from autotuner.values.errors import KernelError

if TYPE_CHECKING:
    from autotuner.forge.family import Family, Implementation
    from autotuner.values.problem import Problem
    from autotuner.values.variant import Value, Variant


def files(family: Family, implementation: Implementation) -> dict[Path, bytes]:
    """The module of the function with its contents; nothing for what is no function. Raises KernelError."""
    if implementation.python is None:
        return {}
    name = implementation.python.partition(":")[0]
    path = _place(family, implementation).joinpath(*name.split("."))
    found = next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)
    if found is None:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            spec = None
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():
            raise KernelError(f"{family.folder}/kernel.toml: there is no module {name} in {path.parent}, nor installed")
        found = Path(spec.origin)
    return {found.resolve(): found.read_bytes()}


def described(
    family: Family,
    implementation: Implementation,
    variant: Variant,
    problem: Problem | None,
    compiled: Mapping[str, Value],
    torch_device: str,
) -> str | None:
    """What the caller is told, as JSON; None for what is no function."""
    if implementation.python is None or problem is None:
        return None
    parameters = dict(variant.parameters)
    place = str(_place(family, implementation))
    where = {"path": place, "device": torch_device}
    said = {"python": implementation.python, **where, "op": problem.op, "parameters": parameters}
    return json.dumps({**said, "compiled": {name: str(value) for name, value in compiled.items()}}, sort_keys=True)


def _place(family: Family, implementation: Implementation) -> Path:
    """The folder of the module, where it is not installed."""
    return Path(implementation.path) if implementation.path is not None else family.folder


def imported(family: Family, device: str) -> None:
    """Imports the modules of a family's functions: before a process is caged, which may then read none. Raises
    KernelError with what the import raised."""
    for implementation in family.table(device).values():
        if implementation.python is not None:
            function(implementation.python, str(_place(family, implementation)))


def function(python: str, place: str) -> Callable[..., Any]:
    """The function that is called so, of a module in that folder or an installed one. Raises KernelError."""
    module, _, name = python.partition(":")
    if module not in sys.modules and place not in sys.path:
        sys.path.insert(0, place)
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever a module of the user's raises as it is imported
        raise KernelError(f"{python} cannot be imported from {place}: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise KernelError(f"{python} is no function but {type(found).__name__}")
    return cast("Callable[..., Any]", found)
