"""What each builder and each device did when, drawn, with the share of the time in which they idled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from markupsafe import Markup

from autotuner.views.drawings.figure import Figure, Panel
from autotuner.views.drawings.lanes import STAGE_KEY, STAGES, Lane, Run, Stretch, busy, idle, runs_of
from autotuner.views.drawings.links import Links
from autotuner.views.drawings.svg import Scale, Svg
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Column, Table
from autotuner.views.words import clock, moment, percent, span

WIDTH, LEFT, ROW = 860, 120, 30
MOST_LANES = 16
"""Lanes of a kind that are drawn."""


def timeline(snapshot: Snapshot, links: Links, wanted: int | None = None) -> tuple[Figure, Panel]:
    """The lanes of one run, the last one with trials unless another is wanted, and all runs."""
    every = runs_of(snapshot.sessions, snapshot.trials)
    told = [each for each in every if each.trials]
    chosen = next((each for each in every if each.number == wanted), told[-1] if told else None)
    steps = [
        (f"draw run {run.number}", links.study(snapshot.name, "timeline", run=run.number), run is chosen)
        for run in every
    ]
    title, table = "Who did what when", Table.of(lane_columns(0.0), ())
    figure = Figure("timeline", title, "No trial was recorded yet.", None, table)
    if chosen is not None:
        table = Table.of(lane_columns(chosen.wall_s), _lanes(chosen))
        figure = Figure("timeline", title, _note(chosen), _drawn(chosen), table, STAGE_KEY)
    return figure, Panel("Runs", Table.of(RUNS, every), tuple(steps) if len(every) > 1 and not links.saved else ())


def _note(run: Run) -> str:
    devices = f"Idle: {_count(len(run.devices), 'device')} for {percent(run.device_idle, 1)} of the run"
    said = [f"{devices}, {_count(len(run.builders), 'builder')} for {percent(run.builder_idle, 1)}."]
    said.append("A device's stretches end when a trial was recorded. Races of the best variant against itself, and")
    said.append("looks at the baseline alone, are not drawn: there it seems idle.")
    said.append("Which builder had which build is not recorded: they fill as few lanes as hold them.")
    if max(len(run.builders), len(run.devices)) > MOST_LANES:
        said.append(f"Of builders and of devices the first {MOST_LANES} are drawn; the table has all.")
    return " ".join(said)


def _count(number: int, of: str) -> str:
    return f"{number:,} {of}" if number == 1 else f"{number:,} {of}s"


def _named(lanes: Sequence[Lane], kind: str) -> list[tuple[str, Lane]]:
    return [(f"{kind} {place + 1}", lane) for place, lane in enumerate(lanes)]


def _drawn(run: Run) -> Markup:
    lanes = _named(run.builders[:MOST_LANES], "builder") + _named(run.devices[:MOST_LANES], "device")
    svg = Svg(WIDTH, ROW * len(lanes) + 44, "Busy times of builders and devices")
    begin = min([0.0, *(lane.stretches[0].start for _, lane in lanes if lane.stretches)])
    x = Scale(begin, max(run.wall_s, 1.0), LEFT, WIDTH - 12)
    for place, (name, lane) in enumerate(lanes):
        y = ROW * place + 6
        svg.text(LEFT - 10, y + 15, name, "label", "end")
        svg.add("rect", x=LEFT, y=y, width=WIDTH - 12 - LEFT, height=20, class_="bar rest")
        for stage in STAGES:
            path = _path(x, [each for each in lane.stretches if each.stage == stage], y)
            if path:
                svg.add("path", d=path, class_=f"lane {stage}")
    bottom = ROW * len(lanes) + 10
    for tick in x.moments():
        svg.line(x(tick), bottom - 4, x(tick), bottom)
        svg.text(x(tick), bottom + 14, clock(tick), "tick", "middle")
    return svg.render()


def _lanes(run: Run) -> Iterator[tuple[str, tuple[Lane, ...]]]:
    """Each lane, and before those of a kind all of them together."""
    for kind, lanes in (("builder", run.builders), ("device", run.devices)):
        if len(lanes) > 1:
            yield f"all {kind}s", lanes
        for name, lane in _named(lanes, kind):
            yield name, (lane,)


def lane_columns(wall_s: float) -> list[Column[tuple[str, tuple[Lane, ...]]]]:
    """What a builder or a device did in a run of so many seconds."""

    def seconds(stage: str) -> Callable[[tuple[str, tuple[Lane, ...]]], float]:
        return lambda e: busy(e[1], stage)

    return [
        Column("lane", str, of=lambda e: e[0]),
        *(Column(f"{name}_s", float, "seconds", seconds(stage), name, _spent) for stage, name in STAGES.items()),
        Column(
            "idle", float, "share of the run", lambda e: idle(wall_s, e[1]), reads=lambda e: percent(e, 1), none="-"
        ),
    ]


def _spent(seconds: float) -> str:
    return span(seconds) if seconds else ""


def _path(x: Scale, stretches: Sequence[Stretch], y: float) -> str:
    """Boxes of one stage as one path; what is less than a pixel apart is one box."""
    second = x(1.0) - x(0.0)  # in pixels
    least, apart = 0.6 / second, 0.7 / second
    boxes: list[list[float]] = []
    for start, end, _ in stretches:
        if boxes and start - boxes[-1][1] < apart:
            boxes[-1][1] = max(end, start + least)
        else:
            boxes.append([start, max(end, start + least)])
    return "".join(f"M{x(start):.1f} {y:.0f}H{x(end):.1f}v20H{x(start):.1f}Z" for start, end in boxes)


def runs(every: Sequence[Run]) -> Table:
    """The runs of the driver: how long each took and where the time went."""
    return Table.of(RUNS, every)


def _total(stage: str) -> Callable[[Run], float]:
    return lambda run: busy((*run.builders, *run.devices), stage)


RUNS: list[Column[Run]] = [
    Column("run", int, of=lambda e: e.number, reads=str),
    Column("began", datetime, of=lambda e: e.sessions[0].started_at, reads=moment),
    Column("ended", datetime, of=lambda e: e.sessions[0].finished_at, reads=moment),
    Column("lasted_s", float, of=lambda e: e.wall_s, head="lasted", reads=span),
    Column("build_s", float, of=_total("build"), head="builds", reads=span),
    Column("gate_s", float, of=_total("check"), head="gate", reads=span),
    Column("race_s", float, of=_total("measure"), head="races", reads=span),
    Column("builders", int, of=lambda e: len(e.builders), text=lambda e: _share(e.builder_idle, len(e.builders))),
    Column("devices", int, of=lambda e: len(e.devices), text=lambda e: _share(e.device_idle, len(e.devices))),
    Column("host", str, of=lambda e: e.sessions[0].host),
]
"""A run of the driver."""


def _share(idle: float | None, of: int) -> str:
    return percent(idle) if idle is None else f"{of:,}, idle {percent(idle, 1)}"
