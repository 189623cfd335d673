"""Commands on what was found: the best of a study timed and judged again, tried on other lengths and written; the gate
on any variant."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import (
    MOST,
    ArchOption,
    JsonOption,
    OneStudy,
    OneTrial,
    PatienceOption,
    ProblemOption,
    QuietOption,
    StoreOption,
    StudyName,
    ThreadsOption,
    named,
    one_study,
    one_trial,
    takes,
)
from autotuner.cli.output import (
    err,
    json_of,
    json_text,
    out,
    print_json,
    print_lines,
    print_table,
    say_doing,
    say_remark,
    say_reservations,
    say_waiting,
)
from autotuner.cli.serve import MISSING
from autotuner.values import codes, config
from autotuner.values.errors import InputError
from autotuner.values.files import regular_target, write_atomically
from autotuner.values.ratio import BIASED

if TYPE_CHECKING:
    from autotuner.store import Store
    from autotuner.tuning.workbench import Workbench
    from autotuner.views.beliefs import StudyBeliefs


@takes(one_study)
def finals(
    of: OneStudy,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.01, help="after which they end; if left out some 2")
    ] = None,
    trial: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST,
            help="only time this trial again, by its number: against the baseline or, with --aa, itself",
        ),
    ] = None,
    itself: Annotated[
        bool, typer.Option("--aa", help="only time one, the best or --trial, against a second load of its library")
    ] = False,
    blocks: Annotated[int, typer.Option(min=6, max=10**6, help="of --trial and --aa: interleaved blocks")] = 60,
    as_json: JsonOption = False,
    patience: PatienceOption = config.PATIENCE_MINUTES,
    quiet: QuietOption = 0.0,
) -> None:
    """Times the best variants of a study again, in fresh processes: the best of many looks better than it is.

    Can be run again later, and on another machine with the same device and a copy of the store. With --trial or --aa
    one variant is timed again in one fresh process, and nothing is recorded. An honest stopwatch names no winner where
    a library races itself.
    """
    from autotuner.store import queries
    from autotuner.tuning import again, workbench
    from autotuner.tuning.finals.finals import Finals
    from autotuner.tuning.run.waiting import wait_until_quiet
    from autotuner.values.sweep import FINALS_MINUTES
    from autotuner.views.finals_table import finals_table, race_table
    from autotuner.views.progress import FinalsProgress

    with of as (store, study):
        if trial is not None or itself:
            table = race_table(again.race(store, study, itself, blocks, trial, _held(patience)))
            print_table(table, as_json, table.json()[0], in_full=True)
            return
        here, seconds = workbench.of_study(queries.study(store, study)), 60 * (minutes or FINALS_MINUTES)
        with (
            here.held(60 * patience, say_waiting),
            closing(here.executor()) as executor,
            FinalsProgress(err if as_json else out, seconds) as shown,
        ):
            wait_until_quiet(here.who_disturbs, 60 * quiet, shown.hear, lambda: None)
            until = math.inf if minutes is None else time.monotonic() + seconds
            trials = here.retrials(store, study, executor, shown.hear, seconds, until=until)
            found = Finals(trials, here.default_digest).run()
    print_table(finals_table(found, here.conditions.problems[0]), as_json)


def _held(patience: float) -> Callable[[Workbench], AbstractContextManager[None]]:
    """How the device is taken: with a line for those who wait for what is built and timed then."""

    def held(here: Workbench) -> AbstractContextManager[None]:
        say_doing("building it, and looking at it in fresh processes")
        return here.held(60 * patience, say_waiting)

    return held


@takes(one_study)
def regress(
    of: OneStudy,
    last: Annotated[Path, typer.Argument(metavar="LAST.json", help="what `export` or `tune` wrote earlier")],
    blocks: Annotated[int, typer.Option(min=6, max=10**6, help="interleaved blocks of a process")] = 60,
    as_json: JsonOption = False,
    patience: PatienceOption = config.PATIENCE_MINUTES,
) -> None:
    """Races an earlier export, the best of a study now and the baseline: is anything slower than it was?

    Exit code 1 where today's best is slower by more than a tie, or the baseline moved, in two fresh processes. Nothing
    is recorded.
    """
    from autotuner.serve.best import earlier_of
    from autotuner.tuning import again
    from autotuner.views.finals_table import regression_table

    earlier = earlier_of(last)
    with of as (store, study):
        found = again.regress(store, study, earlier, blocks, _held(patience))
    print_table(regression_table(found), as_json, json_of(found))
    raise typer.Exit(1 if found.found else 0)


@takes(one_trial)
def profile(
    of: OneTrial,
    beside: Annotated[str | None, typer.Option("--beside", help="another baseline than it raced against")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="also a folder for files of ncu")] = None,
    as_json: JsonOption = False,
    patience: PatienceOption = config.PATIENCE_MINUTES,
) -> None:
    """Counts what the hardware does in a variant and in a baseline, and says what holds the variant back.

    It is kept beside the trial: `show`, the pages and bundles have it. Counters are no timings.
    """
    from autotuner.store import queries
    from autotuner.tuning import again
    from autotuner.tuning.finals import standings
    from autotuner.views.beliefs import acting
    from autotuner.views.profile_table import profile_table

    with of as (opened, name, number):
        best = standings.required_best(opened, name).record if number is None else None
        record = best or queries.trial(opened, name, number or 0)
        acts = acting(opened, name, record.outcome.variant)
        found = again.profile(opened, record, beside, acts, report, _held(patience))
    print_table(profile_table(found), as_json, json_of(found))


def gate(
    target: Annotated[
        str | None,
        typer.Argument(metavar="VARIANT", help='a trial\'s number, or parameters such as "IMPL=simd BLOCK_M=64"'),
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="judge the op's baselines in PyTorch against float64 instead")
    ] = False,
    space: Annotated[
        str | None, typer.Option(help="the space of the parameters, or whose problems to judge on")
    ] = None,
    problem: ProblemOption = None,
    study: Annotated[str | None, typer.Option(help="the study of the trial; the latest when left out")] = None,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="also under the memory and race sanitizers, rejected or not")
    ] = False,
    arch: ArchOption = None,
    threads: ThreadsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Puts one built variant through the gate, the checks that it is right, and explains the verdict.

    Exit code 1 when it is rejected. With --reference the op's baselines go through every case of the gate; exit code 1
    when one of them is out of its tolerance. With --arch only what needs no device is checked.
    """
    from autotuner.ops import op_of
    from autotuner.run.executor import ask, calibration
    from autotuner.run.jobs import CalibrationJob
    from autotuner.tuning import gate_one, workbench
    from autotuner.views import gate_tables
    from autotuner.views.trial_words import gate_words

    if (target is None) != reference:
        raise InputError("name a variant to judge, or give --reference for the baselines, and not both")
    if arch is not None and (sanitize or target is None):
        raise InputError("--arch needs no device, and --reference and --sanitize do: leave one out")
    if threads is not None and target is not None:
        raise InputError("--threads is for --reference: a variant has the threads of its space")
    if target is None:
        named = space or workbench.default_space(problem or ())
        here = workbench.Workbench(workbench.load_space(named, threads, problem or ()))
        say_doing(f"judging the baselines and timing them on {here.device.name}")
        with here.held(60 * config.PATIENCE_MINUTES, say_waiting), closing(here.executor()) as executor:
            found = calibration(ask(executor, CalibrationJob(conditions=here.conditions)))
        document = {"device": json_of(here.device), **json_of(found)}
        print_table(gate_tables.reference_table(found, here.device), as_json, document)
        raise typer.Exit(1 if found.broken else 0)
    subject = gate_one.subject(target, space, store or config.store_url(), study, arch, say_remark, problem or ())
    if arch is not None:
        judged = gate_one.without_device(subject)
    else:
        judged = gate_one.judge(subject, sanitize, listen=say_waiting, say=say_doing)
    if as_json:
        print_json(json_of(judged.report))
    else:
        op = op_of(judged.report.problems[0])
        print_table(gate_tables.checks_table(judged.report.checks, op, judged.report.looser), as_json)
        print_lines(gate_words(judged.outcome, op))
    fault = judged.outcome.fault
    raise typer.Exit(0 if fault is None or (arch is not None and fault.code == codes.INCOMPLETE) else 1)


# Written --------------------------------------------------------------------------------------------------------------


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
    from autotuner.views.trial_words import ranges_words

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
    from autotuner.views.trial_words import table_words

    form = best.FORMATS.chosen(kind, "html", "t4")
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
            text, what = f"{json_text(made)}\n", f"{(count := len(made['results']))} trial{'s' * (count != 1)} "
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
