"""Questions about the studies of a store. They judge nothing and build nothing."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import MOST, JsonOption, OneStudy, StoreOption, StudyName, named, one_study, stored, takes
from autotuner.cli.output import json_of, out, print_json, print_lines, print_table
from autotuner.values.errors import InputError

if TYPE_CHECKING:
    from autotuner.store import Store
    from autotuner.views.table import Table


class Figures(StrEnum):
    """What `status --show` shows of a study."""

    HISTORY = "history"
    COSTS = "costs"
    COVERAGE = "coverage"
    BASELINES = "baselines"


def status(
    study: StudyName = None,
    show: Annotated[
        Figures | None,
        typer.Option(
            help="of one study instead: the best so far over time, what its trials cost, how much of the space it has "
            "judged, or what the baselines took at each start"
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """How far each study is, and what was rejected for what."""
    from autotuner.tuning.finals import standings
    from autotuner.views.studies_table import studies_table

    with stored(store) as opened:
        if show is not None:
            from autotuner.store import queries
            from autotuner.views.figure_tables import FIGURES
            from autotuner.views.snapshot import Snapshot

            name = named(opened, study)
            print_table(FIGURES[show](Snapshot(opened, name, queries.revision(opened, name))), as_json)
            return
        found = standings.studies(opened) if study is None else (standings.summary(opened, named(opened, study)),)
    print_table(studies_table(found), as_json, empty="No study yet: run `autotuner tune`.", in_full=True)


@takes(one_study)
def leaderboard(
    of: OneStudy,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="how many lines")] = 10,
    as_json: JsonOption = False,
) -> None:
    """The fastest variants that passed the gate, which checks that they are right."""
    with of as (store, study):
        if as_json:
            print_json(leaderboard_of(store, study, limit).json())
        else:
            print_leaderboard(store, study, limit)


def leaderboard_of(store: Store, study: str, limit: int) -> Table:
    """The first lines of a study's leaderboard."""
    from autotuner.store import queries
    from autotuner.tuning.finals import standings
    from autotuner.views import leaderboard

    return leaderboard.leaderboard(standings.leaderboard(store, study, limit), queries.study(store, study))


def print_leaderboard(store: Store, study: str, limit: int) -> None:
    """The leaderboard, and what was not counted because the machine was disturbed."""
    from autotuner.store import queries
    from autotuner.views.leaderboard import disturbed_line

    empty = f"{study}: no variant was judged yet; `autotuner tune` goes on."
    if judged := queries.judged_count(store, study):
        why = "`autotuner status` counts why, `autotuner trials` lists them"
        empty = f"{study}: of {judged} judged variants none has passed the gate yet; {why}."
    print_table(leaderboard_of(store, study, limit), as_json=False, empty=empty)
    if disturbed := queries.disturbed(store, study):
        out.print(disturbed_line(disturbed))


@takes(one_study)
def trials(
    of: OneStudy,
    as_csv: Annotated[bool, typer.Option("--csv", help="print comma-separated values instead of a table")] = False,
    as_json: JsonOption = False,
) -> None:
    """Every trial of a study: its parameters, its verdict with the reason, its figures and times."""
    from autotuner.views.trials_table import as_csv as csv_of, trials_of

    if as_csv and as_json:
        raise InputError("--csv and --json are two formats: give one of them")
    with of as (store, study):
        table = trials_of(store, study)
    if as_csv:
        typer.echo(csv_of(table), nl=False)
    else:
        print_table(table, as_json)


def show(
    trial: Annotated[
        str | None, typer.Argument(metavar="TRIAL", help="a trial's number; the one to use when left out")
    ] = None,
    study: StudyName = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """One trial: what it achieved, or why it was rejected, in words.

    Without a number it is the one to use: the finals' choice, before any finals the fastest of the search.
    """
    from autotuner.ops import op_of
    from autotuner.store import queries
    from autotuner.tuning.finals import standings
    from autotuner.views.profile_table import profile_table
    from autotuner.views.trial_words import best_words, trial_words
    from autotuner.views.trials_table import trial_document

    number, study = trial_and_study(trial, study)
    with stored(store) as opened:
        name = named(opened, study)
        best = standings.required_best(opened, name) if number is None else None
        record = best.record if best is not None else queries.trial(opened, name, number or 0)
        of = queries.study(opened, name)
        document = trial_document(opened, name, record.number) if as_json else None
        confirmed = standings.every_confirmed(opened, name).get(record.number)
        outcome, profiled = standings.proven(opened, record), queries.profile(opened, name, record.number)
    if document is not None:
        print_json(document)
    elif best is not None:
        print_lines([f"{name}, trial {record.number}", *best_words(best)])
    else:
        print_lines([f"{name}, trial {record.number}, {record.recorded_at:%Y-%m-%d %H:%M:%S} UTC"])
        print_lines(trial_words(record, outcome, confirmed, op_of(of.problems[0])))
    if document is None and profiled is not None:
        print_table(profile_table(profiled), as_json=False)


def trial_and_study(trial: str | None, study: str | None) -> tuple[int | None, str | None]:
    """What is meant where a trial's number may be left out before a study. Raises InputError."""
    if trial is None:
        return None, study
    if trial.isdecimal() and len(trial) <= len(str(MOST)):
        return int(trial), study
    if study is not None or trial.isdecimal():
        raise InputError(f"{trial} is not the number of a trial; `autotuner trials` lists them")
    return None, trial


@takes(one_study)
def explain(of: OneStudy, as_json: JsonOption = False) -> None:
    """What a study has shown: what matters, what is rejected where, what is left.

    It builds nothing.
    """
    from autotuner.views import beliefs_text
    from autotuner.views.beliefs import kept_beliefs

    with of as (store, study):
        found = kept_beliefs(store, study)
    if as_json:
        print_json(json_of(found))
    else:
        for table in beliefs_text.tables(found):
            print_table(table, as_json)
        print_lines(beliefs_text.lines(found))


Named = Annotated[str, typer.Argument(metavar="STUDY", help="a study, by name or unique prefix")]


def compare(first: Named, second: Named, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Two studies, such as those of two devices, by the variants that both have judged."""
    from autotuner.tuning.compared import comparison
    from autotuner.tuning.finals import standings
    from autotuner.views.figure_tables import comparison_table

    with stored(store) as opened:
        one, other = named(opened, first), named(opened, second)
        if one == other:
            raise InputError(f"{first} and {second} are the same study; name another one")
        best = standings.quoted(opened, one), standings.quoted(opened, other)
        table = comparison_table((one, other), comparison(opened, one, other), best)
    print_table(table, as_json, {"first": one, "second": other, **table.json()[0]}, in_full=True)
