"""What is wrong with a document, in one line: the key, what was found there and what was expected.

A document (a space file, a kernel.toml) is checked by a pydantic model. `explanation` turns what pydantic has to say of
it into words for the person who wrote it.
"""

import difflib
import types
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

REFUSED = "refused"
"""The type of an error that a validator of ours has raised by `refuse`."""
UNKNOWN = ": unknown key"
SURE = 0.75
"""How alike two names are, of 1, before one is offered for the other beside a list of all."""
SHOWN = 60
"""Characters of a value, at most, that a message shows."""

_WORDS = {
    "Input should be ": "expected ",
    "expected greater": "expected a number greater",
    "expected less": "expected a number less",
    "String should have": "expected a string of",
    "String should match": "expected a string that matches",
    "Tuple should have": "expected a list of",
    "List should have": "expected a list of",
    "Dictionary should have": "expected a table of",
    " after validation, not 0": "",
    "a valid tuple": "a list",
    "a valid list": "a list",
    "a valid dictionary or instance of ": "a table: ",
    "a valid dictionary": "a table",
    "a valid ": "a ",
    "a integer": "an integer",
    "a boolean": "true or false",
}
"""Pydantic's words and ours, applied in this order."""


def refuse(message: str, key: str = "") -> PydanticCustomError:
    """A refusal, to be raised by a validator. `message` says what was found and expected; `key` says where, when
    pydantic cannot know."""
    return PydanticCustomError(REFUSED, "{message}", {"message": message, "key": key})


def refusal(error: PydanticCustomError) -> str:
    """The key and the message of a refusal, in one line."""
    key = (error.context or {}).get("key")
    return f"{key}: {error.message()}" if key else error.message()


def explanation(error: ValidationError, model: type[BaseModel], hidden: Collection[str] = ()) -> str:
    """One line for the complaint to mend first, as in `problems[0].dtype: found "int8", expected "float32"`.

    `model` is the one that refused the document, and `hidden` are the names of fields that no document has. A misspelt
    key is unknown and leaves the right one missing: the unknown one comes first, as it says more.
    """
    first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    kind, context = first["type"], first.get("ctx", {})
    key = context.get("key") or _path(first, model)
    where = f"{key}: " if key else ""
    if kind == "extra_forbidden":
        known = [name for name in _keys_at(model, first["loc"][:-1]) if name not in hidden]
        return f"{key}{UNKNOWN}{suggestion(str(first['loc'][-1]), known)}"
    if kind == "missing":
        return f"{where}missing; this key is required"
    if kind in (REFUSED, "value_error", "assertion_error"):
        said = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        return _one_line(f"{where}{said}")
    expected = first["msg"]
    for theirs, ours in _WORDS.items():
        expected = expected.replace(theirs, ours)
    return _one_line(f"{where}found {show(first['input'])}, {expected}")


def show(value: object) -> str:
    """The value for a one-line message, with what it is where its look does not tell."""
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    text = text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
    kinds = {bool: "a boolean", float: "a float", dict: "a table", list: "a list"}
    kind = kinds.get(type(value))
    return f"{text} ({kind})" if kind else text


def suggestion(name: str, known: Iterable[str]) -> str:
    """The end of a message on a name that is not known: the one of the known names that was perhaps meant."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def no_such(what: str, name: str, known: Iterable[str]) -> str:
    """A line on a name that nothing has: the known one that was perhaps meant, and all there are."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=SURE)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"no {what} {name!r}{meant}; there are {', '.join(names) or 'none'}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _path(error: ErrorDetails, model: type[BaseModel]) -> str:
    """The dotted key of an error. Pydantic notes which member of a union it tried, too; no document has that."""
    *outer, last = error["loc"] or ("",)
    place: Any = model
    kept: list[int | str] = []
    for part in outer:
        inner = _inside(place, part)
        if inner is not None:
            kept.append(part)
            place = inner
    if error["type"] in ("extra_forbidden", "missing") or _inside(place, last) is not None:
        kept.append(last)
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in kept).removeprefix(".")


def _keys_at(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """The keys that are known in the table at that place of a document."""
    found: Any = model
    for part in place:
        inner = _inside(found, part)
        found = found if inner is None else inner
    names: list[str] = []
    for table in _members(found):
        if isinstance(table, type) and issubclass(table, BaseModel):
            names += table.model_fields
    return names


def _inside(place: object, part: int | str) -> object:
    """The type of what is under that key, or at that index, of a value of type `place`; None where there is nothing."""
    for each in _members(place):
        origin, arguments = get_origin(each), get_args(each)
        if isinstance(each, type) and issubclass(each, BaseModel) and part in each.model_fields:
            return each.model_fields[str(part)].annotation
        if origin in (dict, Mapping) and isinstance(part, str) and part != "[key]":
            return arguments[1]
        if isinstance(part, int) and origin is tuple and arguments:
            return arguments[0] if arguments[-1] is Ellipsis else arguments[min(part, len(arguments) - 1)]
        if isinstance(part, int) and origin in (list, set, frozenset):
            return arguments[0]
    return None


def _members(place: object) -> list[Any]:
    """A type without its annotations, or the members of a union."""
    while get_origin(place) is Annotated:
        place = get_args(place)[0]
    if get_origin(place) in (Union, types.UnionType):
        return [each for member in get_args(place) for each in _members(member)]
    return [place]
