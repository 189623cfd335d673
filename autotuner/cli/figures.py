"""Figures of studies: history, costs, coverage, comparison, baselines. They judge nothing and build nothing."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from autotuner.cli.options import JsonOption, StoreOption, StudyName, open_store
from autotuner.cli.output import json_of, out, print_json, print_lines
from autotuner.values.errors import InputError

Named = Annotated[str, typer.Argument(metavar="STUDY", help="a study, by name or unique prefix")]


def history(study: StudyName = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """The best so far over time, trials and seconds: a line for each trial that was better than all before."""
    from autotuner.store import figures, queries
    from autotuner.tuning import standings
    from autotuner.views import figure_tables

    with closing(open_store(store)) as opened:
        name = queries.resolve_study(opened, study)
        found, confirmed = figures.history(opened, name), standings.every_confirmed(opened, name)
    if as_json:
        print_json([json_of(each) for each in found])
    else:
        out.print(figure_tables.history_table(found, confirmed))


def costs(study: StudyName = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """What a study's trials cost, by verdict and stage; how many are judged in an hour."""
    from autotuner.store import figures, queries
    from autotuner.views import figure_tables

    with closing(open_store(store)) as opened:
        found = figures.costs(opened, queries.resolve_study(opened, study))
    if as_json:
        print_json(json_of(found))
    else:
        out.print(figure_tables.costs_table(found))


def coverage(study: StudyName = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """How much of its space a study has judged, and how often each value of each parameter."""
    from autotuner.store import queries
    from autotuner.tuning import covered
    from autotuner.views import figure_tables

    with closing(open_store(store)) as opened:
        found = covered.coverage(opened, queries.resolve_study(opened, study))
    if as_json:
        print_json(json_of(found))
    else:
        out.print(figure_tables.coverage_table(found))


def compare(first: Named, second: Named, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Two studies, such as those of two devices, by the variants that both have judged."""
    from autotuner.store import figures, queries
    from autotuner.tuning import standings
    from autotuner.views import figure_tables

    with closing(open_store(store)) as opened:
        names = queries.resolve_study(opened, first), queries.resolve_study(opened, second)
        if names[0] == names[1]:
            raise InputError(f"{first} and {second} are the same study; name another one")
        found = figures.comparison(opened, *names)
        best = standings.quoted(opened, names[0]), standings.quoted(opened, names[1])
    if as_json:
        print_json({"first": names[0], "second": names[1], **json_of(found)})
    else:
        print_lines(figure_tables.comparison_lines(names, found, best))


def baselines(study: StudyName = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """What the baselines took each time that a driver started on a study."""
    from autotuner.store import figures, queries
    from autotuner.views import figure_tables

    with closing(open_store(store)) as opened:
        found = figures.baselines(opened, queries.resolve_study(opened, study))
    if as_json:
        print_json([json_of(each) for each in found])
    else:
        out.print(figure_tables.baselines_table(found))
