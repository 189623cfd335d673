"""Commands on the cache: how large it is, and how it is made smaller."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import JsonOption
from autotuner.cli.output import json_of, out, print_json
from autotuner.values.errors import InputError

if TYPE_CHECKING:
    from autotuner.forge.cache import Usage

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def cache_show(as_json: JsonOption = False) -> None:
    """Where the cache is, what is in it, and how much space that takes."""
    from autotuner.forge.cache import usage

    found = usage()
    if as_json:
        print_json({**json_of(found), "bytes": found.bytes})
    else:
        _print(found)


def cache_prune(
    to: Annotated[str | None, typer.Option("--to", help="until it takes no more than this, such as 5G or 500M")] = None,
    unused_days: Annotated[
        float | None, typer.Option("--unused-days", min=0, help="what was not used for this number of days")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Removes builds and references, those used longest ago first; what is needed again is made again."""
    from autotuner.forge.cache import prune

    if to is None and unused_days is None:
        raise InputError("say what shall go: --to SIZE, --unused-days DAYS, or both")
    done = prune(
        None if to is None else size_in_bytes(to, "--to"), None if unused_days is None else 86400 * unused_days
    )
    if as_json:
        print_json(json_of(done))
        return
    out.print(f"Removed {done.removed:,} entries, {_size(done.bytes)}.", markup=False)
    _print(done.left)


def _print(found: Usage) -> None:
    out.print(f"{found.path}: {_size(found.bytes)}", markup=False, soft_wrap=True)
    out.print(f"  builds      {found.builds:7,}  {_size(found.builds_bytes)}", markup=False)
    out.print(f"  references  {found.references:7,}  {_size(found.references_bytes)}", markup=False)
    if found.oldest_use is not None:
        day = datetime.fromtimestamp(found.oldest_use, UTC).strftime("%Y-%m-%d")
        out.print(f"  the oldest was last used on {day}", markup=False)


def size_in_bytes(text: str, option: str) -> int:
    """The bytes that are meant by a size such as 5G. Raises InputError."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise InputError(f"{option} {text!r} is no size; expected a number and K, M, G or T, such as 5G")
    return int(float(found[1]) * UNITS[found[2].upper()])


def _size(count: int) -> str:
    power = min(max(count.bit_length() - 1, 0) // 10, 3)
    return f"{count / 1024**power:.1f} {'KMG'[power - 1]}iB" if power else f"{count} B"
