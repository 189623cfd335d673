"""Commands on search spaces: what is shipped, what a space holds here, and whether its parameters reach the program."""

from typing import Annotated

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
from autotuner.cli.output import out, print_json, print_lines, print_table
from autotuner.values import config


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
