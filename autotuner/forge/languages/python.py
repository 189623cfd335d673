"""A variant that is a function of Python: where its source lies, and what its caller is told.

Such a variant is built like any other: its library is kernels/abi/python_function.cpp, which hands each call to
devices/python_function.py. So the gate, the races and the store know no difference.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from autotuner.forge.languages.language import Language, VariantToBuild
from autotuner.forge.unit import literal, unit_text
from autotuner.values import config
from autotuner.values.errors import InputError, KernelError
from autotuner.values.outcome import NamedFunction
from autotuner.values.variant import Variant, digest_of

if TYPE_CHECKING:
    from autotuner.forge.build_inputs import BuildInputs
    from autotuner.forge.family import Family, Implementation


class Python(Language):
    """A function of a module, called with the op's tensors and the parameters by name."""

    name = "python"
    is_binary = False

    def takes(self, implementation: Implementation) -> bool:
        return implementation.python is not None

    def check(self, where: str, family: Family, implementation: Implementation) -> None:
        if implementation.python is None:
            raise KernelError(f"{where}.python: expected module:function, in place of a source")

    def source(self, family: Family, implementation: Implementation) -> Path:
        """What calls it."""
        return config.kernels_dir() / "abi" / "python_function.cpp"

    def files(self, family: Family, implementation: Implementation) -> dict[Path, bytes]:
        """The module of the function."""
        return _module(family, implementation)

    def words(self, implementation: Implementation) -> str | None:
        return None

    def call(self, wanted: VariantToBuild) -> str:
        """What the caller is told, as JSON."""
        place = str(_place(wanted.family, wanted.implementation))
        said = {
            "python": wanted.implementation.python,
            "path": place,
            "device": wanted.torch_device,
            "op": wanted.problem.op,
            "parameters": dict(wanted.variant.parameters),
            "compiled": {name: str(value) for name, value in wanted.compiled.items()},
        }
        return json.dumps(said, sort_keys=True)

    def texts(self, inputs: BuildInputs) -> dict[str, str]:
        return {inputs.toolchain.unit: unit_text(inputs, f"#define AT_FUNCTION {literal(inputs.call)}")}


def _module(family: Family, implementation: Implementation) -> dict[Path, bytes]:
    assert implementation.python is not None
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


def _place(family: Family, implementation: Implementation) -> Path:
    """The folder of the module, where it is not installed."""
    return Path(implementation.path) if implementation.path is not None else family.folder


def call_of(family: Family, variant: Variant) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """The function that a variant is, and its parameters. Raises KernelError."""
    implementation = family.implementation(variant.backend, variant.impl)
    assert implementation.python is not None
    return function(implementation.python, str(_place(family, implementation))), variant.parameters


def _pinned(wanted: NamedFunction) -> Callable[..., Any]:
    found = function(wanted.python, wanted.path)
    if digest_of_function(wanted.name, wanted.python) != wanted.digest:
        raise InputError(f"{wanted.name} is no longer the baseline that the study began with: tune anew, or restore it")
    return found


def digest_of_function(name: str, python: str) -> str:
    """Of the file of its module, which is imported, and of the version of the package or library that it is of."""
    file = sys.modules[python.partition(":")[0]].__file__
    assert file is not None
    version = getattr(importlib.import_module(re.split("[.:]", name)[0]), "__version__", "")
    return digest_of([hashlib.sha256(Path(file).read_bytes()).hexdigest(), str(version)])[:16]


def imported(family: Family, device: str, baselines: Sequence[NamedFunction] = ()) -> dict[str, Callable[..., Any]]:
    """Imports the modules of a family's functions, and of baselines: before a process is caged, which may then read
    none. The functions of the baselines, by name. What they compile is kept. Raises KernelError with what the import
    raised, and InputError where a baseline is another one now."""
    ours = [each for each in family.table(device).values() if each.python is not None]
    if ours or baselines:
        kept = config.cache_dir().absolute() / "compiled" / "functions"
        os.environ["TORCHINDUCTOR_CACHE_DIR"], os.environ["TRITON_CACHE_DIR"] = str(kept), str(kept / "triton")
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes and threads of its own
    for implementation in ours:
        function(str(implementation.python), str(_place(family, implementation)))
    return {each.name: _pinned(each) for each in baselines}


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
