"""Commands that write the best configuration of a study, and say which other lengths it may serve."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import (
    JsonOption,
    OneStudy,
    PatienceOption,
    StoreOption,
    StudyName,
    named,
    one_study,
    takes,
)
from autotuner.cli.output import err, json_of, json_text, out, print_json, say_reservations, say_waiting
from autotuner.cli.serve import MISSING
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.files import regular_target, write_atomically
from autotuner.values.ratio import BIASED

if TYPE_CHECKING:
    from autotuner.store import Store
    from autotuner.views.beliefs import StudyBeliefs

LossOption = Annotated[
    float, typer.Option(min=0, max=1, help="how much slower than its own best a problem may be, for fewer variants")
]


@takes(one_study)
def validate(
    of: OneStudy,
    lengths: Annotated[
        str | None, typer.Option("--lengths", help="the least and the largest, such as 128-2048; else the tuned ones")
    ] = None,
    vary: Annotated[
        list[str] | None, typer.Option("--vary", help="a length that varies, by its name; can be repeated")
    ] = None,
    loss: LossOption = 0.03,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.01, help="after which only what is needed is timed")
    ] = 2.0,
    as_json: JsonOption = False,
    patience: PatienceOption = config.PATIENCE_MINUTES,
) -> None:
    """Tries the variants of a study's table on lengths between the tuned ones: the gate, then races with the baseline.

    `autotuner export` writes ranges of lengths by what is found here.
    """
    from autotuner.serve import table as tables
    from autotuner.store import queries
    from autotuner.tuning import workbench
    from autotuner.tuning.finals import validation
    from autotuner.views.table_words import ranges_words

    asked = None if lengths is None else validation.lengths_of(lengths)
    with of as (opened, name):
        wanted = tables.to_validate(opened, name, asked, vary or (), loss)
        here = workbench.of_study(queries.study(opened, name))
        heard = err if as_json else out
        with here.held(60 * patience, say_waiting), closing(here.executor()) as executor:
            trials = here.retrials(opened, name, executor, lambda step: heard.print(step.text), 60 * minutes)
            validation.validate(trials, wanted)
        table = tables.table_of(opened, [name], loss)
    if as_json:
        print_json(json_of(table))
    else:
        out.print(ranges_words(table))


def export(
    study: StudyName = None,
    kind: Annotated[
        str, typer.Option("--format", help="json, package, c, html, t4, or one of another package")
    ] = "json",
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
    """Writes the best configuration of a study, with its proof and the table of what serves which problem.

    With --format html it is the study's pages instead, as one file that needs no server; with t4 all its trials, as
    other autotuners read them.
    """
    if kind in ("html", "t4"):
        if more or estimates or as_json:
            raise InputError(f"--format {kind} writes all of one study: it takes --out and --store alone")
        _whole(kind, study, output, store)
        return
    from autotuner.serve import best
    from autotuner.tuning.finals import standings
    from autotuner.views.table_words import table_words

    form = best.FORMATS.chosen(kind)
    target = output or Path(form.filename)
    to_screen = as_json or str(target) == "-"
    if form.folder is None and not to_screen:
        regular_target(target, "--out")
    with one_study(study, store) as (opened, name):
        names = list(dict.fromkeys([name, *(named(opened, each) for each in more or ())]))
        if standings.finals(opened, name) is None and not estimates and standings.best(opened, name) is not None:
            raise InputError(f"{name} is unconfirmed, torch serves: run `autotuner finals {name}`, or add --estimates")
        required = len(names) > 1
        found = best.export(opened, name, names, None if to_screen else target, form, loss, estimates, required)
    if found.without is not None:
        err.print(f"without a table of what serves which problem: {found.without}", style="yellow")
    if to_screen:
        typer.echo(found.said)
        return
    if form.folder is not None:
        out.print(f"{name}: written to {target}. {found.said}")
    else:
        out.print(f"{name}, trial {found.best.entry.number}: written to {target}")
    if found.table is not None:
        out.print(table_words(found.table))
    if found.best.finals is None:
        out.print(BIASED)
    say_reservations(found.best)


def _whole(kind: str, study: str | None, output: Path | None, store: str | None) -> None:
    """All of a study in one file, or on standard output: its pages, or its trials as other autotuners read them."""
    from autotuner.store import Store
    from autotuner.tuning import t4

    target = output or Path("study.html" if kind == "html" else f"study{t4.SUFFIX}")
    if str(target) != "-":
        regular_target(target, "--out")
    with Store.open(store or config.store_url(), read_only=True) as opened:
        name = named(opened, study)
        if kind == "html":
            text, what = page_of(opened, name, opened.label), ""
        else:
            made = t4.document(opened, name)
            text, what = f"{json_text(made)}\n", f"{len(made['results'])} trials "
    if str(target) == "-":
        typer.echo(text, nl=False)
    else:
        write_atomically(target, text)
        out.print(f"{name}: {what}written to {target}")


def page_of(store: Store, study: str, label: str) -> str:
    """The study's pages as HTML that stands alone; `label`: what it calls the store. Raises InputError where what draws
    pages is not installed."""
    try:
        from autotuner.web import whole_page
    except ImportError as error:
        raise InputError(f"{MISSING} ({error.name} is not here)") from None
    from autotuner.views.beliefs import kept_beliefs
    from autotuner.web.reader import Reader

    snapshot = Reader(store).study(study)
    believed: StudyBeliefs | str
    try:
        believed = kept_beliefs(store, snapshot.name)
    except InputError as error:
        believed = str(error)
    return whole_page.render(snapshot, label, believed)
