"""Tables of sweeps, their events and devices, for a person."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType

from autotuner.jobs.outlook import Outlook, group_state
from autotuner.jobs.queue import TOP
from autotuner.store.sweep_records import DeviceRecord, EventRecord, Holder
from autotuner.values.sweep import State
from autotuner.views.terminal import new_table
from autotuner.views.words import quoted_words


def sweeps_table(found: Sequence[Outlook]) -> RenderableType:
    """The queue: state, place, progress, best so far, time left, and why it waits."""
    columns = ("sweep", "name", "state", "place", "prio", "judged", "best", "worked", "left", "")
    table = new_table(*columns, right=(0, 3, 4, 5, 6, 7, 8))
    for each in found:
        sweep = each.sweep
        table.add_row(
            str(sweep.id),
            sweep.name if sweep.group is None else f"{sweep.name}: {sweep.request.problems[0]}",
            _state(each),
            "" if each.place is None else str(each.place),
            "top" if sweep.priority == TOP else str(sweep.priority),
            f"{each.judged}/{sweep.request.trials}",
            "" if each.best_speedup is None else quoted_words(each.best_speedup, each.best_confirmed),
            _span(sweep.spent_s),
            "" if each.left_s is None else f"about {_span(each.left_s)}",
            each.waits or _doing(sweep.holder) or sweep.detail,
        )
    return table


def sweep_lines(found: Sequence[Outlook]) -> list[str]:
    """A sweep in some lines, or the sweeps of a group with a line on the group."""
    lines = [line for each in found for line in _sweep_lines(each)]
    if len(found) == 1:
        return lines
    done = sum(each.sweep.state == State.DONE and each.best_speedup is not None for each in found)
    name, state = found[0].sweep.name, group_state(found)
    return [*lines, f"group {name}: {state}; {done} of {len(found)} sweeps are done and have a result"]


def _sweep_lines(each: Outlook) -> list[str]:
    sweep = each.sweep
    lines = [f"sweep {sweep.id} ({sweep.name}): {_state(each)}" + (f", {sweep.detail}" if sweep.detail else "")]
    lines += [f"  problem   {problem}" for problem in sweep.request.problems]
    lines += [f"  study     {sweep.study}"] if sweep.study is not None else []
    budget = f"{sweep.request.trials} trials"
    if sweep.request.minutes is not None:
        budget += f" or {sweep.request.minutes:g} minutes"
    lines.append(f"  budget    {budget}; {each.judged} judged, {_span(sweep.spent_s)} worked")
    if each.waits is not None:
        lines.append(f"  waits     {each.waits}")
    if each.best_speedup is not None:
        lines.append(f"  best      {quoted_words(each.best_speedup, each.best_confirmed)}")
    if sweep.holder is not None:
        lines.append(f"  worker    {_doing(sweep.holder)}")
    return lines


def devices_table(found: Sequence[DeviceRecord]) -> RenderableType:
    """The devices: who holds each, how it is, and what mends it."""
    table = new_table("device", "model", "health", "held by", "seen", "")
    for each in found:
        why = f"{each.reason}; {each.remedy} {each.name}" if each.reason else ""
        seen = each.holder.seen if each.holder is not None else each.seen_at
        table.add_row(each.name, each.model, each.health, _doing(each.holder) or "nobody", _moment(seen), why)
    return table


def event_line(event: EventRecord) -> str:
    """An event in a line."""
    of = "" if event.sweep is None else f" sweep {event.sweep}"
    return f"{event.at:%Y-%m-%d %H:%M:%S}{of}: {event.text}"


def _state(each: Outlook) -> str:
    sweep = each.sweep
    if sweep.state == State.RUNNING and sweep.holder is None:
        return "running, lost"
    return f"{sweep.state}, to {sweep.wish}" if sweep.wish is not None else str(sweep.state)


def _doing(holder: Holder | None) -> str:
    if holder is None:
        return ""
    return f"process {holder.pid} on {holder.host}" + (f": {holder.doing}" if holder.doing.startswith("sweep") else "")


def _moment(at: datetime) -> str:
    return f"{at:%m-%d %H:%M:%S} UTC"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
