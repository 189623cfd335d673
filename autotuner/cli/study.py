"""Commands on the studies of a store: questions, which judge and build nothing, and what is done with whole ones."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from autotuner.cli.best import page_of
from autotuner.cli.options import (
    MOST,
    JsonOption,
    OneStudy,
    OneTrial,
    PatienceOption,
    StoreOption,
    StudyName,
    named,
    one_study,
    one_trial,
    stored,
    takes,
)
from autotuner.cli.output import err, json_of, out, print_json, print_lines, print_table, say_doing, say_waiting
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.files import regular_target, why
from autotuner.values.versions import version_of

if TYPE_CHECKING:
    from autotuner.store import Store

Meant = Annotated[str, typer.Argument(metavar="STUDY", help="a study, by name or unique prefix")]


def status(
    study: StudyName = None,
    show: Annotated[
        Literal["history", "costs"] | None,
        typer.Option(help="of one study instead: the best so far over time, or what its trials cost"),
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
        print_leaderboard(store, study, limit, as_json)


def print_leaderboard(store: Store, study: str, limit: int, as_json: bool = False) -> None:
    """The leaderboard, and what was not counted because the machine was disturbed."""
    from autotuner.store import queries
    from autotuner.tuning.finals import standings
    from autotuner.views import leaderboard
    from autotuner.views.trial_words import none_passed
    from autotuner.views.words import LATER, numbers_words

    table = leaderboard.leaderboard(standings.leaderboard(store, study, limit), queries.study(store, study))
    print_table(table, as_json, empty=none_passed(study, queries.judged_count(store, study)))
    if (disturbed := queries.disturbed(store, study)) and not as_json:
        out.print(f"Not measured: trial {numbers_words(disturbed)}; {LATER}.")


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


@takes(one_trial)
def show(of: OneTrial, as_json: JsonOption = False) -> None:
    """One trial: what it achieved, or why it was rejected, in words.

    Without a number it is the one to use: the finals' choice, before any finals the fastest of the search.
    """
    from autotuner.store import queries
    from autotuner.tuning.finals import standings
    from autotuner.views.profile_table import profile_table
    from autotuner.views.trial_words import best_words, trial_words
    from autotuner.views.trials_table import trial_document

    with of as (opened, name, number):
        best = standings.required_best(opened, name) if number is None else None
        record = best.record if best is not None else queries.trial(opened, name, number or 0)
        if as_json:
            print_json(trial_document(opened, name, record.number))
            return
        at = "" if best is not None else f", {record.recorded_at:%Y-%m-%d %H:%M:%S} UTC"
        said = trial_words(opened, record) if best is None else best_words(best)
        profiled = queries.profile(opened, name, record.number)
    print_lines([f"{name}, trial {record.number}{at}", *said])
    if profiled is not None:
        print_table(profile_table(profiled), as_json=False)


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


def compare(first: Meant, second: Meant, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Two studies, such as those of two devices, by the variants that both have judged."""
    from autotuner.tuning.finals import standings
    from autotuner.views.figure_tables import comparison, comparison_table

    with stored(store) as opened:
        one, other = named(opened, first), named(opened, second)
        if one == other:
            raise InputError(f"{first} and {second} are the same study; name another one")
        best = standings.quoted(opened, one), standings.quoted(opened, other)
        table = comparison_table((one, other), comparison(opened, one, other), best)
    print_table(table, as_json, {"first": one, "second": other, **table.json()[0]}, in_full=True)


# Whole studies --------------------------------------------------------------------------------------------------------


def list_studies(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """The studies of a store, the most recently active first."""
    from autotuner.tuning.finals import standings
    from autotuner.views.studies_table import list_table

    with stored(store) as opened:
        table = list_table(standings.studies(opened))
    print_table(table, as_json, empty="No study yet: run `autotuner tune`.")


def rename(study: Meant, name: str, store: StoreOption = None) -> None:
    """Gives a study another name, so that `tune` on its space begins a new one."""
    from autotuner.store import whole_study

    with one_study(study, store) as (opened, found):
        whole_study.rename(opened, found, name)
    out.print(f"{found} is {name} now")


def note(study: Meant, text: str, store: StoreOption = None) -> None:
    """Notes something of a study, which lists and pages show; an empty text takes the note away."""
    from autotuner.store import whole_study

    with one_study(study, store) as (opened, found):
        whole_study.annotate(opened, found, text)
    out.print(f"{found} has {'this note' if text else 'no note'} now")


def delete(
    study: Meant,
    yes: Annotated[bool, typer.Option("--yes", help="delete it; without, only say what would go")] = False,
    store: StoreOption = None,
) -> None:
    """Deletes a study with its trials, finals and times. Its builds stay until `cache prune`."""
    from autotuner.store import queries, whole_study

    with one_study(study, store) as (opened, found):
        count = f"{(judged := queries.revision(opened, found).trials)} trial{'s' * (judged != 1)}"
        if not yes:
            raise InputError(f"{found} has {count}, which nothing brings back: `--yes` deletes it")
        whole_study.remove(opened, found)
    out.print(f"{found} is deleted, with {count}")


def copy(
    what: Annotated[str, typer.Argument(metavar="STUDY_OR_BUNDLE", help="a study, or a file of `bundle`")],
    to: Annotated[str | None, typer.Option("--to", help="the store it goes into; of a bundle, --store")] = None,
    builds: Annotated[
        bool, typer.Option("--builds", help="also the bundle's builds: machine code of whoever made it")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Copies a study into another store, or a bundle into this one; `tune` goes on with it and judges nothing twice."""
    from autotuner.serve import bundle
    from autotuner.store import Store, whole_study

    if what.endswith(".tar.gz") or Path(what).is_file():
        read = bundle.read(Path(what))
        with Store.open(to or store or config.store_url()) as target:
            name, count = bundle.bring(target, read, builds)
            out.print(f"{name} is in {target.label}{f', {count} builds in the cache' if builds else ''}")
        return
    if to is None or builds:
        raise InputError("--to names the store that a study goes into; --builds is for a bundle")
    with stored(store) as opened:
        data = whole_study.data_of(opened, named(opened, what))
    with Store.open(to) as target:
        out.print(f"{whole_study.add(target, data)} is in {target.label}")


@takes(one_study)
def bundle(
    of: OneStudy, output: Annotated[Path | None, typer.Option("--out", help="the file; STUDY.tar.gz")] = None
) -> None:
    """Writes a study as one file that travels: rows, sources, the finalists' builds, a page.

    The same study gives the same bytes.
    """
    from autotuner.serve import bundle as bundles

    with of as (opened, name):
        target = regular_target(output or Path(f"{name}.tar.gz"), "--out")
        made = bundles.write(opened, name, target, page_of(opened, name, "studies.db"))
    out.print(f"{name}: {len(made.files)} files, {target.stat().st_size:,} bytes, written to {target}")


def verify(
    path: Annotated[Path, typer.Argument(metavar="BUNDLE", help="a file of `bundle`")],
    minutes: Annotated[float, typer.Option("--minutes", min=0.01, help="minutes that finals should take")] = 2.0,
    python: Annotated[
        Path | None, typer.Option("--python", help="do it in this Python, such as one with another torch")
    ] = None,
    as_json: JsonOption = False,
    patience: PatienceOption = config.PATIENCE_MINUTES,
) -> None:
    """Does a bundle's study again here: builds the best, runs the gate with fresh seeds, times the finalists.

    Says whether bytes, gate, order of the variants and the ratio's interval hold, and what this machine cannot check;
    exit code 1 where one does not. Nothing is recorded.
    """
    from autotuner.serve import bundle as bundles
    from autotuner.store import Store, queries
    from autotuner.tuning import reproduced, workbench
    from autotuner.views.finals_table import reproduced_table

    found = bundles.read(path)
    if python is not None:
        raise typer.Exit(_verified_by(python, path, minutes, patience, as_json))
    heard = err if as_json else out
    with tempfile.TemporaryDirectory() as folder, Store.open(f"{folder}/studies.db") as store:
        name, _ = bundles.bring(store, found, builds=False)
        try:
            here = workbench.of_study(queries.study(store, name))
        except InputError as error:
            levels = reproduced.without_device(f"{folder}/studies.db", store, name, str(error))
        else:
            say_doing(f"building the best of {path.name} and judging it again")
            with here.held(60 * patience, say_waiting), closing(here.executor()) as executor:
                trials = here.retrials(store, name, executor, lambda step: heard.print(step.text), 60 * minutes)
                levels = reproduced.reproduce(trials, here.default_digest)
    torch = found.manifest.environment.get("torch", ""), version_of("torch")
    document = {"study": name, "device": found.manifest.device.name, "torch": [*torch]}
    print_table(reproduced_table(levels, torch), as_json, {**document, "levels": [json_of(each) for each in levels]})
    raise typer.Exit(1 if any(each.found == "differs" for each in levels) else 0)


def _verified_by(python: Path, bundle: Path, minutes: float, patience: float, as_json: bool) -> int:
    """The exit code of the same command of this autotuner in another Python. Raises InputError where that cannot be."""
    root = Path(__file__).parent.parent.parent
    options = ["--minutes", str(minutes), "--patience", str(patience), *(["--json"] if as_json else [])]
    command = [str(python.absolute()), "-m", "autotuner", "verify", str(bundle.absolute()), *options]
    try:
        return subprocess.run(command, cwd=root).returncode
    except OSError as error:
        raise InputError(f"--python {python}: {why(error)}; give the interpreter of an environment") from None
