"""What each builder and each device did when, drawn, with the share of the time in which they idled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.lanes import STAGES, Lane, Run, Stretch, busy, runs_of
from autotuner.views.drawings.svg import Scale, Svg
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Table
from autotuner.views.words import clock, percent, span

WIDTH, LEFT, ROW = 860, 120, 30
MOST_LANES = 16
"""Lanes of a kind that are drawn."""
COLUMNS = ("lane", *STAGES.values(), "idle")


def timeline(snapshot: Snapshot, wanted: int | None = None) -> tuple[Figure, tuple[Run, ...], int | None]:
    """The lanes of one run, the last one with trials unless another is wanted, and all runs."""
    every = runs_of(snapshot.sessions, snapshot.stages)
    told = [each for each in every if each.trials]
    chosen = next((each for each in every if each.number == wanted), told[-1] if told else None)
    return _figure(chosen), every, None if chosen is None else chosen.number


def _figure(chosen: Run | None) -> Figure:
    title = "Who did what when"
    if chosen is None:
        return Figure("timeline", title, "No trial was recorded yet.", None, Table.plain(COLUMNS, ()))
    grid = Table.plain(COLUMNS, tuple(_rows(chosen)), frozenset(range(1, len(COLUMNS))))
    return Figure("timeline", title, _note(chosen), _drawn(chosen), grid)


def _note(run: Run) -> str:
    said = [_idle(run)]
    said.append("A device's stretches end when a trial was recorded. Races of the best variant against itself, and")
    said.append("looks at the baseline alone, are not drawn: there it seems idle.")
    said.append("Which builder had which build is not recorded: they fill as few lanes as hold them.")
    if max(len(run.builders), len(run.devices)) > MOST_LANES:
        said.append(f"Of builders and of devices the first {MOST_LANES} are drawn; the table has all.")
    return " ".join(said)


def _idle(run: Run) -> str:
    devices = f"Idle: {_count(len(run.devices), 'device')} for {percent(run.device_idle, 1)} of the run"
    return f"{devices}, {_count(len(run.builders), 'builder')} for {percent(run.builder_idle, 1)}."


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


def _rows(run: Run) -> Iterator[tuple[str, ...]]:
    """A row a lane, and before those of a kind one of them all."""
    for kind, lanes in (("builder", run.builders), ("device", run.devices)):
        if len(lanes) > 1:
            yield _row(run, f"all {kind}s", lanes)
        for name, lane in _named(lanes, kind):
            yield _row(run, name, (lane,))


def _row(run: Run, name: str, lanes: Sequence[Lane]) -> tuple[str, ...]:
    times = (span(seconds) if (seconds := busy(lanes, stage)) else "" for stage in STAGES)
    return (name, *times, percent(run.idle(lanes), 1))


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
    columns = ("run", "began", "ended", "lasted", "builds", "gate", "races", "builders", "devices", "host")
    rows = tuple(
        (
            str(each.number),
            each.sessions[0].started_at,
            each.sessions[0].finished_at or "",
            span(each.wall_s),
            *(span(busy((*each.builders, *each.devices), stage)) for stage in STAGES),
            _share(each.builder_idle, len(each.builders)),
            _share(each.device_idle, len(each.devices)),
            each.sessions[0].host,
        )
        for each in every
    )
    return Table.plain(columns, rows, frozenset({0, *range(3, len(columns) - 1)}))


def _share(idle: float | None, of: int) -> str:
    return percent(idle) if idle is None else f"{of:,}, idle {percent(idle, 1)}"
