"""Commands on sweeps as jobs: asked for, listed, followed, paused, and worked on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.cli.options import MOST, AskedSweep, JsonOption, StoreOption, stored, takes
from autotuner.cli.output import out, print_json, print_table
from autotuner.values import config
from autotuner.values.errors import InputError, StoreError

if TYPE_CHECKING:
    from autotuner.jobs.outlook import Outlook
    from autotuner.jobs.worker import ServedDevices
    from autotuner.store import Store
    from autotuner.store.records import EventRecord, SweepRecord

AnySweep = Annotated[str | None, typer.Argument(metavar="SWEEP", help="number, key or name; the latest when left out")]
Sweeps = Annotated[list[str], typer.Argument(metavar="SWEEP...", help="numbers, keys or names")]
CACHE = "what the cache may take, such as 20G; the longest unused goes first"


@takes(AskedSweep)
def submit(
    wanted: AskedSweep,
    each: Annotated[
        bool, typer.Option("--each", help="a group: a sweep for each problem; they share the minutes")
    ] = False,
    priority: Annotated[int, typer.Option(min=-MOST, max=MOST, help="larger goes first")] = 0,
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="every day, such as 02:00; `sweep cancel` ends that")
    ] = None,
    regress: Annotated[
        bool, typer.Option("--regress", help="with --every: at the end, race the best of the night before")
    ] = False,
    name: Annotated[str | None, typer.Option(help="for people; the space's name when left out")] = None,
    key: Annotated[
        str | None, typer.Option(help="the same sweep under the same key is made once, however often it is asked for")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Asks for a sweep, which is what `tune` does; a worker does it later, or on another machine.

    The space is taken as it is now, whatever becomes of its file.
    """
    from autotuner.jobs import outlook, queue
    from autotuner.store import Store
    from autotuner.tuning import workbench
    from autotuner.views.sweep_tables import sweeps_document, sweeps_table

    loaded = workbench.load_spaces(*wanted.source, each=True) if each else (workbench.load_space(*wanted.source),)
    files = workbench.with_baselines(loaded, wanted.baseline or ())
    requests = [wanted.request(file, share=len(files), name=name, every=every, regress=regress) for file in files]
    with Store.open(store or config.store_url()) as opened:
        made, is_new = queue.submit(opened, *requests, priority=priority, key=key)
        found = [outlook.outlook(opened, sweep.id) for sweep in made]
    print_table(sweeps_table(found, whole=True), as_json, {**sweeps_document(found), "is_new": is_new}, in_full=True)
    if not (is_new or as_json):
        out.print("It was asked for before, under the same key.")


def list_sweeps(
    everything: Annotated[bool, typer.Option("--all", help="also those that are over")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """The queue: where each sweep is, what it has found, and why it waits."""
    from autotuner.jobs import outlook
    from autotuner.views.sweep_tables import sweeps_table

    with stored(store) as opened:
        table = sweeps_table(outlook.outlooks(opened, over=None if everything else 0))
    nothing = "Nothing is queued: `autotuner submit` asks for a sweep, `autotuner sweep list --all` lists those over."
    print_table(table, as_json, empty=nothing)


def watch(sweep: AnySweep = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Shows a sweep, or a group, until it is over or paused. Exit code 1 where not all of it is done with a result."""
    from autotuner.jobs import outlook, queue
    from autotuner.views.sweep_tables import sweeps_document, sweeps_table

    with stored(store) as opened:
        numbers = [each.id for each in queue.resolve_all(opened, sweep)]
        show_until_over(opened, numbers, as_json)
        found = [outlook.outlook(opened, number) for number in numbers]
    if as_json:
        print_line(sweeps_document(found))
    else:
        print_table(sweeps_table(found, whole=True), as_json, in_full=True)
    state = outlook.group_state(found)
    if state.is_over and state != "done":
        raise typer.Exit(1)


def show_until_over(opened: Store, numbers: Collection[int], as_json: bool = False) -> None:
    """Prints the events of sweeps until they are over or paused."""
    from autotuner.jobs.outlook import follow

    for event in follow(opened, numbers):
        _show_event(event, as_json)


def _show_event(event: EventRecord, as_json: bool) -> None:
    from autotuner.views.sweep_tables import event_line, events_table

    if as_json:
        print_line(events_table([event]).json()[0])
    else:
        out.print(event_line(event))


def print_line(document: object) -> None:
    """A document of JSON in one line, at once."""
    typer.echo(json.dumps(document))


def logs(
    sweep: AnySweep = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the sweep is over")] = False,
    last: Annotated[int | None, typer.Option("--last", "-n", min=1, max=MOST, help="how many of the latest")] = None,
    every: Annotated[bool, typer.Option("--every", help="of all sweeps and devices")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What happened to a sweep, a line an event; with --json a JSON document a line."""
    from autotuner.jobs import outlook, queue
    from autotuner.store import sweeps

    with stored(store) as opened:
        numbers = None if every else [each.id for each in queue.resolve_all(opened, sweep)]
        found = sweeps.events(opened, numbers, last=last)
        for event in found:
            _show_event(event, as_json)
        if follow:
            for event in outlook.follow(opened, numbers, found[-1].id if found else 0):
                _show_event(event, as_json)


def _asks(verb: str, says: str) -> Callable[..., None]:

    def command(sweep: Sweeps, store: StoreOption = None, as_json: JsonOption = False) -> None:
        from autotuner.jobs import queue

        _each(sweep, store, as_json, getattr(queue, verb))

    command.__name__, command.__doc__ = verb, says
    return command


pause = _asks("pause", "Has sweeps paused; what is in flight is judged after `resume`. The time does not count.")
resume = _asks("resume", "Puts paused sweeps back into the queue.")
cancel = _asks("cancel", "Ends sweeps. Their studies keep what was judged.")
TrialsOption = Annotated[int | None, typer.Option(min=1, max=MOST, help="judged variants, as of `submit`")]
MinutesOption = Annotated[float | None, typer.Option(min=0.01, max=1e6, help="of each, over all runs, as of `submit`")]


def _changes(verb: str, says: str) -> Callable[..., None]:
    def command(
        sweep: Sweeps,
        trials: TrialsOption = None,
        minutes: MinutesOption = None,
        priority: Annotated[int | None, typer.Option(min=-MOST, max=MOST, help="larger goes first")] = None,
        store: StoreOption = None,
        as_json: JsonOption = False,
    ) -> None:
        from autotuner.jobs import queue
        from autotuner.values.sweep import SweepChange

        wanted = SweepChange(trials=trials, minutes=minutes, priority=priority)
        _each(sweep, store, as_json, lambda opened, number: getattr(queue, verb)(opened, number, wanted))

    command.__name__, command.__doc__ = verb, says
    return command


set_budget = _changes(
    "change", "Gives sweeps that are not over another budget or priority; a worker goes on with that."
)
retry = _changes("retry", "Puts sweeps that are over back into the queue, with the budget they have left, or this one.")


def _each(wanted: list[str], store: str | None, as_json: bool, change: Callable[[Store, int], SweepRecord]) -> None:
    """Changes each sweep, and of a group those that it has a meaning for; shows what they are then. All are looked up
    before any is changed."""
    from autotuner.jobs import outlook, queue
    from autotuner.views.sweep_tables import sweep_line, sweeps_table

    found: list[Outlook] = []
    with stored(store) as opened:
        for group in [queue.resolve_all(opened, each) for each in wanted]:
            refused, before = None, len(found)
            for sweep in group:
                try:
                    found.append(outlook.outlook(opened, change(opened, sweep.id).id))
                except StoreError as error:
                    refused = error
            if refused is not None and len(found) == before:
                raise refused
    if as_json:
        print_json(sweeps_table(found).json())
    for each in () if as_json else found:
        out.print(sweep_line(each))


def worker(
    devices: Annotated[
        str | None, typer.Option(help="what it serves: a kind of device, or such as cuda:0,cuda:1; as tune if left out")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="hands back and ends then: 18:30, 2026-12-24T18:30, or 90m, 12h from now")
    ] = None,
    idle_exit: Annotated[bool, typer.Option("--idle-exit", help="end when nothing is left to do")] = False,
    ray: Annotated[
        str | None, typer.Option("--ray", metavar="ADDRESS", help="serve the nodes of this Ray cluster; such as auto")
    ] = None,
    cache: Annotated[str, typer.Option("--cache", help=CACHE)] = "20G",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Works on the sweeps of a store, one at a time, until it is told to end.

    SIGTERM and SIGUSR1 hand back what it works on within ten seconds.
    """
    from autotuner.cli.machine import size_in_bytes
    from autotuner.jobs.signals import Stopping, StopSignal

    def say(line: str) -> None:
        if as_json:
            print_line({"at": datetime.now(UTC).isoformat(timespec="seconds"), "text": line})
        else:
            out.print(f"{datetime.now(UTC):%H:%M:%S} {line}")

    stop = StopSignal()
    with stop.listening():  # before what takes long to import
        from autotuner.jobs.worker import Worker, open_patiently

        ends = None if until is None else moment(until, datetime.now().astimezone())
        limit = size_in_bytes(cache, "--cache")
        with _serving(devices, ray) as serves:
            try:
                opened = open_patiently(store or config.store_url(), say, stop, ends)
            except Stopping as stopping:
                say(f"stopped by {stopping}")
                return
            with opened:
                say(Worker(opened, serves, say, limit, stop).run(ends, idle_exit))


@contextmanager
def _serving(devices: str | None, address: str | None) -> Iterator[ServedDevices]:
    """What a worker serves: of this machine, or with an address of a Ray cluster. Raises InputError."""
    from autotuner.jobs import worker

    if address is None:
        yield worker.served(devices)
        return
    kinds = [kind for kind in worker.by_preference() if devices in (None, kind.name)]
    if not kinds:
        there = ", ".join(kind.name for kind in worker.by_preference())
        raise InputError(f"--devices {devices}: with --ray name a kind of device: {there}")
    try:
        from autotuner.run.ray_cluster import RayCluster
    except ImportError:
        raise InputError("--ray needs Ray: pip install 'kernel-autotuner[ray]'") from None
    with closing(RayCluster(address, [kind.unit for kind in kinds])) as cluster:
        kind = next(kind for kind in kinds if kind.unit == cluster.unit)
        yield worker.served_by(cluster, kind)


def moment(text: str, now: datetime) -> datetime:
    """The moment that is meant by a time of day, a date and time, or a span from now. Raises InputError."""
    span = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)\s*([smhd])", text)
    if span is not None:
        return now + timedelta(seconds=float(span[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[span[2]])
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}", text):
            found = datetime.strptime(text, "%H:%M").time()
            at = now.replace(hour=found.hour, minute=found.minute, second=0, microsecond=0)
            return at if at > now else at + timedelta(days=1)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise InputError(f"--until {text!r}: expected such as 18:30, 2026-12-24T18:30, 90m or 12h") from None
    return at if at.tzinfo is not None else at.astimezone()


# Devices -------------------------------------------------------------------------------------------------------------

Names = Annotated[list[str] | None, typer.Argument(metavar="DEVICE...", help="all in quarantine when left out")]


def devices(context: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """The devices that workers serve: who holds each, and which are in quarantine and why."""
    if context.invoked_subcommand is not None:
        return
    from autotuner.store import device_health
    from autotuner.views.sweep_tables import devices_table

    with stored(store) as opened:
        table = devices_table(device_health.every(opened))
    print_table(table, as_json, empty="No worker has served a device from this store: `autotuner worker` does.")


def devices_clear(
    context: typer.Context, device: Names = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Ends the quarantine of devices: they get sweeps again."""
    from autotuner.store import device_health

    before = context.parent.params if context.parent is not None else {}  # the options that stand before `clear`
    store, as_json = store or before.get("store"), as_json or before.get("as_json", False)
    with stored(store) as opened:
        known = device_health.every(opened)
        names = device or [each.name for each in known if each.health == "quarantined"]
        cleared = device_health.clear(opened, names)
    if as_json:
        print_json(list(cleared))
    else:
        out.print(f"Cleared: {', '.join(cleared)}." if cleared else "None of them is in quarantine.")
