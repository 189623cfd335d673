"""An export as a function: the package of its table, made in the cache where it is not there yet, and imported."""

import hashlib
import importlib.util
import json
import os
import sys
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from pydantic import ValidationError

from autotuner.devices import DEVICES
from autotuner.forge.build import entry_of_package, private_directory, publish, require_closed
from autotuner.ops import DEFAULT_OP, OPS
from autotuner.serve.folder import Source, packaged
from autotuner.serve.package import package_digest, write_module
from autotuner.serve.runtime.whole import damaged
from autotuner.values import config
from autotuner.values.errors import DiskFullError, InputError, ToolchainError
from autotuner.values.files import read_regular, why
from autotuner.values.outcome import Device
from autotuner.values.table import LARGEST_BYTES, DispatchTable, TableFile
from autotuner.values.validation import explanation, no_such
from autotuner.values.variant import digest_of

METADATA = "metadata.json"
_DIGESTS: dict[str, str] = {}
"""Of the metadata of each package that was loaded, by the module's name; these name the digests of all files."""


def load(
    path: str | Path,
    *,
    build: bool = True,
    strict: bool = False,
    gradients: Literal["refuse", "torch"] = "refuse",
    copies: bool = False,
) -> Any:
    """An export as a function that takes what torch's function takes: a file with a table, or a package's folder.

    A file's package is taken from the cache. Where it is not there it is made now, of the builds in the cache; with
    `build=False` nothing is compiled, and what is missing is an error. Where no variant is proven and confirmed for a
    call, torch serves it; with `strict` NotServed is raised instead. A call that needs a gradient is refused, or with
    `gradients="torch"` served by torch. With `copies`, strided tensors that no variant takes as they lie are copied to
    dense ones, where a variant serves these; the result is dense then.

    Raises InputError for a file that cannot be read, is damaged, has no table or one of an op that is not installed,
    and where its package cannot be made here.
    """
    if gradients not in ("refuse", "torch"):
        raise InputError(f'gradients is {gradients!r}, expected "refuse" or "torch"')
    file = Path(path).absolute()
    table = None if file.is_dir() else _read(file)
    folder = _exported(file) if table is None else _in_the_cache(file, table, build)
    found = _module(folder).load(strict=strict, gradients=gradients, copies=copies)
    again = partial(load, build=build, strict=strict, gradients=gradients, copies=copies)
    found.made_by = again, (file,)
    found.table = table or DispatchTable.model_validate(
        json.loads((folder / METADATA).read_bytes())["autotuner"]["table"]
    )
    return found


# The file -------------------------------------------------------------------------------------------------------------


def _read(file: Path) -> DispatchTable:
    """The table of an export. Raises InputError, one line."""
    try:
        text = read_regular(file, LARGEST_BYTES)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {why(error)}") from None
    document: Any = None
    with suppress(ValueError, RecursionError):  # what is no JSON is refused below, in words
        document = json.loads(text)
    table = document.get("table", {}) if isinstance(document, dict) else {}
    if table is None:
        raise InputError(
            f"{file}: it has no table, since there were no finals: run `autotuner finals`, then `autotuner export`"
        )
    if isinstance(table, dict) and isinstance(op := table.get("op", DEFAULT_OP), str) and op not in OPS:
        raise InputError(f"{file}: {no_such('op', op, OPS)}; install the package that has it")
    if table and "digest" not in document:
        raise InputError(f"{file}: it has no digest, which would show damage; export it again")
    try:
        found = TableFile.model_validate_json(text)
    except ValidationError as error:
        said = " ".join(explanation(error, TableFile).split())
        raise InputError(f"{file}: no export with a table: {said}; write one with `autotuner export`") from None
    digest = document.pop("digest")  # of what stands there
    if digest_of(document["table"]) != found.table_digest:
        raise InputError(f"{file}: damaged: its table is not the one of its digest; export it again")
    if digest_of(document) != digest:
        raise InputError(f"{file}: damaged: its proof is not the one of its digest; export it again")
    if found.table.device not in DEVICES:
        raise InputError(f"{file}: {no_such('device', found.table.device, DEVICES)}; install the package that has it")
    return found.table


# Its package ----------------------------------------------------------------------------------------------------------


def _in_the_cache(file: Path, table: DispatchTable, build: bool) -> Path:
    """The folder of the table's package, made where it is not there. Like a build it appears by one rename: of several
    processes that make it at once one puts it there, and all import that one. Raises InputError where it cannot be."""
    packaged(table)
    require_closed()
    digest, elsewhere = package_digest(table), _elsewhere(table)
    final = entry_of_package(digest)
    if damaged(final) is not None:
        if not build:
            raise InputError(f"{file}: its package is not in the cache {config.cache_dir()}: {_remedy('build=True')}")
        _make(file, table, final, f"autotuner_{digest[:16]}", elsewhere)
    with suppress(OSError):
        os.utime(final)  # used now: what is pruned is what was used longest ago
    if elsewhere is not None:
        warnings.warn(f"{file}: torch serves all calls here: {elsewhere}", stacklevel=4)
    return final


def _remedy(option: str) -> str:
    return (
        f"load it with {option} where there are a compiler and the builds, and copy that cache here, or export there"
        " with `autotuner export --format package`, which needs neither"
    )


def _make(file: Path, table: DispatchTable, final: Path, module: str, elsewhere: str | None) -> None:
    """Raises InputError with the remedy where it cannot be made here."""
    kind = DEVICES[table.device]
    proven = Device(backend=table.device, name=table.device, facts=table.proven_on, environment={})
    try:
        toolchain = kind.toolchain(proven)
        with private_directory(final) as private:
            scratch = private / "scratch"
            scratch.mkdir()
            write_module(table, Source(toolchain, file.parent), module, private / module, scratch)
            publish(private / module, final, lambda place: None if damaged(place) else place)
    except DiskFullError:
        raise
    except OSError as error:
        raise InputError(f"{file}: its package cannot be made here: {why(error)}") from None
    except InputError as error:
        if elsewhere is not None:
            raise InputError(f"{file}: it cannot be served here: {elsewhere}; tune on this machine") from None
        remedy = f"; {_remedy('the same call')}" if isinstance(error, ToolchainError) else ""
        raise InputError(f"{file}: its package cannot be made here: {error}{remedy}") from None


def _elsewhere(table: DispatchTable) -> str | None:
    """What the table serves and why that is not here; None on a device like the proven one. Threads are those of torch
    at each call, so they are no part of it."""
    kind = DEVICES[table.device]
    count = sum(entry.use is not None for entry in table.entries)
    proven = ", ".join(f"{name} {value}" for name, value in table.proven_on.items())
    serves = f"it serves {count} problem{'s' * (count != 1)} of {table.op} on {table.device} with {proven}"
    facts = kind.facts_in_torch()
    if facts is None:
        return f"{serves}; torch sees no such device here"
    for name, value in table.proven_on.items():
        if name != "THREADS_ALLOWED" and facts.get(name) != value:
            return f"{serves}; here {name} is {facts.get(name)}"
    return None


def _exported(folder: Path) -> Path:
    """The folder with a package's code: what pip would install, and `kernels` load. Raises InputError."""
    found = [each.parent for each in (folder / METADATA, *sorted(folder.glob(f"build/*/{METADATA}"))) if each.is_file()]
    if len(found) != 1:
        raise InputError(f"{folder}: no package; write one with `autotuner export --format package --out {folder}`")
    return found[0].resolve()


def _module(folder: Path) -> ModuleType:
    """The package's module, imported once a process under a name that its place gives it, or its digest where it lies
    in the cache. Raises InputError where it refuses to load."""
    place = folder.name.encode() if folder.parent == entry_of_package("").parent else bytes(folder)
    name = f"autotuner_package_{hashlib.sha256(place).hexdigest()[:16]}"
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
