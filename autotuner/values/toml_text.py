"""TOML files of the user: what is too large, nested too deep or no number of 64 bits is refused in one line."""

import re
import tomllib
import unicodedata
from pathlib import Path
from typing import Any

from autotuner.values.errors import InputError
from autotuner.values.files import read_regular, text_of, why
from autotuner.values.validation import show

Document = dict[str, Any]

LARGEST_BYTES = 1 << 19
"""Of a file."""
DEEPEST = 24
"""Tables and lists within each other, at most."""
DOTS = 100
"""Dots in what may be one key, at most: one of thousands of parts takes the parser minutes."""


def read_toml(path: Path, error: type[InputError]) -> Document:
    """The content of a file. Raises an error of that type, one line that names the file."""
    try:
        text_of(path.absolute())
        return parse_toml(read_regular(path, LARGEST_BYTES).decode(), path, error)
    except OSError as found:
        raise error(f"{path}: cannot be read: {why(found)}") from None
    except UnicodeDecodeError as found:
        raise error(f"{path}: not UTF-8 text (byte {found.start})") from None


def parse_toml(text: str, path: str | Path, error: type[InputError]) -> Document:
    """The content of a text; `path` names it in messages. Raises as `read_toml` does."""
    lines = text.splitlines()
    deep = f"nested deeper than {DEEPEST} tables and lists"
    for number, line in enumerate(lines, 1):
        if any(part.count(".") > DOTS for part in re.split("[=,{]", line)):
            raise error(f"{path}: {deep} (line {number})")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as found:
        last = f" (line {len(lines)})" if "line" not in str(found) else ""
        raise error(f"{path}: not TOML: {found}{last}") from None
    except RecursionError:
        raise error(f"{path}: {deep}") from None
    except ValueError:  # Python refuses to read an integer of thousands of digits
        raise error(f"{path}: a number beyond 64 bits") from None
    left: list[tuple[str, Any, int]] = [("", document, 0)]
    while left:  # without recursion
        where, value, depth = left.pop()
        if depth > DEEPEST:
            raise error(f"{path}: {where[:80]}: {deep}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise error(f"{path}: {where}: a number beyond 64 bits")
        names = value if isinstance(value, dict) else [value] if isinstance(value, str) else []
        for odd in (each for name in names if not name.isprintable() for each in name if is_control(each)):
            raise error(f"{path}: {where or 'a key'}: the character {show(odd)} cannot be shown; leave it out")
        if isinstance(value, dict):
            left += [(f"{where}.{key}" if where else key, each, depth + 1) for key, each in value.items()]
        elif isinstance(value, list):
            left += [(f"{where}[{index}]", each, depth + 1) for index, each in enumerate(value)]
    return document


def is_control(character: str) -> bool:
    """Whether a terminal would obey the character, or could not show it."""
    kind = unicodedata.category(character)
    return (kind.startswith("C") and character not in "\n\t\r") or kind in ("Zl", "Zp")
