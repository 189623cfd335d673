"""The command line. Only this module speaks to people: the others return values or raise."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console

from autotuner import __version__
from autotuner.values import config
from autotuner.values.errors import AutotunerError, InputError

app = typer.Typer(
    name="autotuner",
    help="Finds the fastest correct variant of a kernel for one device and one set of shapes, and proves it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
space_app = typer.Typer(help="Search spaces.", no_args_is_help=True)
app.add_typer(space_app, name="space")
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 180)
err = Console(stderr=True, highlight=False, soft_wrap=True)

SpaceName = Annotated[str, typer.Argument(help="a space file, or the name of one that is shipped")]
StudyName = Annotated[str | None, typer.Argument(help="a study, by name or unique prefix; the latest when left out")]
StoreOption = Annotated[str | None, typer.Option("--store", help=f"path or URL of the study store [${config.STORE}]")]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="threads both sides may use, instead of the file's")]
ArchOption = Annotated[
    str | None, typer.Option("--arch", help="GPU architecture, such as sm_89, instead of that of the GPU here")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]


def run() -> None:
    """Runs a command; errors become one line, exit code 2 for what the user can mend, 3 for what is ours."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except InputError as error:
        _fail(str(error), 2)
    except AutotunerError as error:
        _fail(str(error), 3)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _fail(f"no space left on the disk ({error.filename or tempfile.gettempdir()}); free some and run it again", 2)
    except KeyboardInterrupt:
        _fail("stopped; nothing is lost: the same command goes on where this one was", 130)
    except BrokenPipeError:  # the reader of our output, `head` for one, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _fail(message: str, code: int) -> None:
    err.print(f"autotuner: {' '.join(message.split())}", style="red" if err.is_terminal else None, markup=False)
    sys.exit(code)


def _print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=1, sort_keys=False))


def _dump(model: Any) -> Any:
    """A model as JSON-ready data, with infinite and missing numbers as null."""
    return json.loads(model.model_dump_json(), parse_constant=lambda _: None)


# Spaces -----------------------------------------------------------------------------------------------------------


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="print the version and exit", is_eager=True)] = False,
) -> None:
    """Common options."""
    if show:
        typer.echo(f"autotuner {__version__}")
        raise typer.Exit


@space_app.command("list")
def space_list(as_json: JsonOption = False) -> None:
    """The spaces that are shipped."""
    from autotuner.build.family import find_limits
    from autotuner.spaces.space import SpaceFile

    files = [SpaceFile.load(path, find_limits) for path in sorted(config.spaces_dir().glob("*.toml"))]
    if as_json:
        _print_json([{"name": file.name, "backend": file.backend, "title": file.title} for file in files])
        return
    for file in files:
        out.print(f"{file.name:18} {file.backend:5} {file.title}", markup=False)


@space_app.command("show")
def space_show(
    space: SpaceName, threads: ThreadsOption = None, arch: ArchOption = None, as_json: JsonOption = False
) -> None:
    """Parameters of a space, its points on this machine, and what each constraint of file or family removes."""
    from autotuner.report import tables as views
    from autotuner.spaces.space import Space
    from autotuner.tuning import workbench as session

    file = session.load_space(space, threads)
    points = Space.enumerate(file, session.device_for(file, arch).facts)
    if as_json:
        _print_json(views.space_document(points))
    else:
        out.print(views.space_view(points))


@app.command()
def doctor(
    space: Annotated[str, typer.Option("--space", help="a space file, or the name of one that is shipped")],
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    seed: Annotated[int, typer.Option(help="seed of the points that are tried")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Finds dead knobs: parameters or values of a space that never change the program. Builds, but runs nothing."""
    from autotuner.report import tables as views
    from autotuner.spaces.dead_parameters import diagnose
    from autotuner.tuning import workbench as session

    here = session.Session(session.load_space(space, threads), arch)
    knobs = diagnose(here.space, here.build_all, seed)
    if as_json:
        _print_json([knob.model_dump() for knob in knobs])
    else:
        out.print(views.doctor_view(knobs))
    if any(knob.state in ("dead", "same values") for knob in knobs):
        raise typer.Exit(1)


# The sweep --------------------------------------------------------------------------------------------------------


@app.command()
def tune(
    space: Annotated[
        str | None, typer.Argument(help="a space file or name; this machine's default if left out")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="stop when the study has judged so many variants")] = 60,
    minutes: Annotated[float, typer.Option(min=0.01, help="stop this run after so many minutes")] = float("inf"),
    sampler: Annotated[str, typer.Option(help="evolution, random, tpe, nsga2, cmaes, gp or exhaustive")] = "evolution",
    seed: Annotated[int, typer.Option(help="seed of the sampler")] = 0,
    threads: ThreadsOption = None,
    like: Annotated[str | None, typer.Option("--from", help="start from this study, its best points first")] = None,
    cold: Annotated[bool, typer.Option("--cold", help="start without what related studies know")] = False,
    store: StoreOption = None,
    devices: Annotated[str | None, typer.Option(help="GPUs of one model: cuda:0,cuda:1 or all")] = None,
    until_converged: Annotated[
        bool, typer.Option("--until-converged", help="stop when what is left promises less than a tie")
    ] = False,
    final: Annotated[bool, typer.Option("--finals/--no-finals", help="confirm the best in fresh processes")] = True,
    output: Annotated[Path, typer.Option("--out", help="where to write the best configuration")] = Path("best.json"),
) -> None:
    """Runs a sweep, or goes on with one; ends with finals and a leaderboard, and writes the best configuration."""
    from autotuner.report import progress
    from autotuner.search.samplers import SAMPLERS
    from autotuner.store import Store
    from autotuner.tuning import workbench as session
    from autotuner.tuning.driver import Budget

    if sampler not in SAMPLERS:
        raise InputError(f"no sampler {sampler!r}; there are {', '.join(SAMPLERS)}")
    _check_writable(output)
    file = session.load_space(space or session.default_space(), threads)
    here = session.Session(file, devices=devices)
    with closing(Store.open(store or config.store_url())) as opened, closing(here.executor()) as executor:
        with progress.Progress(out, here.space, here.device, here.terms, trials, 60 * minutes) as shown:
            start = here.start(opened, sampler, like, cold)
            shown.starts_from(start)
            driver = here.driver(opened, executor, sampler, seed, shown.hear, start.first, start.lessons)
            driver.run(Budget(trials=trials, seconds=60 * minutes, until_converged=until_converged))
        if final:
            _confirm(opened, driver.name, here, executor)
        _conclude(opened, driver.name, output)


def _confirm(store: Any, study: str, here: Any, executor: Any) -> None:
    """The finals, unless those who would be in them were in the last ones. Without them the sweep's result stands."""
    from autotuner.tuning.finals import due

    if not due(store, study, here.default_digest):
        return
    try:
        _finals(store, study, here, executor)
    except AutotunerError as error:
        out.print(f"finals: not finished: {error}; `autotuner finals` tries again", style="yellow", markup=False)


def _finals(store: Any, study: str, here: Any, executor: Any, to: Console = out) -> Any:
    from autotuner.tuning.finals import Finals

    def say(step: Any) -> None:
        to.print(f"finals: {step.text}", markup=False)

    return Finals(store, study, here.terms, executor, here.device.environment, here.default_digest, say).run()


@app.command()
def finals(study: StudyName = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Confirms the best variants of a study in fresh processes, on fresh inputs, against the winner's curse.

    Can be run again later, and on another machine with the same device and a copy of the store.
    """
    from autotuner.report import tables as views
    from autotuner.spaces.space import SpaceFile
    from autotuner.store import queries
    from autotuner.tuning import workbench as session

    with closing(_open(store)) as opened:
        name = queries.resolve_study(opened, study)
        of = queries.study(opened, name)
        here = session.Session(SpaceFile.model_validate_json(of.space_document))
        session.require_same_device(of.device, here.device)
        with closing(here.executor()) as executor:
            found = _finals(opened, name, here, executor, err if as_json else out)
    if as_json:
        _print_json(_dump(found))
    else:
        out.print(views.finals_view(found))


def _check_writable(path: Path, option: str = "--out") -> None:
    """Refuses, before any work, a file that could not be written after it."""
    folder = path.resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{path}: its folder {folder} does not exist or cannot be written; choose another {option}")


def _conclude(store: Any, study: str, output: Path) -> None:
    """The leaderboard, and the best configuration in its file."""
    from autotuner.export.best import FORMATS, write_atomically
    from autotuner.report import tables as views
    from autotuner.store import queries

    out.print(views.leaderboard_view(queries.leaderboard(store, study, 10)))
    best = queries.best(store, study)
    if best is None:
        out.print(f"No variant of {study} was measured to the end; see `autotuner status`.", markup=False)
        return
    write_atomically(output, FORMATS["json"].render(best, queries.study(store, study)))
    out.print(f"Best configuration written to {output}; study {study}.", markup=False)
    _say_where_the_gate_is_looser(best)


def _say_where_the_gate_is_looser(best: Any) -> None:
    """What the family's kernel.toml takes away from the proof."""
    for reason in best.outcome.gate.policy.looser:
        out.print(f"The family's kernel.toml loosens the gate: {reason}", style="yellow", markup=False)


@app.command()
def race(
    study: StudyName = None,
    itself: Annotated[bool, typer.Option("--aa", help="against a second load of the same library")] = False,
    blocks: Annotated[int, typer.Option(min=6, help="interleaved blocks")] = 60,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Times the best variant again in a fresh process, against SDPA or, with --aa, against itself.

    An honest stopwatch names no winner of an A/A race.
    """
    from autotuner.tuning.race_again import race_best

    with closing(_open(store)) as opened:
        result = race_best(opened, study, itself, blocks)
    if as_json:
        _print_json({**_dump(result), "winner": result.winner})
        return
    ratio = result.ratio
    out.print(str(result.variant), markup=False)
    out.print(
        f"t_variant / t_opponent against {result.against}: {ratio.median:.4f} [{ratio.low:.4f}, {ratio.high:.4f}] over "
        f"{result.blocks} blocks; {f'faster: {result.winner}' if result.winner else 'no winner'}",
        markup=False,
    )


# The gate ---------------------------------------------------------------------------------------------------------


@app.command()
def gate(
    target: Annotated[
        str,
        typer.Argument(
            metavar="LIBRARY_OR_VARIANT",
            help='a built library, a build id, a trial\'s number, or parameters such as "IMPL=simd BLOCK_M=64"',
        ),
    ],
    space: Annotated[
        str | None, typer.Option(help="the space of the parameters, or whose problems to judge on")
    ] = None,
    study: Annotated[str | None, typer.Option(help="the study of the trial; the latest when left out")] = None,
    sanitize: Annotated[bool, typer.Option("--sanitize", help="G8 too: memory and race sanitizers")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Puts one built variant through the whole gate and explains the verdict. Exit code 1 when it is rejected."""
    from autotuner.report import tables as views
    from autotuner.report.trial_words import explain_gate
    from autotuner.tuning import gate_one as single

    judged = single.judge(single.subject(target, space, store or config.store_url(), study), sanitize)
    if as_json:
        _print_json(_dump(judged.report))
    else:
        out.print(views.gate_view(judged.report))
        for line in explain_gate(judged.outcome):
            out.print(line, markup=False)
    if judged.outcome.fault is not None:
        raise typer.Exit(1)


@app.command()
def reference(
    space: Annotated[
        str | None, typer.Argument(help="a space file or name; this machine's default if left out")
    ] = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """PyTorch's own SDPA backends against float64 on every case of the gate. Exit code 1 when one is out of it."""
    from autotuner.report import tables as views
    from autotuner.tuning import gate_one as single
    from autotuner.tuning import workbench as session

    here = session.Session(session.load_space(space or session.default_space(), threads))
    found = single.calibrate(here)
    if as_json:
        _print_json({"device": _dump(here.device), **_dump(found)})
    else:
        out.print(views.reference_view(found, here.device))
    if found.broken:
        raise typer.Exit(1)


# Questions --------------------------------------------------------------------------------------------------------


def _open(store: str | None) -> Any:
    from autotuner.store import Store

    return Store.open(store or config.store_url(), create=False)


@app.command()
def status(study: StudyName = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """How far each study is, and what was rejected for what."""
    from autotuner.report import tables as views
    from autotuner.store import queries

    with closing(_open(store)) as opened:
        if study is None:
            found = queries.studies(opened)
        else:
            found = (queries.summary(opened, queries.resolve_study(opened, study)),)
    if as_json:
        _print_json([_dump(summary) for summary in found])
    elif not found:
        out.print("No study yet: run `autotuner tune`.", markup=False)
    for summary in () if as_json else found:
        out.print(views.status_view(summary))


@app.command()
def leaderboard(
    study: StudyName = None,
    limit: Annotated[int, typer.Option(min=1, help="how many lines")] = 10,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """The fastest variants that passed the gate."""
    from autotuner.report import tables as views
    from autotuner.store import queries

    with closing(_open(store)) as opened:
        entries = queries.leaderboard(opened, queries.resolve_study(opened, study), limit)
    if as_json:
        _print_json([_dump(entry) for entry in entries])
    else:
        out.print(views.leaderboard_view(entries))


@app.command()
def best(study: StudyName = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """The fastest variant that was measured to the end."""
    from autotuner.report.trial_words import explain_best
    from autotuner.store import queries

    with closing(_open(store)) as opened:
        name = queries.resolve_study(opened, study)
        found = queries.best(opened, name)
    if found is None:
        raise InputError(f"{name} has no variant measured to the end yet; `autotuner status` shows why")
    if as_json:
        _print_json(_dump(found))
        return
    out.print(f"{name}, trial {found.entry.number}", markup=False)
    for line in explain_best(found):
        out.print(line, markup=False)


@app.command()
def show(
    number: Annotated[int, typer.Argument(metavar="TRIAL", help="a trial's number")],
    study: StudyName = None,
    report: Annotated[bool, typer.Option("--report", help="the gate's report as JSON")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """One trial: what it achieved, or why it was rejected, in words."""
    from autotuner.export.trial_report import trial_report
    from autotuner.report.trial_words import explain
    from autotuner.store import queries

    with closing(_open(store)) as opened:
        record = queries.trial(opened, queries.resolve_study(opened, study), number)
        of = queries.study(opened, record.study)
    if report:
        device = of.device.model_copy(update={"environment": record.session.environment})
        _print_json(_dump(trial_report(record.outcome, of.problems, device, record.session.calibration)))
        return
    if as_json:
        _print_json(_dump(record))
        return
    out.print(f"{record.study}, trial {record.number}, {record.recorded_at:%Y-%m-%d %H:%M:%S} UTC", markup=False)
    if record.revoked_at is not None:
        out.print(f"REVOKED: {record.revoked_reason}", markup=False)
    for line in explain(record.outcome):
        out.print(line, markup=False)


@app.command("explain")
def explain_study(
    study: StudyName = None,
    figure: Annotated[Path | None, typer.Option(help="draw the beliefs into this .svg file")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a study has taught: what matters, what is dead, what is rejected where, what is left. Builds nothing."""
    from autotuner.report import beliefs_figure as insight_figure
    from autotuner.report import beliefs_text as insight_view
    from autotuner.report.beliefs import insight
    from autotuner.store import queries

    if figure is not None:
        _check_writable(figure, "--figure")
    with closing(_open(store)) as opened:
        found = insight(opened, queries.resolve_study(opened, study))
    if figure is not None:
        insight_figure.draw(found, figure)
    if as_json:
        _print_json(_dump(found))
        return
    for line in insight_view.lines(found) + ([f"Drawn into {figure}."] if figure else []):
        out.print(line, markup=False)


@app.command()
def export(
    study: StudyName = None,
    kind: Annotated[str, typer.Option("--format", help="json")] = "json",
    output: Annotated[
        Path | None, typer.Option("--out", help="a file, - for standard output; the format's own name")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Writes the best configuration of a study, with its proof."""
    from autotuner.export.best import FORMATS, write_atomically
    from autotuner.store import queries

    if kind not in FORMATS:
        raise InputError(f"no format {kind!r}; there are {', '.join(FORMATS)}")
    with closing(_open(store)) as opened:
        name = queries.resolve_study(opened, study)
        found = queries.best(opened, name)
        if found is None:
            raise InputError(f"{name} has no variant measured to the end yet; `autotuner status` shows why")
        text = FORMATS[kind].render(found, queries.study(opened, name))
    target = output or Path(FORMATS[kind].filename)
    if as_json or str(target) == "-":
        typer.echo(text)
        return
    write_atomically(target, text)
    out.print(f"{name}, trial {found.entry.number}: written to {target}", markup=False)
    _say_where_the_gate_is_looser(found)
