"""Commands on what is here: search spaces, whether their parameters reach the program, this machine, and the cache."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import (
    ArchOption,
    JsonOption,
    ProblemOption,
    ProblemsOption,
    SeedOption,
    SpaceName,
    ThreadsOption,
)
from autotuner.cli.output import json_of, out, print_json, print_lines, print_table, say_doing
from autotuner.values import config
from autotuner.values.errors import InputError

if TYPE_CHECKING:
    from autotuner.forge.cache import Usage


def space_list(as_json: JsonOption = False) -> None:
    """The spaces that are shipped."""
    from autotuner.forge.family import find_limits
    from autotuner.spaces.space import SpaceFile

    files = [SpaceFile.load(path, find_limits) for path in sorted(config.spaces_dir().glob("*.toml"))]
    if as_json:
        keys = ("name", "backend", "title", "path")
        print_json([{key: getattr(file, key) for key in keys} for file in files])
        return
    for file in files:
        out.print(f"{file.name:18} {file.backend:5} {file.title}")
    out.print(f"Their files are in {config.spaces_dir()}.", soft_wrap=True)


def space_show(
    space: SpaceName,
    problem: ProblemOption = None,
    problems: ProblemsOption = None,
    threads: ThreadsOption = None,
    arch: ArchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Parameters of a space, its raw and valid points on this machine, and what each constraint removes."""
    from autotuner.spaces.space import Space
    from autotuner.tuning import workbench
    from autotuner.views import space_tables

    file = workbench.load_space(space, threads, problem or (), problems)
    points = Space.enumerate(file, workbench.choose_device(file, arch).device.facts)
    workbench.admit_every_implementation(points)
    if as_json:
        print_json(space_tables.space_document(points))
    else:
        out.print(space_tables.space_shown(points, out.width))


def doctor(
    space: Annotated[
        str | None, typer.Option("--space", help="build this space instead: a file, or the name of one that is shipped")
    ] = None,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Looks at this machine, with a remedy for each thing that is wrong; or at a space, for dead parameters.

    Without a space it prints what a bug report needs: versions, devices, compilers, which are tried, limits, folders.
    With one it builds points, runs nothing, and names the parameters and values that never change the program, and
    what the cage around variants lacks.

    Exit code 1 where it finds something that is in the way of tuning, a dead parameter, or could build nothing.
    """
    if space is None:
        _look_at_the_machine(as_json)
        return
    from autotuner.run import cage
    from autotuner.spaces.dead_parameters import diagnose, unbuilt
    from autotuner.tuning import workbench
    from autotuner.views import space_tables

    here = workbench.Workbench(workbench.load_space(space, threads), arch)
    say_doing(f"building points of {here.space.name}")
    knobs = diagnose(here.space, here.build_all, seed)
    table, walls = space_tables.knobs_table(knobs), workbench.kind_of(here.space.file).cage
    lacks = list(cage.missing(walls))
    print_table(table, as_json, {"parameters": table.json(), "cage": {"has": cage.summary(walls), "lacks": lacks}})
    if not as_json:
        print_lines(space_tables.cage_lines(lacks))
    if unbuilt(knobs) or any(knob.state in ("dead", "same values") for knob in knobs):
        raise typer.Exit(1)


def _look_at_the_machine(as_json: bool) -> None:
    from autotuner.tuning import checkup
    from autotuner.views import space_tables

    found = list(checkup.findings(config.store_url()))
    print_table(space_tables.findings_table(found), as_json)
    if any(each.remedy and each.blocks for each in found):
        raise typer.Exit(1)


# The cache ------------------------------------------------------------------------------------------------------------

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
    out.print(f"Removed {done.removed:,} entr{'y' if done.removed == 1 else 'ies'}, {_size(done.bytes)}.", markup=False)
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
