"""The limits of a kernel family: how kernel.toml says them, or the file limits.toml beside it.

Under `[cuda.mma]` stand those of an implementation, under `[cuda]` those of all implementations of the device: tables
`amounts`, `derived` and `expected_latency`, and a list `constraints`, each as in a space file (docs/kernel-toml.md).
What stands in limits.toml is no part of a study's identity: it changes no program, only which points a space has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autotuner.spaces.expression import Expression, ExpressionError
from autotuner.spaces.fields import EXPECTED, NAME
from autotuner.spaces.limits import Limits, LimitTable
from autotuner.values.errors import KernelError
from autotuner.values.files import read_regular, why
from autotuner.values.toml_text import LARGEST_BYTES, TomlError, parse_toml
from autotuner.values.validation import explanation, suggestion

Document = dict[str, Any]
Tables = dict[str, LimitTable]
"""By the key of a table: cuda, cuda.mma, ..."""

BESIDE = "limits.toml"
KEYS = tuple(LimitTable.model_fields)
"""What is a limit in a table of a device or of an implementation; no implementation can have one of these names."""


def split(document: Document, path: Path) -> tuple[Document, Tables]:
    """The content of a kernel.toml without its limits, and these, from whichever file they stand in.

    Raises KernelError, one line with the file and the key.
    """
    rest, tables = _taken(document, path)
    beside = path.parent / BESIDE
    if not beside.is_file():
        return rest, tables
    if tables:
        raise KernelError(f"{path}: {min(tables)}: limits stand in {beside} too; keep them in one of the two")
    other, tables = _taken(read_toml(beside), beside)
    _refuse_what_is_no_limit(other, rest, beside)
    return rest, tables


def limits_path(folder: Path) -> Path:
    """The file of a family that its limits stand in."""
    return folder / BESIDE if (folder / BESIDE).is_file() else folder / "kernel.toml"


def read_toml(path: Path) -> Document:
    """The content of a file of a kernel family. Raises KernelError, one line."""
    try:
        return parse_toml(read_regular(path, LARGEST_BYTES).decode())
    except OSError as error:
        raise KernelError(f"{path}: cannot be read ({why(error)}); a kernel family needs a kernel.toml") from None
    except UnicodeDecodeError as error:
        raise KernelError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except TomlError as error:
        raise KernelError(f"{path}: {error}") from None


def _refuse_what_is_no_limit(left: Document, kernel: Document, path: Path) -> None:
    for device, table in left.items():
        if not isinstance(table, dict) or not isinstance(kernel.get(device), dict):
            raise KernelError(f"{path}: {device}: kernel.toml has no such table; expected limits of those that it has")
        for name, own in table.items():
            place = (device, name, *own) if isinstance(own, dict) else (device, name)
            if own or not isinstance(own, dict):
                raise KernelError(f"{path}: {'.'.join(place[:3])}: unknown key{suggestion(place[:3][-1], KEYS)}")


def _taken(document: Document, path: Path) -> tuple[Document, Tables]:
    """The document without its limits, and these."""
    rest: Document = {}
    tables: Tables = {}
    for device, table in document.items():
        if device == "gate" or not isinstance(table, dict):
            rest[device] = table
            continue
        shared, others = _parted(table)
        rest[device] = others
        found = {device: shared}
        for name, own in others.items():
            if isinstance(own, dict):
                found[f"{device}.{name}"], others[name] = _parted(own)
        tables |= {key: _table(key, content, path) for key, content in found.items() if content}
    return rest, tables


def _parted(table: Document) -> tuple[Document, Document]:
    limits = {key: value for key, value in table.items() if key in KEYS}
    return limits, {key: value for key, value in table.items() if key not in KEYS}


def _table(key: str, content: Document, path: Path) -> LimitTable:
    try:
        return LimitTable.model_validate(content, strict=True)
    except ValidationError as error:
        raise KernelError(f"{path}: {key}.{explanation(error, LimitTable)}") from None


def limits_of(
    family: str,
    op: str,
    device: str,
    parameters: Mapping[str, tuple[str, ...]],
    tables: Tables,
    path: Path,
    facts: frozenset[str],
) -> Limits:
    """The limits of a family on a device, whose implementations read these parameters; `facts` are what an expression
    may ask of the problem.

    Raises KernelError, one line with the key, for an implementation that is not there and for what cannot be named.
    """
    own = {key.partition(".")[2]: table for key, table in tables.items() if key.startswith(f"{device}.")}
    if unknown := sorted(own.keys() - parameters.keys()):
        there = ", ".join(parameters) or "none"
        raise KernelError(f"{path}: {device}.{unknown[0]}: no such implementation; those of kernel.toml: {there}")
    limits = Limits(
        family=family,
        device=device,
        op=op,
        path=str(path),
        parameters=dict(parameters),
        shared=tables.get(device, LimitTable()),
        own=own,
    )
    _check(limits, facts)
    return limits


def _check(limits: Limits, facts: frozenset[str]) -> None:
    """Refuses a name that is defined twice, and one that an expression cannot know.

    What is no parameter of the family, no fact of a problem and defined nowhere may be a fact of the device: a space
    looks for that when its points are enumerated.
    """
    tables = limits.tables(limits.own)
    defined = _check_definitions(limits, tables, facts)
    expecting = [key for key, table in tables.items() if table.expected_latency]
    if limits.device in expecting[:-1]:
        where = f"{limits.path}: {expecting[1]}.{EXPECTED}"
        raise KernelError(f"{where}: {limits.device} has one for all implementations; remove one of the two")
    amounts: dict[str, Expression] = {}
    derived: set[str] = set()
    for key, table in tables.items():
        others = limits.all_parameters - {*limits.parameters.get(key.partition(".")[2], limits.all_parameters)}
        steps: set[str] = set()
        for place, text in table.texts().items():
            kind, _, name = place.partition(".")
            where = f"{limits.path}: {key}.{place}"
            expression = _parsed(where, text, amounts)
            _check_names(where, expression.names, others, defined - (derived | steps if kind == EXPECTED else set()))
            if kind == "amounts":
                amounts[name] = expression
            else:
                {"derived": derived, EXPECTED: steps}.get(kind, set()).add(name)


def _check_definitions(limits: Limits, tables: Tables, facts: frozenset[str]) -> set[str]:
    """The names that amounts, derived quantities and steps have; refuses one that there is already. Implementations
    may have steps of the same name: no space has those of two."""
    found: dict[str, str] = {}
    for key, table in tables.items():
        for place in table.texts():
            kind, _, name = place.partition(".")
            if kind.startswith("constraints"):
                continue
            where = f"{limits.path}: {key}.{place}"
            if not NAME.fullmatch(name):
                raise KernelError(f"{where}: expected a name of capitals, digits and _, a capital first")
            if name in {"IMPL", *limits.all_parameters, *facts}:
                raise KernelError(f"{where}: a parameter or a fact of the problem has this name; choose another")
            if name in found and not (kind == EXPECTED and found[name].endswith(f".{EXPECTED}")):
                raise KernelError(f"{where}: {found[name]} has this name; choose another")
            found[name] = f"{key}.{kind}"
    return set(found)


def _parsed(where: str, text: str, amounts: Mapping[str, Expression]) -> Expression:
    try:
        return Expression.parse(text, amounts)
    except ExpressionError as error:
        raise KernelError(f"{where}: {error.reason}") from None


def _check_names(where: str, names: frozenset[str], others: frozenset[str], later: set[str]) -> None:
    for name in sorted(names):
        if not NAME.fullmatch(name):
            raise KernelError(f"{where}: found the name {name}, expected a parameter or a fact, in capitals")
        if name in others:
            raise KernelError(f"{where}: {name} is no parameter of it but of another implementation")
        if name in later:
            raise KernelError(f"{where}: {name} is not defined above it; move it up")
