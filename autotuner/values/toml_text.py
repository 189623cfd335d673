"""TOML within bounds: what is nested without end or is no number of 64 bits is refused in one line."""

from __future__ import annotations

import tomllib
import unicodedata
from typing import Any

from autotuner.values.validation import show

Document = dict[str, Any]

LARGEST_BYTES = 1 << 19
"""Of a file."""
DEEPEST = 24
"""Tables and lists within each other, at most."""
DOTS = 100
"""Dots in a line, at most: a key of thousands of parts takes the parser minutes."""
INTEGERS = range(-(2**63), 2**63)
"""What TOML calls an integer."""


class TomlError(ValueError):
    """A text that is not TOML, or beyond the bounds. The message is one line."""


def parse_toml(text: str) -> Document:
    """The content of a TOML text. Raises TomlError."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.count(".") > DOTS:
            raise TomlError(f"more than {DOTS} dots in a line (line {number})")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        last = f" (line {len(lines)})" if "line" not in str(error) else ""
        raise TomlError(f"not TOML: {error}{last}") from None
    except RecursionError:
        raise TomlError(f"nested deeper than {DEEPEST} tables and lists") from None
    except ValueError:  # Python refuses to read an integer of thousands of digits
        raise TomlError("a number beyond 64 bits") from None
    _check(document)
    return document


def _check(document: Document) -> None:
    """Refuses what is nested too deep, a number beyond 64 bits and control characters, without recursion."""
    left: list[tuple[str, Any, int]] = [("", document, 0)]
    while left:
        where, value, depth = left.pop()
        if depth > DEEPEST:
            raise TomlError(f"{where[:80]}: nested deeper than {DEEPEST} tables and lists")
        if isinstance(value, dict):
            for key, each in value.items():
                _check_text(where or "a key", key)
                left.append((f"{where}.{key}" if where else key, each, depth + 1))
        elif isinstance(value, list):
            left += [(f"{where}[{index}]", each, depth + 1) for index, each in enumerate(value)]
        elif isinstance(value, str):
            _check_text(where, value)
        elif isinstance(value, int) and value not in INTEGERS:
            raise TomlError(f"{where}: a number beyond 64 bits")


def is_control(character: str) -> bool:
    """Whether a terminal would obey the character, or could not show it."""
    kind = unicodedata.category(character)
    return (kind.startswith("C") and character not in "\n\t\r") or kind in ("Zl", "Zp")


def _check_text(where: str, text: str) -> None:
    """Refuses what a terminal would obey instead of showing it."""
    odd = next((each for each in text if not each.isprintable() and is_control(each)), None)
    if odd is not None:
        raise TomlError(f"{where}: the character {show(odd)} cannot be shown; leave it out")
