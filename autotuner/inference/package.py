"""A package that `autotuner export --format package` wrote, loaded from its folder without being installed."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from autotuner.values.errors import InputError

METADATA = "metadata.json"
_DIGESTS: dict[str, str] = {}
"""Of the metadata of each package that was loaded, by the module's name; these name the digests of all files."""


def load_package(folder: Path, strict: bool, gradients: Literal["refuse", "torch"], copies: bool) -> Any:
    """The package's function. Raises InputError where the folder is no package, or the package refuses to load."""
    found = _module(_built(folder)).load(strict=strict, gradients=gradients, copies=copies)
    found.made_by = load_package, (folder.absolute(), strict, gradients, copies)
    return found


def _built(folder: Path) -> Path:
    """The folder with the package's code: what pip would install, and `kernels` load."""
    found = [each.parent for each in (folder / METADATA, *sorted(folder.glob(f"build/*/{METADATA}"))) if each.is_file()]
    if len(found) != 1:
        raise InputError(f"{folder}: no package; write one with `autotuner export --format package --out {folder}`")
    return found[0].resolve()


def _module(folder: Path) -> ModuleType:
    """The package's module, imported once a process under a name that its place gives it."""
    name = f"autotuner_package_{hashlib.sha256(bytes(folder)).hexdigest()[:16]}"
    digest = hashlib.sha256((folder / METADATA).read_bytes()).hexdigest()
    if name in sys.modules:
        if _DIGESTS[name] != digest:  # its library cannot be replaced in a process
            raise InputError(f"{folder}: exported again since this process has loaded it; restart Python")
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, OSError, SyntaxError) as error:
        for each in [known for known in sys.modules if known.partition(".")[0] == name]:
            del sys.modules[each]
        raise InputError(" ".join(str(error).split())) from None
    _DIGESTS[name] = digest
    return module
