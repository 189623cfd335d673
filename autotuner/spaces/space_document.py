"""The content of a space file as it is written: TOML, and what it takes over from the file that it is `like`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotuner.values import config
from autotuner.values.errors import SpaceError
from autotuner.values.files import read_regular, text_of, why
from autotuner.values.toml_text import LARGEST_BYTES, TomlError, parse_toml

Document = dict[str, Any]

_OURS = ("limit_of", "place")
"""What a constraint of a kernel family has; a space file cannot claim it."""


def read_document(path: Path) -> Document:
    """The TOML of a file. Raises SpaceError, one line."""
    try:
        text_of(path.absolute())
        return parse_document(read_regular(path, LARGEST_BYTES).decode(), path)
    except OSError as error:
        raise SpaceError(f"{path}: cannot be read: {why(error)}") from None
    except UnicodeDecodeError as error:
        raise SpaceError(f"{path}: not UTF-8 text (byte {error.start})") from None


def parse_document(text: str, path: str | Path) -> Document:
    """The TOML in a text; `path` names it in messages. Raises SpaceError, one line."""
    try:
        document = parse_toml(text)
    except TomlError as error:
        raise SpaceError(f"{path}: {error}") from None
    if "path" in document:
        raise SpaceError(f"{path}: path: unknown key")
    constraints = document.get("constraints")
    for index, constraint in enumerate(constraints if isinstance(constraints, list) else ()):
        for key in _OURS:
            if isinstance(constraint, dict) and key in constraint:
                raise SpaceError(f"{path}: constraints[{index}].{key}: unknown key")
    return document


def complete(document: Document, path: str | Path) -> tuple[Document, frozenset[str]]:
    """The document on top of the one that it is `like`, and the parameters that it has from there.

    A key that it has replaces the other's, and in the tables `parameters` and `default` a name does. A default with an
    IMPL of its own replaces the other's whole. Raises SpaceError where the other file cannot be read or is like a
    third.
    """
    if "like" not in document:
        return document, frozenset()
    base_path = _find(document["like"], path)
    base = read_document(base_path)
    if "like" in base:
        where = f"{path}: like: {base_path}"
        raise SpaceError(f"{where} is itself like {base['like']!r}; name a file that is like no other")
    result = {**base, **document, "like": str(base_path)}
    for table in ("parameters", "default"):
        theirs, own = base.get(table), document.get(table, {})
        afresh = table == "default" and isinstance(own, dict) and "IMPL" in own
        if isinstance(theirs, dict) and isinstance(own, dict) and not afresh:
            result[table] = {**theirs, **own}
    return result, frozenset(_names(base)) - frozenset(_names(document))


def _names(document: Document) -> Document:
    parameters = document.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def _find(like: object, path: str | Path) -> Path:
    """A file by its path from the folder of `path`; by name one beside it, or one that is shipped."""
    if not isinstance(like, str) or not like:
        raise SpaceError(f"{path}: like: found {like!r}, expected the name of a space or the path of its file")
    folder = Path(path).parent
    if like.endswith(".toml"):
        places = [folder / like]
    else:
        places = [folder / f"{like}.toml", config.spaces_dir() / f"{like}.toml"]
    for place in places:
        if place.is_file():
            return place
    raise SpaceError(f"{path}: like: there is no {' and no '.join(map(str, places))}")
