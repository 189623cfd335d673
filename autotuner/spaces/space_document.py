"""The content of a space file as it is written: TOML, and what it takes over from the file that it is `like`."""

from __future__ import annotations

from pathlib import Path

from autotuner.values import config
from autotuner.values.errors import SpaceError
from autotuner.values.toml_text import Document, read_toml

_OURS = ("limit_of", "place")
"""What a constraint of a kernel family has; a space file cannot claim it."""


def refuse_ours(document: Document, path: str | Path) -> None:
    """Raises SpaceError, one line, for a key of what is made from a space file that the file itself cannot have."""
    if "path" in document:
        raise SpaceError(f"{path}: path: unknown key")
    constraints = document.get("constraints")
    for index, constraint in enumerate(constraints if isinstance(constraints, list) else ()):
        for key in _OURS:
            if isinstance(constraint, dict) and key in constraint:
                raise SpaceError(f"{path}: constraints[{index}].{key}: unknown key")


def complete(document: Document, path: str | Path) -> tuple[Document, frozenset[str]]:
    """The document on top of the one that it is `like`, and the parameters that it has from there.

    A key that it has replaces the other's, and in the tables `parameters` and `default` a name does. A default with an
    IMPL of its own replaces the other's whole. Raises SpaceError where the other file cannot be read or is like a
    third.
    """
    if "like" not in document:
        return document, frozenset()
    base_path = _find(document["like"], path)
    base = read_toml(base_path, SpaceError)
    refuse_ours(base, base_path)
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
