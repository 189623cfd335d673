"""Questions about the studies of a store. They judge nothing and build nothing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from autotuner.cli.options import MOST, JsonOption, StoreOption, StudyName, open_store
from autotuner.cli.output import json_of, json_text, out, print_json, print_lines
from autotuner.values.errors import InputError
from autotuner.values.files import regular_target, write_atomically


def status(study: StudyName = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """How far each study is, and what was rejected for what."""
    from autotuner.store import queries
    from autotuner.tuning import standings
    from autotuner.views.status_text import status_text

    with closing(open_store(store)) as opened:
        if study is None:
            found = standings.studies(opened)
        else:
            found = (standings.summary(opened, queries.resolve_study(opened, study)),)
    if as_json:
        print_json([json_of(summary) for summary in found])
    elif not found:
        out.print("No study yet: run `autotuner tune`.")
    for summary in () if as_json else found:
        out.print(status_text(summary))


def leaderboard(
    study: StudyName = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="how many lines")] = 10,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """The fastest variants that passed the gate."""
    from autotuner.store import queries
    from autotuner.tuning import standings
    from autotuner.views.leaderboard import disturbed_line, leaderboard_table

    with closing(open_store(store)) as opened:
        name = queries.resolve_study(opened, study)
        entries, of = standings.leaderboard(opened, name, limit), queries.study(opened, name)
        disturbed = queries.disturbed(opened, name)
    if as_json:
        print_json([json_of(entry) for entry in entries])
    else:
        out.print(leaderboard_table(entries, of))
        if disturbed:
            out.print(disturbed_line(disturbed))


def trials(
    study: StudyName = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="print comma-separated values instead of a table")] = False,
    as_parquet: Annotated[bool, typer.Option("--parquet", help="write a Parquet file, which needs --out")] = False,
    output: Annotated[Path | None, typer.Option("--out", help="a file instead of standard output")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Every trial of a study: its parameters, its verdict with the reason, its figures and times."""
    from autotuner.store import queries
    from autotuner.views import trial_files
    from autotuner.views.trial_lines import trial_lines
    from autotuner.views.trials_table import trials_table

    if as_csv + as_json + as_parquet > 1:
        raise InputError("--csv, --json and --parquet are three formats: give one of them")
    if as_parquet and output is None:
        raise InputError("a Parquet file is not for a terminal: name one with --out FILE")
    if output is not None:
        regular_target(output, "--out")
        if not (as_csv or as_json or as_parquet):
            raise InputError("--out needs a format: --csv, --json or --parquet")
    with closing(open_store(store)) as opened:
        name = queries.resolve_study(opened, study)
        lines, of = trial_lines(opened, name), queries.study(opened, name)
    content: str | bytes
    if as_parquet:
        content = trial_files.as_parquet(lines)
    elif as_csv:
        content = trial_files.as_csv(lines)
    elif as_json:
        content = f"{json_text(trial_files.as_json(lines))}\n"
    else:
        out.print(trials_table(lines, of))
        return
    if output is not None:
        write_atomically(output, content)
        out.print(f"{len(lines)} trials of {name} written to {output}.")
    elif isinstance(content, str):
        typer.echo(content, nl=False)


def best(study: StudyName = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """The variant to use: the finals' choice, else the fastest of the search."""
    from autotuner.store import queries
    from autotuner.tuning import standings
    from autotuner.views.trial_words import best_words

    with closing(open_store(store)) as opened:
        name = queries.resolve_study(opened, study)
        found = standings.best(opened, name)
    if found is None:
        raise InputError(f"{name} has no variant measured to the end yet; `autotuner status` shows why")
    if as_json:
        print_json(json_of(found))
        return
    out.print(f"{name}, trial {found.entry.number}")
    print_lines(best_words(found))


def show(
    number: Annotated[int, typer.Argument(metavar="TRIAL", min=0, max=MOST, help="a trial's number")],
    study: StudyName = None,
    report: Annotated[bool, typer.Option("--report", help="the gate's report as JSON")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """One trial: what it achieved, or why it was rejected, in words."""
    from autotuner.ops import op_of
    from autotuner.store import queries
    from autotuner.tuning import standings
    from autotuner.tuning.trial_report import trial_report
    from autotuner.views.trial_words import confirmed_words, outcome_words

    with closing(open_store(store)) as opened:
        record = queries.trial(opened, queries.resolve_study(opened, study), number)
        of = queries.study(opened, record.study)
        confirmed, outcome = standings.confirmed(opened, record.study, number), standings.proven(opened, record)
    if report:
        device = of.device.model_copy(update={"environment": record.session.environment})
        print_json(json_of(trial_report(outcome, of.problems, device, record.session.calibration)))
        return
    if as_json:
        print_json({**json_of(record), "confirmed": None if confirmed is None else json_of(confirmed)})
        return
    out.print(f"{record.study}, trial {record.number}, {record.recorded_at:%Y-%m-%d %H:%M:%S} UTC")
    if record.revoked_at is not None:
        out.print(f"REVOKED: {record.revoked_reason}")
    print_lines([confirmed_words(confirmed)] if confirmed is not None else [])
    print_lines(outcome_words(outcome, op_of(of.problems[0])))


def explain_study(
    study: StudyName = None,
    figure: Annotated[Path | None, typer.Option(help="draw the beliefs into this .svg file")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a study has shown: what matters, what is dead, what is rejected where, what is left. Builds nothing."""
    from autotuner.store import queries
    from autotuner.views import beliefs_figure, beliefs_text
    from autotuner.views.kept_beliefs import kept_beliefs

    if figure is not None:
        regular_target(figure, "--figure")
    with closing(open_store(store)) as opened:
        found = kept_beliefs(opened, queries.resolve_study(opened, study))
    if figure is not None:
        write_atomically(figure, beliefs_figure.drawn(found, figure))
    if as_json:
        print_json(json_of(found))
        return
    print_lines(beliefs_text.lines(found) + ([f"Drawn into {figure}."] if figure else []))
