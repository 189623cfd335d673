"""The command that tunes: a sweep here, or on the worker that has the device."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psutil
import typer

from autotuner.cli.options import AskedSweep, StoreOption, stored, takes
from autotuner.cli.output import out, print_lines, say_remark, say_reservations, say_waiting
from autotuner.cli.study import print_leaderboard
from autotuner.values import config
from autotuner.values.errors import InputError, NoStoreError, Stopped
from autotuner.values.files import regular_target

if TYPE_CHECKING:
    from autotuner.jobs.sweep_run import TimeSpent
    from autotuner.store import Store
    from autotuner.tuning.finals.retrials import Step
    from autotuner.tuning.run.driver import Event, Started
    from autotuner.tuning.run.plan import Start
    from autotuner.tuning.workbench import Workbench
    from autotuner.values.sweep import SweepRequest
    from autotuner.views.progress import FinalsProgress, Progress

ENDING_S = 2.0
"""Seconds for what comes after the last study."""
SHORTEST = 0.01
"""Minutes that a sweep has at least."""


@takes(AskedSweep)
def tune(
    wanted: AskedSweep,
    output: Annotated[Path, typer.Option("--out", help="where to write the best configuration")] = Path("best.json"),
    cancels: Annotated[
        bool, typer.Option("--cancel-on-stop", help="where a worker has the device: Ctrl-C cancels instead of detaches")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what there is to gain and how long it takes, and tune nothing")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Searches for the fastest right variant, or goes on with a search; confirms the best and writes it to a file.

    A search is a sweep of a space: it builds, checks and times one variant after the other, and its results are kept in
    a study. The same command goes on where one was stopped.
    """
    from autotuner.tuning import workbench

    began = time.monotonic() - (time.time() - psutil.Process().create_time())
    files = workbench.with_baselines(workbench.load_spaces(*wanted.source), wanted.baseline or ())
    if len(files) > 1:
        out.print(f"{len(files)} studies, one for each set of problems that one variant can serve")
    if not dry_run:
        regular_target(output, "--out")
        workbench.begin_imports(files[0])
    from autotuner.store import Store

    requests = [wanted.request(file, share=len(files)) for file in files]
    benches = [workbench.Workbench(file, devices=wanted.devices) for file in files]
    with _found(store) as there:  # a wrong wish makes no store
        for here, request in zip(benches, requests, strict=True):
            for line in here.remarks:
                say_remark(line)
            if dry_run or request.start or request.like:
                here.start(there, request)
        if dry_run:
            _foretell(wanted, benches, requests, there)
            return
    studies: list[str] = []
    with Store.open(store or config.store_url()) as opened:
        for place, (here, request) in enumerate(zip(benches, requests, strict=True)):
            here.begin()
            studies.append(_swept(opened, _in_time(request, began, place, len(files)), here, cancels))
            print_leaderboard(opened, studies[-1], 10)
        _conclude(opened, studies, output)


def _foretell(
    wanted: AskedSweep, benches: Sequence[Workbench], requests: Sequence[SweepRequest], store: Store | None
) -> None:
    """What tuning promises, before it."""
    from autotuner.ops import op_of
    from autotuner.serve.record import Called, microseconds
    from autotuner.spaces.problem_files import problems_in, share_of_model
    from autotuner.tuning.foresight import Foresight, foresee, search_s
    from autotuner.views import foresight_words

    op, recorded = op_of(benches[0].conditions.compiled_for), wanted.source[-1]
    weights, share = (dict(problems_in(recorded, op.name)), share_of_model(recorded)) if recorded else ({}, None)
    found, seconds, who = list[Foresight](), 0.0, ""
    for here, request in zip(benches, requests, strict=True):
        who = who or here.who_disturbs()
        mine = list(foresee(here, store, lambda *call: microseconds(Called(*call)), weights))
        us = sum(each.us or each.bound_us for each in mine)
        takes_s = search_s(here, store, us, request.trials) + request.finals_s
        seconds += min(takes_s, 60 * (request.minutes or math.inf))
        found += mine
    print_lines([foresight_words.busy_line(who), *foresight_words.lines(found, op.words.baseline, share, seconds)])


def _found(store: str | None) -> AbstractContextManager[Store | None]:
    """The store, if there is one."""
    try:
        return stored(store)
    except NoStoreError:
        return nullcontext()


def _in_time(request: SweepRequest, began: float, place: int, of: int) -> SweepRequest:
    """The request with its share of the minutes that are left; all of them began with the process, at that moment."""
    if request.minutes is None:
        return request
    left = of * request.minutes - (time.monotonic() - began + ENDING_S) / 60
    return request.model_copy(update={"minutes": max(SHORTEST, left / (of - place))})


def _swept(store: Store, request: SweepRequest, here: Workbench, cancels: bool) -> str:
    """The study of a sweep that ran here, or on the worker that has the device."""
    from autotuner.devices import device_names
    from autotuner.jobs.outlook import server_of
    from autotuner.jobs.sweep_run import Listener, run_here

    server = server_of(store, request, device_names(here.device.backend, here.chosen))
    if server is not None:
        worker, devices = server
        return _attach(store, request.model_copy(update={"devices": devices}), str(worker), cancels)
    shown = _Shown(here, request, store)
    with _says_what_is_kept(store, shown.progress):
        listener = Listener(shown.hears, shown.begins, shown.confirms, shown.ends)
        return run_here(store, request, here, listener)


@contextmanager
def _says_what_is_kept(store: Store, shown: Progress) -> Iterator[None]:
    """Turns Ctrl-C into what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if shown.study is None:
            raise Stopped("stopped before anything was judged; the same command starts again") from None
        kept = f"{shown.judged} judged variant{'s' * (shown.judged != 1)} kept of {shown.study} in {store.label}"
        on = "the same command goes on, `autotuner finals` confirms the best so far, `autotuner show` shows it"
        raise Stopped(f"stopped: {kept}; {on if shown.judged else 'the same command goes on'}") from None


def _attach(store: Store, request: SweepRequest, server: str, cancels: bool) -> str:
    """Has the worker that serves the device do it, before all else, and shows it; its study."""
    from autotuner.cli.sweeps import show_until_over
    from autotuner.jobs import queue

    number = queue.submit(store, request, priority=queue.TOP)[0][0].id
    on_stop = "cancels it" if cancels else "leaves it running; `autotuner sweep watch` shows it again"
    try:
        out.print(f"{server} has the device: this is its sweep {number} now, before all others. Ctrl-C {on_stop}.")
        show_until_over(store, [number])
    except KeyboardInterrupt:
        if cancels:
            queue.cancel(store, number)
            raise Stopped(f"sweep {number} is cancelled; its study keeps what was judged") from None
        raise Stopped(f"sweep {number} goes on; `autotuner sweep watch {number}` shows it again") from None
    found = queue.resolve(store, number)
    if found.study is None or found.state != "done":
        raise InputError(f"sweep {number} is {found.state}: {found.detail or 'see `autotuner sweep logs`'}")
    return found.study


class _Shown:
    """Shows a sweep in the terminal: the search, then its finals."""

    def __init__(self, here: Workbench, request: SweepRequest, store: Store) -> None:
        from autotuner.views import progress

        self._here, self._request, self._store = here, request, store
        seconds = float("inf") if request.minutes is None else 60 * request.minutes - request.finals_s
        where = (here.space, here.device, here.conditions)
        self.progress = progress.Progress(out, *where, request.trials, seconds, request.finals_s)
        self._now: Progress | FinalsProgress | None = None

    def begins(self, start: Start, study: str) -> None:
        self._now = self.progress.__enter__()
        self.progress.starts_from(start)

    def confirms(self, seconds: float) -> None:
        from autotuner.views.progress import FinalsProgress

        self._now = FinalsProgress(out, seconds).__enter__()

    def hears(self, event: Event | Step | TimeSpent) -> None:
        from autotuner.jobs.sweep_run import TimeSpent
        from autotuner.tuning.finals.retrials import Step
        from autotuner.tuning.run.driver import Started
        from autotuner.tuning.run.waiting import Waiting

        if isinstance(event, TimeSpent):
            out.print(event.words)
        elif isinstance(event, Step) and self._now in (None, self.progress):
            out.print(f"finals: {event.text}", style="yellow")
        elif self._now is not None:
            self._now.hear(event)  # type: ignore[arg-type]  # of the search to who shows that, else of finals
            if isinstance(event, Started) and self._request.minutes is None:
                self._say_how_long(event)
        elif isinstance(event, Waiting):
            say_waiting(event)

    def _say_how_long(self, event: Started) -> None:
        """An estimate before the first build, where no --minutes says when all is over."""
        from autotuner.tuning.foresight import search_s
        from autotuner.views.words import about

        found, left = event.calibration, max(0, self._request.trials - event.judged)
        pinned = [*zip(self._here.conditions.problems, found.baselines, strict=True)]
        us = sum(each.median_us for each in found.timings if (each.problem, each.backend) in pinned)
        takes_s = search_s(self._here, self._store, us, left) + self._request.finals_s
        out.print(f"It takes about {about(takes_s)} in all; --minutes ends it earlier.")

    def ends(self) -> None:
        if self._now is not None:
            self._now.__exit__(None, None, None)
        self._now = None


def _say_that_nothing_wins(store: Store, study: str, output: Path, serves: bool) -> None:
    """What serves the problems instead, what was tried, and how much room there is. `serves`: finals have said so, and
    the file is a table that has torch serve."""
    from autotuner.views.beliefs import branches_of, room_of
    from autotuner.views.beliefs_text import branch_lines, room_lines

    rooms = room_of(store, study)
    baselines = " and ".join(dict.fromkeys(each.baseline for each in rooms))
    problems = ", ".join(str(each.problem) for each in rooms)
    if serves:
        out.print(f"Nothing here is shown to beat {baselines} at {problems}; {output} serves {baselines}.")
    else:
        tried = f"Nothing that was tried so far is shown to be faster than {baselines} at {problems}"
        out.print(f"{tried}; {output} has the fastest of it, which nothing loads. The same command goes on.")
    print_lines([*branch_lines(branches_of(store, study)), *room_lines(rooms)])


def _conclude(store: Store, studies: Sequence[str], output: Path) -> None:
    """The best configuration of the first study that has one in its file, with a table over all that have finals."""
    from autotuner.serve.best import export
    from autotuner.store import queries
    from autotuner.tuning.finals import standings
    from autotuner.views.trial_words import chosen_because, table_words

    found = [(study, best) for study in studies if (best := standings.best(store, study)) is not None]
    for study in sorted({*studies} - {study for study, _ in found}):
        more = "" if queries.judged_count(store, study) else ": more --minutes may help"
        out.print(f"{output} is not written for {study}{more}.")
    if not found:
        raise typer.Exit(1)
    study, best = found[0]
    made = export(store, study, [study for study, each in found if each.finals is not None], output)
    if made.without is not None:  # the best configuration is worth its file all the same
        out.print(f"{output} has no table of what serves which problem: {made.without}", style="yellow")
    serves = made.table is not None and all(each.use is None for each in made.table.entries)
    if serves or (made.table is None and (best.confirmed or best.entry.speedup).mid <= 1):
        _say_that_nothing_wins(store, study, output, serves)
    else:
        out.print(f"{output} has trial {best.entry.number} of {study}: {chosen_because(best)}.")
        confirm = f"`autotuner finals {study}` confirms it within some minutes"
        how = confirm if made.table is None else f'`autotuner.load("{output}")` serves it in Python'
        out.print(f"{how}; `autotuner show` says more of it.")
    if made.table is not None and len(made.table.entries) > 1:
        out.print(table_words(made.table))
    say_reservations(*(each for _, each in found))
