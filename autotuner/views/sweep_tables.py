"""Sweeps, their events and the devices that are served: for a terminal, a page and programs."""

from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from autotuner.jobs.outlook import Outlook, group_state
from autotuner.jobs.queue import TOP
from autotuner.store.records import DeviceRecord, EventRecord, Holder
from autotuner.values.sweep import State
from autotuner.views.table import Column, Fields, Table, model_of
from autotuner.views.words import about, best_quoted, counted, moment

MOODS = {State.RUNNING: "busy", State.DONE: "good", State.FAILED: "bad", State.PAUSED: "warn"}
"""How the chips of states look."""

PROCESS = Fields(Holder).data("host", "pid", "since", "seen", "doing")
Process = model_of("Process", "A living process that has a sweep or a device.", PROCESS)
field = Fields(Outlook)

STATES = "queued, running, paused, done, cancelled or failed"


def state_words(each: Outlook) -> str:
    """The state, what its worker was asked to do, and whether it has lost its worker."""
    sweep = each.sweep
    if sweep.state == State.RUNNING and sweep.holder is None:
        return "running, lost"
    return f"{sweep.state}, to {sweep.wish}" if sweep.wish is not None else str(sweep.state)


def _worker(each: Outlook | DeviceRecord) -> str:
    """The process that has a sweep or a device, and the sweep that it works on; "" for none."""
    holder = each.sweep.holder if isinstance(each, Outlook) else each.holder
    if holder is None:
        return ""
    return f"process {holder.pid} on {holder.host}" + (f": {holder.doing}" if holder.doing.startswith("sweep") else "")


def _name(each: Outlook) -> str:
    sweep = each.sweep
    return sweep.name if sweep.group is None else f"{sweep.name}: {sweep.request.problems[0]}"


def _budget(each: Outlook) -> str:
    request = each.sweep.request
    return counted(request.trials, "trial") + ("" if request.minutes is None else f" or {request.minutes:g} minutes")


def _mood(each: Outlook) -> str:
    return MOODS.get(each.sweep.state, "")


SWEEPS: list[Column[Outlook]] = [
    field("number", "sweep.id", head="sweep", reads=str, where="table", href=lambda e: f"/sweeps/{e.sweep.id}"),
    *field.data(key="sweep.key"),
    field("name", "sweep.name", text=_name, where="table"),
    *field.data(group="sweep.group", backend="sweep.request.backend"),
    field("problems", "sweep.request.problems", head="problem", reads="; ".join, where="full"),
    field("state", "sweep.state", type=str, says=STATES, text=state_words, where="table", look=_mood),
    field("asked_to", "sweep.wish", type=str, where="data"),
    field("study", "sweep.study", where="full"),
    field("place", where="table"),
    field("priority", "sweep.priority", head="prio", reads=lambda e: "top" if e == TOP else str(e), where="table"),
    field("trials", "sweep.request.trials", head="budget", text=_budget, where="full"),
    *field.data(minutes="sweep.request.minutes"),
    field("judged", text=lambda e: f"{e.judged:,}/{e.sweep.request.trials:,}"),
    field("best_speedup", head="best", text=best_quoted),
    *field.data("best_confirmed"),
    field("worked_s", "sweep.spent_s", head="worked", reads=lambda e: about(e) if e else ""),
    field("left_s", head="left", reads=lambda seconds: f"about {about(seconds)}"),
    field("waits", where="full"),
    field("detail", "sweep.detail", head="", text=lambda e: e.waits or _worker(e) or e.sweep.detail, where="table"),
    field("worker", "sweep.holder", type=Process, inner=PROCESS, text=_worker, where="full"),
    *field.data(attempts="sweep.attempts"),
    field("submitted_at", "sweep.submitted_at", head="asked for", reads=moment, where="full"),
    *field.data(started_at="sweep.started_at"),
    field("finished_at", "sweep.finished_at", head="ended", reads=moment, where="wide"),
    *field.data(not_before="sweep.not_before"),
]
"""A sweep: what was asked for, where it is, and what it has found."""


def sweeps_table(found: Sequence[Outlook], *, whole: bool = False) -> Table:
    """Sweeps in this order. `whole`: all that belong together; of a group how that is stands below them."""
    together = whole and len(found) > 1
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


def devices_table(found: Sequence[DeviceRecord]) -> Table:
    """The devices: who holds each, how it is, and what mends it."""
    return Table.of(DEVICES, found)


device = Fields(DeviceRecord)
DEVICES: list[Column[DeviceRecord]] = [
    device("name", head="device"),
    *device.data("host", "backend"),
    device("model"),
    device("health", look=lambda e: "good" if e.health == "healthy" else "bad"),
    device("worker", "holder", type=Process, inner=PROCESS, head="held by", text=lambda e: _worker(e) or "nobody"),
    device("seen_at", of=lambda e: e.seen_at if e.holder is None else e.holder.seen, head="seen", reads=moment),
    device("reason", head="", text=lambda e: f"{e.reason}; {e.remedy}" if e.reason else ""),
    *device.data("words", "remedy", "changed_at"),
]
"""A device that a worker serves or has served."""


def events_table(found: Sequence[EventRecord]) -> Table:
    """What happened, in this order."""
    return Table.of(EVENTS, found)


event = Fields(EventRecord)
EVENTS: list[Column[EventRecord]] = [
    *event.data(number="id"),
    event("at", head="when", reads=moment),
    *event.data("sweep", "device", "kind"),
    event("text", head="what"),
    *event.data("data"),
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
