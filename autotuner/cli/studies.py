"""Commands on whole studies of a store."""

import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from autotuner.cli.export import page_of
from autotuner.cli.options import (
    FINALS_MINUTES,
    JsonOption,
    OneStudy,
    PatienceOption,
    StoreOption,
    named,
    one_study,
    stored,
    takes,
)
from autotuner.cli.output import err, json_of, out, print_table, say_waiting
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.files import regular_target, why
from autotuner.values.versions import version_of

Meant = Annotated[str, typer.Argument(metavar="STUDY", help="a study, by name or unique prefix")]


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

    with stored(store) as opened:
        found = named(opened, study)
        whole_study.rename(opened, found, name)
    out.print(f"{found} is {name} now")


def note(study: Meant, text: str, store: StoreOption = None) -> None:
    """Notes something of a study, which lists and pages show; an empty text takes the note away."""
    from autotuner.store import notes

    with stored(store) as opened:
        found = named(opened, study)
        notes.annotate(opened, found, text)
    out.print(f"{found} has {'this note' if text else 'no note'} now")


def delete(
    study: Meant,
    yes: Annotated[bool, typer.Option("--yes", help="delete it; without, only say what would go")] = False,
    store: StoreOption = None,
) -> None:
    """Deletes a study with its trials, finals and times. Its builds stay until `cache prune`."""
    from autotuner.store import queries, whole_study

    with stored(store) as opened:
        found = named(opened, study)
        count = queries.revision(opened, found).trials
        if not yes:
            raise InputError(f"{found} has {count} trials, which nothing brings back: `--yes` deletes it")
        whole_study.remove(opened, found)
    out.print(f"{found} is deleted, with {count} trials")


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

    if bundle.is_bundle(what):
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
    of: OneStudy,
    output: Annotated[Path | None, typer.Option("--out", help="the file; STUDY.tar.gz")] = None,
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
    minutes: Annotated[float, typer.Option("--minutes", min=0.01, help=FINALS_MINUTES)] = 2.0,
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
