"""Commands that tune: a sweep, its finals, and a variant timed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from autotuner.cli.options import (
    FINALS_MINUTES,
    MOST,
    AnySpaceName,
    CalmOption,
    ColdOption,
    ConvergedOption,
    FinalsMinutes,
    FinalsOption,
    JsonOption,
    LikeOption,
    PatienceOption,
    ProblemOption,
    ProblemsOption,
    SamplerOption,
    SeedOption,
    StoreOption,
    StudyName,
    ThreadsOption,
    open_store,
)
from autotuner.cli.output import err, json_of, out, print_json, say_waiting, say_where_the_gate_is_looser
from autotuner.values import config
from autotuner.values.errors import InputError, Stopped
from autotuner.values.files import regular_target, write_atomically

if TYPE_CHECKING:
    from autotuner.run.executor import Executor
    from autotuner.store import FinalsRecord, Store
    from autotuner.tuning.driver import Event
    from autotuner.tuning.finals import Step
    from autotuner.tuning.plan import Start
    from autotuner.tuning.workbench import Workbench
    from autotuner.values.sweep import SweepRequest
    from autotuner.views.finals_progress import FinalsProgress
    from autotuner.views.progress import Progress


def tune(
    space: AnySpaceName = None,
    problem: ProblemOption = None,
    problems: ProblemsOption = None,
    trials: Annotated[
        int, typer.Option(min=1, max=MOST, help="stop when the study has judged this number of variants")
    ] = 60,
    minutes: Annotated[
        float,
        typer.Option(
            min=0.01, help="stop this run after this number of minutes; what would be judged later is not begun"
        ),
    ] = float("inf"),
    sampler: SamplerOption = "evolution",
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    like: LikeOption = None,
    cold: ColdOption = False,
    store: StoreOption = None,
    devices: Annotated[str | None, typer.Option(help="GPUs of one model: cuda:0,cuda:1 or all")] = None,
    until_converged: ConvergedOption = False,
    final: FinalsOption = True,
    finals_minutes: FinalsMinutes = 2.0,
    output: Annotated[Path, typer.Option("--out", help="where to write the best configuration")] = Path("best.json"),
    patience: PatienceOption = config.PATIENCE_MINUTES,
    calm: CalmOption = False,
    cancels: Annotated[
        bool, typer.Option("--cancel-on-stop", help="where a worker has the device: Ctrl-C cancels instead of detaches")
    ] = False,
) -> None:
    """Runs a sweep, or goes on with one; ends with finals and a leaderboard, and writes the best configuration."""
    from autotuner.jobs import queue
    from autotuner.search.samplers import SAMPLERS
    from autotuner.store import Store
    from autotuner.tuning import workbench

    SAMPLERS.chosen(sampler)
    regular_target(output, "--out")
    files = workbench.load_spaces(space or workbench.default_space(), threads, problem or (), problems)
    if len(files) > 1:
        out.print(f"{len(files)} studies, one for each set of problems that one variant can serve")
    studies: list[str] = []
    with closing(Store.open(store or config.store_url())) as opened:
        for file in files:
            request = queue.request_for(
                [file],
                trials=trials,
                minutes=None if minutes == float("inf") else minutes / len(files),
                sampler=sampler,
                seed=seed,
                like=like,
                cold=cold,
                devices=devices,
                until_converged=until_converged,
                finals=final,
                finals_minutes=finals_minutes,
                patience_minutes=patience,
                calm=calm,
            )
            studies.append(_swept(opened, request, workbench.Workbench(file, devices=devices), cancels))
            _show(opened, studies[-1])
        _conclude(opened, studies, output)


def _swept(store: Store, request: SweepRequest, here: Workbench, cancels: bool) -> str:
    """The study of a sweep that ran here, or on the worker that has the device."""
    from autotuner.jobs import foreground

    server = foreground.server_of(store, request, foreground.served_names(here))
    if server is not None:
        asked = request.model_copy(update={"devices": server.devices})
        return _attach(store, asked, str(server.worker), cancels)
    shown = _Shown(here, request)
    with _says_what_is_kept(store, shown.progress):
        return foreground.run_here(store, request, here, shown)


@contextmanager
def _says_what_is_kept(store: Store, shown: Progress) -> Iterator[None]:
    """Turns Ctrl-C into what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if shown.study is None:
            raise Stopped("stopped before anything was judged; the same command starts again") from None
        kept = f"{shown.judged} judged variants of {shown.study} are kept in {store.label}"
        on = "the same command goes on, `autotuner finals` confirms the best so far, `autotuner best` shows it"
        raise Stopped(f"stopped: {kept}; {on if shown.judged else 'the same command goes on'}") from None


def _attach(store: Store, request: SweepRequest, server: str, cancels: bool) -> str:
    """Has the worker that serves the device do it, before all else, and shows it; its study."""
    from autotuner.cli.sweeps import show_until_over
    from autotuner.jobs import queue

    number = queue.submit(store, request, priority=queue.TOP).sweep.id
    on_stop = "cancels it" if cancels else "leaves it running; `autotuner watch` shows it again"
    try:
        out.print(f"{server} has the device: this is its sweep {number} now, before all others. Ctrl-C {on_stop}.")
        show_until_over(store, number)
    except KeyboardInterrupt:
        if cancels:
            queue.cancel(store, number)
            raise Stopped(f"sweep {number} is cancelled; its study keeps what was judged") from None
        raise Stopped(f"sweep {number} goes on; `autotuner watch {number}` shows it again") from None
    found = queue.resolve(store, number)
    if not found.studies or found.state != "done":
        raise InputError(f"sweep {number} is {found.state}: {found.detail or 'see `autotuner logs`'}")
    return found.studies[0]


class _Shown:
    """Shows a sweep in the terminal."""

    def __init__(self, here: Workbench, request: SweepRequest) -> None:
        from autotuner.views import progress

        seconds = float("inf") if request.minutes is None else 60 * request.minutes
        self._finals_s = 60 * request.finals_minutes
        finals_s = self._finals_s if request.finals else 0.0
        where = (here.space, here.device, here.conditions)
        self.progress = progress.Progress(out, *where, request.trials, seconds, finals_s)
        self._finals: FinalsProgress | None = None
        self._is_searching = False

    def begins(self, here: Workbench, start: Start, study: str) -> None:
        self.progress.__enter__()
        self._is_searching = True
        self.progress.starts_from(start)

    def confirms(self) -> None:
        from autotuner.views.finals_progress import FinalsProgress

        self._finals = FinalsProgress(out, self._finals_s)
        self._finals.__enter__()

    def hears(self, event: Event | Step) -> None:
        from autotuner.tuning.calm import Waiting
        from autotuner.tuning.finals import Step

        if self._is_searching and not isinstance(event, Step):
            self.progress.hear(event)
        elif self._finals is not None and isinstance(event, Step | Waiting):
            self._finals.hear(event)
        elif isinstance(event, Waiting):
            say_waiting(event)
        elif isinstance(event, Step):
            out.print(f"finals: {event.text}", style="yellow")

    def ends(self) -> None:
        if self._is_searching:
            self.progress.__exit__(None, None, None)
        elif self._finals is not None:
            self._finals.__exit__(None, None, None)
        self._is_searching, self._finals = False, None


def _finals(
    store: Store,
    study: str,
    here: Workbench,
    executor: Executor,
    minutes: float,
    patience: float,
    to: Console = out,
) -> FinalsRecord:
    from autotuner.views.finals_progress import FinalsProgress

    with FinalsProgress(to, 60 * minutes) as shown:
        return here.finals(store, study, executor, shown.hear, 60 * minutes, 60 * patience).run()


def finals(
    study: StudyName = None,
    minutes: Annotated[float, typer.Option("--minutes", min=0.01, help=FINALS_MINUTES)] = 2.0,
    store: StoreOption = None,
    as_json: JsonOption = False,
    patience: PatienceOption = config.PATIENCE_MINUTES,
) -> None:
    """Confirms the best variants of a study in fresh processes, on fresh inputs, against the winner's curse.

    Can be run again later, and on another machine with the same device and a copy of the store.
    """
    from autotuner.store import queries
    from autotuner.tuning import workbench
    from autotuner.views.finals_table import finals_table

    with closing(open_store(store)) as opened:
        name = queries.resolve_study(opened, study)
        of = queries.study(opened, name)
        here = workbench.of_study(of)
        with here.held(60 * patience, say_waiting), closing(here.executor()) as executor:
            found = _finals(opened, name, here, executor, minutes, patience, err if as_json else out)
    if as_json:
        print_json(json_of(found))
    else:
        out.print(finals_table(found, of.problems[0]))


def _show(store: Store, study: str) -> None:
    """The leaderboard."""
    from autotuner.store import queries
    from autotuner.tuning import standings
    from autotuner.views.leaderboard import disturbed_line, leaderboard_table

    out.print(leaderboard_table(standings.leaderboard(store, study, 10), queries.study(store, study)))
    disturbed = queries.disturbed(store, study)
    if disturbed:
        out.print(disturbed_line(disturbed))
    if standings.best(store, study) is None:
        out.print(f"No variant of {study} was measured to the end; see `autotuner status`.")


def _conclude(store: Store, studies: Sequence[str], output: Path) -> None:
    """The best configuration of the first study that has one in its file, with a table over all that have finals."""
    from autotuner.serve.best import FORMATS
    from autotuner.serve.table import table_of
    from autotuner.store import queries
    from autotuner.tuning import standings
    from autotuner.views.table_words import table_words
    from autotuner.views.trial_words import chosen_because

    found = [(study, best) for study in studies if (best := standings.best(store, study)) is not None]
    if not found:
        return
    confirmed = [study for study, best in found if best.finals is not None]
    table = None
    try:
        table = table_of(store, confirmed) if confirmed else None
    except InputError as error:  # the best configuration is worth its file all the same
        out.print(f"{output} has no table of what serves which problem: {error}", style="yellow")
    study, best = found[0]
    write_atomically(output, FORMATS["json"].text(best, queries.study(store, study), table))
    out.print(f"{output} has trial {best.entry.number} of {study}: {chosen_because(best)}.")
    if table is not None and len(table.entries) > 1:
        out.print(table_words(table))
    for _, each in found:
        say_where_the_gate_is_looser(each)


def race(
    study: StudyName = None,
    trial: Annotated[
        int | None, typer.Option(min=0, max=MOST, help="another trial that has a latency, by its number")
    ] = None,
    itself: Annotated[bool, typer.Option("--aa", help="against a second load of the same library")] = False,
    blocks: Annotated[int, typer.Option(min=6, max=10**6, help="interleaved blocks")] = 60,
    store: StoreOption = None,
    as_json: JsonOption = False,
    patience: PatienceOption = config.PATIENCE_MINUTES,
) -> None:
    """Times the best variant again, or that of --trial, in a fresh process: against the baseline or, with --aa, itself.

    An honest stopwatch names no winner of an A/A race.
    """
    from autotuner.tuning import race_again
    from autotuner.views.words import over_words

    with closing(open_store(store)) as opened:
        result = race_again.race(
            opened, study, itself, blocks, trial, lambda here: here.held(60 * patience, say_waiting)
        )
    if as_json:
        print_json({**json_of(result), "winner": result.winner})
        return
    found, over = result.speedup, over_words(len(result.problems), result.objective)
    out.print(str(result.variant))
    out.print(
        f"{found.median:.4f}x {result.against}, 95 % interval {found.low:.4f} to {found.high:.4f}, "
        f"{result.blocks} blocks; {f'faster: {result.winner}' if result.winner else 'no winner'}. {over}".rstrip()
    )
