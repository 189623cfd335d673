"""The command that writes the best configuration of a study."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from autotuner.cli.options import JsonOption, StoreOption, StudyName, open_store
from autotuner.cli.output import out, say_where_the_gate_is_looser
from autotuner.values.errors import InputError
from autotuner.values.files import regular_target, write_atomically


def export(
    study: StudyName = None,
    kind: Annotated[str, typer.Option("--format", help="json, or one of another package")] = "json",
    output: Annotated[
        Path | None, typer.Option("--out", help="a file, - for standard output; the format's own name")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Writes the best configuration of a study, with its proof."""
    from autotuner.export.best import FORMATS
    from autotuner.store import queries
    from autotuner.tuning import standings

    form = FORMATS.chosen(kind)
    target = output or Path(form.filename)
    if not as_json and str(target) != "-":
        regular_target(target, "--out")
    with closing(open_store(store)) as opened:
        name = queries.resolve_study(opened, study)
        found = standings.best(opened, name)
        if found is None:
            raise InputError(f"{name} has no variant measured to the end yet; `autotuner status` shows why")
        text = form.render(found, queries.study(opened, name))
    if as_json or str(target) == "-":
        typer.echo(text)
        return
    write_atomically(target, text)
    out.print(f"{name}, trial {found.entry.number}: written to {target}")
    say_where_the_gate_is_looser(found)
