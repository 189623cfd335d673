"""Commands that write the best configuration of a study, and say which other lengths it may serve."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import JsonOption, PatienceOption, StoreOption, StudyName, open_store
from autotuner.cli.output import err, json_of, out, print_json, say_waiting, say_where_the_gate_is_looser
from autotuner.values import config
from autotuner.values.errors import InputError, StoreError
from autotuner.values.files import regular_target, write_atomically

if TYPE_CHECKING:
    from autotuner.tuning.finals import Step

LossOption = Annotated[
    float, typer.Option(min=0, max=1, help="how much slower than its own best a problem may be, for fewer variants")
]


def validate(
    study: StudyName = None,
    lengths: Annotated[
        str | None, typer.Option("--lengths", help="the least and the largest, such as 128-2048; else the tuned ones")
    ] = None,
    vary: Annotated[
        list[str] | None, typer.Option("--vary", help="a length that varies, by its name; can be repeated")
    ] = None,
    loss: LossOption = 0.03,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.01, help="after which only what is needed is timed, on a calm machine")
    ] = 2.0,
    store: StoreOption = None,
    as_json: JsonOption = False,
    patience: PatienceOption = config.PATIENCE_MINUTES,
) -> None:
    """Tries the variants of a study's table on lengths between the tuned ones: the gate, then races with the baseline.

    `autotuner export` writes ranges of lengths by what is found here.
    """
    from autotuner.serve import table as tables
    from autotuner.serve.ranges import lengths_of
    from autotuner.store import queries
    from autotuner.tuning import workbench
    from autotuner.views.table_words import ranges_words

    asked = None if lengths is None else lengths_of(lengths)
    with closing(open_store(store)) as opened:
        name = queries.resolve_study(opened, study)
        wanted = tables.to_validate(opened, name, asked, vary or (), loss)
        here = workbench.of_study(queries.study(opened, name))
        heard = err if as_json else out

        def listen(step: Step) -> None:
            heard.print(step.text)

        with here.held(60 * patience, say_waiting), closing(here.executor()) as executor:
            here.validator(opened, name, executor, listen, 60 * minutes, 60 * patience).run(wanted)
        table = tables.table_of(opened, [name], loss)
    if as_json:
        print_json(json_of(table))
    else:
        out.print(ranges_words(table))


def export(
    study: StudyName = None,
    kind: Annotated[str, typer.Option("--format", help="json, package, c, or one of another package")] = "json",
    output: Annotated[
        Path | None, typer.Option("--out", help="a file, - for standard output, or a folder; the format's own name")
    ] = None,
    more: Annotated[
        list[str] | None, typer.Option("--with", help="another study whose problems the table serves; can be repeated")
    ] = None,
    loss: LossOption = 0.03,
    estimates: Annotated[
        bool, typer.Option("--estimates", help="let the table serve what no finals confirmed; it will say so")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Writes the best configuration of a study, with its proof and the table of what serves which problem."""
    from autotuner.serve.best import FORMATS
    from autotuner.serve.table import table_of
    from autotuner.store import queries
    from autotuner.tuning import standings
    from autotuner.views.table_words import table_words

    form = FORMATS.chosen(kind)
    target = output or Path(form.filename)
    to_screen = as_json or str(target) == "-"
    if form.folder is None and not to_screen:
        regular_target(target, "--out")
    with closing(open_store(store)) as opened:
        name = queries.resolve_study(opened, study)
        found = standings.best(opened, name)
        if found is None:
            raise InputError(f"{name} has no variant measured to the end yet; `autotuner status` shows why")
        names = list(dict.fromkeys([name, *(queries.resolve_study(opened, each) for each in more or ())]))
        without = len(names) == 1 and found.finals is None and not estimates
        table = None
        try:
            table = None if without else table_of(opened, names, loss, estimates)
        except InputError as error:
            if len(names) > 1 or isinstance(error, StoreError) or form.folder is not None:
                raise
            err.print(f"without a table of what serves which problem: {error}", style="yellow")
        record = queries.study(opened, name)
        if form.folder is not None and not to_screen:
            said = form.folder(table, record, target)
        else:
            text = form.text(found, record, table)
    if to_screen:
        typer.echo(text)
        return
    if form.folder is not None:
        out.print(f"{name}: written to {target}. {said}")
    else:
        write_atomically(target, text)
        out.print(f"{name}, trial {found.entry.number}: written to {target}")
    if table is not None:
        out.print(table_words(table))
    say_where_the_gate_is_looser(found)
