"""Sweeps, their events and the devices that are served: for a terminal, a page and programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from autotuner.jobs.outlook import Outlook, group_state
from autotuner.jobs.queue import TOP
from autotuner.store.sweep_records import DeviceRecord, EventRecord, Holder
from autotuner.values.ratio import quoted
from autotuner.values.sweep import State
from autotuner.views.table import Column, Table, data, model_of, row_of
from autotuner.views.words import about, moment

MOODS = {State.RUNNING: "busy", State.DONE: "good", State.FAILED: "bad", State.PAUSED: "warn"}
"""How the chips of states look."""

PROCESS: list[Column[Holder]] = [
    data("host", str),
    data("pid", int),
    data("since", datetime),
    data("seen", datetime, "when it last said that it lives"),
    data("doing", str),
]
Process = model_of("Process", "A living process that has a sweep or a device.", PROCESS)

SWEEPS: list[Column[Outlook]] = [
    Column(
        "number",
        int,
        of=lambda e: e.sweep.id,
        head="sweep",
        reads=str,
        where="table",
        href=lambda e: f"/sweeps/{e.sweep.id}",
    ),
    data("key", str, "under which it can be asked for again without being made twice", lambda e: e.sweep.key),
    Column("name", str, of=lambda e: e.sweep.name, text=lambda e: _name(e), where="table"),
    data("group", int, "the first sweep of the group that it was asked for with; null: none", lambda e: e.sweep.group),
    data("backend", str, "the kind of device", lambda e: e.sweep.request.backend),
    Column(
        "problems",
        tuple[str, ...],
        of=lambda e: e.sweep.request.problems,
        head="problem",
        reads="; ".join,
        where="full",
    ),
    Column(
        "state",
        str,
        "queued, running, paused, done, cancelled or failed",
        lambda e: e.sweep.state.value,
        text=lambda e: state_words(e),
        where="table",
        look=lambda e: MOODS.get(e.sweep.state, ""),
    ),
    data(
        "asked_to",
        str,
        "pause or cancel: what its worker was asked to do and has not done yet",
        lambda e: None if e.sweep.wish is None else e.sweep.wish.value,
    ),
    Column("study", str, "null: not begun", lambda e: e.sweep.study, where="full"),
    Column("place", int, "among those that wait for the same workers, 1 the next; null: it waits not", where="table"),
    Column(
        "priority",
        int,
        "larger goes first",
        lambda e: e.sweep.priority,
        "prio",
        lambda found: "top" if found == TOP else str(found),
        where="table",
    ),
    Column(
        "trials",
        int,
        "judged variants after which it ends",
        lambda e: e.sweep.request.trials,
        "budget",
        text=lambda e: _budget(e),
        where="full",
    ),
    data("minutes", float, "of work after which it ends", lambda e: e.sweep.request.minutes),
    Column("judged", int, "variants judged in its study", text=lambda e: f"{e.judged:,}/{e.sweep.request.trials:,}"),
    Column(
        "best_speedup",
        float,
        "t_baseline / t_variant of the trial to use; null: there is none",
        head="best",
        text=lambda e: "" if e.best_speedup is None else quoted(e.best_speedup, e.best_confirmed),
    ),
    data("best_confirmed", bool, "by finals; else it is the estimate of the search"),
    Column(
        "worked_s",
        float,
        "seconds of work over all runs",
        lambda e: e.sweep.spent_s,
        "worked",
        lambda e: about(e) if e else "",
    ),
    Column(
        "left_s",
        float,
        "seconds of work left, estimated; null where nobody can tell",
        head="left",
        reads=lambda seconds: f"about {about(seconds)}",
    ),
    Column("waits", str, "why it does not run", where="full"),
    Column(
        "detail",
        str,
        "why it is in its state",
        lambda e: e.sweep.detail,
        "",
        text=lambda e: e.waits or process_words(e.sweep.holder) or e.sweep.detail,
        where="table",
    ),
    Column(
        "worker",
        Process,
        of=lambda e: e.sweep.holder and row_of(PROCESS, e.sweep.holder),
        text=lambda e: process_words(e.sweep.holder),
        where="full",
    ),
    data("attempts", int, "runs in a row that ended by a fault of the machinery", lambda e: e.sweep.attempts),
    Column("submitted_at", datetime, of=lambda e: e.sweep.submitted_at, head="asked for", reads=moment, where="full"),
    data("started_at", datetime, of=lambda e: e.sweep.started_at),
    Column("finished_at", datetime, of=lambda e: e.sweep.finished_at, head="ended", reads=moment, where="wide"),
    data("not_before", datetime, "no worker takes it before", lambda e: e.sweep.not_before),
]
"""A sweep: what was asked for, where it is, and what it has found."""


def sweeps_table(found: Sequence[Outlook]) -> Table:
    """Sweeps in this order; of several of a group how the group is below them."""
    together = len(found) > 1 and found[0].sweep.group is not None and len({each.sweep.group for each in found}) == 1
    return Table.of(SWEEPS, found, [group_line(found)] if together else (), title=sweep_line)


def sweep_line(each: Outlook) -> str:
    """A sweep and its state in a line."""
    sweep = each.sweep
    return f"sweep {sweep.id} ({sweep.name}): {state_words(each)}" + (f", {sweep.detail}" if sweep.detail else "")


def group_line(found: Sequence[Outlook]) -> str:
    """How the sweeps of a group are together."""
    done = sum(each.sweep.state == State.DONE and each.best_speedup is not None for each in found)
    name, state = found[0].sweep.name, group_state(found)
    return f"group {name}: {state}; {done} of {len(found)} sweeps are done and have a result"


def state_words(each: Outlook) -> str:
    """The state, what its worker was asked to do, and whether it has lost its worker."""
    sweep = each.sweep
    if sweep.state == State.RUNNING and sweep.holder is None:
        return "running, lost"
    return f"{sweep.state}, to {sweep.wish}" if sweep.wish is not None else str(sweep.state)


def _name(each: Outlook) -> str:
    sweep = each.sweep
    return sweep.name if sweep.group is None else f"{sweep.name}: {sweep.request.problems[0]}"


def _budget(each: Outlook) -> str:
    request = each.sweep.request
    return f"{request.trials} trials" + ("" if request.minutes is None else f" or {request.minutes:g} minutes")


def process_words(holder: Holder | None) -> str:
    """A process, and the sweep that it works on; "" for none."""
    if holder is None:
        return ""
    return f"process {holder.pid} on {holder.host}" + (f": {holder.doing}" if holder.doing.startswith("sweep") else "")


def devices_table(found: Sequence[DeviceRecord]) -> Table:
    """The devices: who holds each, how it is, and what mends it."""
    return Table.of(DEVICES, found)


DEVICES: list[Column[DeviceRecord]] = [
    Column("name", str, "host and the device's own name there", head="device"),
    data("host", str),
    data("backend", str),
    Column("model", str),
    Column("health", str, "healthy or quarantined", look=lambda e: "good" if e.health == "healthy" else "bad"),
    Column(
        "worker",
        Process,
        of=lambda e: e.holder and row_of(PROCESS, e.holder),
        head="held by",
        text=lambda e: process_words(e.holder) or "nobody",
    ),
    Column(
        "seen_at", datetime, of=lambda e: e.seen_at if e.holder is None else e.holder.seen, head="seen", reads=moment
    ),
    Column(
        "reason",
        str,
        "why it is in quarantine",
        head="",
        text=lambda e: f"{e.reason}; `{e.remedy} {e.name}`" if e.reason else "",
    ),
    data("words", tuple[str, ...], "what --devices calls it in its worker"),
    data("remedy", str, "what ends the quarantine"),
    data("changed_at", datetime),
]
"""A device that a worker serves or has served."""


def events_table(found: Sequence[EventRecord]) -> Table:
    """What happened, in this order."""
    return Table.of(EVENTS, found)


EVENTS: list[Column[EventRecord]] = [
    data("number", int, of=lambda e: e.id),
    Column("at", datetime, head="when", reads=moment),
    Column("sweep", int, where="data"),
    Column("device", str, where="data"),
    data("kind", str),
    Column("text", str, "for people, one line", head="what"),
    data("data", dict[str, Any], "for programs"),
]
"""Something that happened to a sweep or a device."""


def event_line(event: EventRecord) -> str:
    """An event in a line."""
    of = "" if event.sweep is None else f" sweep {event.sweep}"
    return f"{event.at:%Y-%m-%d %H:%M:%S}{of}: {event.text}"


def sweeps_document(found: Sequence[Outlook]) -> dict[str, JsonValue]:
    """A sweep, or a group with its sweeps, for programs."""
    every: list[Any] = sweeps_table(found).json()
    if len(found) == 1:
        return dict(every[0])
    first = found[0].sweep
    return {"group": first.group, "name": first.name, "state": group_state(found).value, "sweeps": every}
