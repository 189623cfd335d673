"""What each builder and each device did when, by the seconds that every trial has of each stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from autotuner.service.figures.figure import Figure, Grid
from autotuner.service.figures.svg import Scale, Svg
from autotuner.service.reader import Snapshot
from autotuner.service.words import clock, percent, span, when
from autotuner.store import SessionRecord, StageTimes

WIDTH, LEFT, ROW = 860, 120, 30
MOST_LANES = 12
"""Lanes of a kind that are drawn."""
STAGES = {"build": "build", "check": "gate", "measure": "race"}
"""The stages of a trial, in their order, and what a lane calls them."""


class Stretch(NamedTuple):
    """A time in which a builder or a device was busy; seconds since the run began."""

    start: float
    end: float
    stage: str


class Lanes(NamedTuple):
    """One run of the driver."""

    session: SessionRecord
    wall_s: float
    builders: tuple[tuple[Stretch, ...], ...]
    devices: tuple[tuple[Stretch, ...], ...]
    spent: dict[str, float]
    unknown: int
    """Trials of which an earlier version recorded no stages."""

    @property
    def device_idle(self) -> float:
        """The share of the run in which a device neither checked nor raced, its calibration among it."""
        busy = self.spent["check"] + self.spent["measure"]
        return max(0.0, 1 - busy / (self.wall_s * max(1, len(self.devices)))) if self.wall_s else 0.0


def timeline(snapshot: Snapshot, wanted: int | None = None) -> tuple[Figure, tuple[Lanes, ...], int | None]:
    """The lanes of one run, the last one with trials unless another is wanted, and the sums of all."""
    of: dict[int, list[StageTimes]] = {}
    for trial in snapshot.stages:
        of.setdefault(trial.session, []).append(trial)
    every = tuple(_lanes(session, of.get(session.id, ())) for session in snapshot.sessions)
    busy = [each for each in every if each.devices or each.builders]
    chosen = next((each for each in every if each.session.id == wanted), busy[-1] if busy else None)
    return _figure(chosen), every, None if chosen is None else chosen.session.id


def _lanes(session: SessionRecord, trials: Sequence[StageTimes]) -> Lanes:
    """`trials`: those of the session."""
    builds: list[Stretch] = []
    judged: list[Stretch] = []
    last = session.started_at if session.finished_at is None else session.finished_at
    spent = dict.fromkeys(STAGES, 0.0)
    for trial in trials:
        last = max(last, trial.recorded_at)
        end = (trial.recorded_at - session.started_at).total_seconds()
        for stage, seconds in (("measure", trial.measure_s), ("check", trial.check_s), ("build", trial.build_s)):
            if seconds:
                spent[stage] += seconds
                (builds if stage == "build" else judged).append(Stretch(end - seconds, end, stage))
                end -= seconds
    unknown = sum(trial.build_s is None for trial in trials)
    wall_s = (last - session.started_at).total_seconds()
    return Lanes(session, wall_s, _spread(builds), _spread(judged), spent, unknown)


def _spread(stretches: Iterable[Stretch]) -> tuple[tuple[Stretch, ...], ...]:
    """Into as few lanes as hold them without an overlap of more than a moment."""
    lanes: list[list[Stretch]] = []
    for each in sorted(stretches):
        for lane in lanes:
            if lane[-1].end <= each.start + 0.2:
                lane.append(each)
                break
        else:
            lanes.append([each])
    return tuple(map(tuple, lanes))


def _figure(chosen: Lanes | None) -> Figure:
    note = (
        "A device's stretches end when the trial was recorded. A build is drawn right before them: when it began is not"
        " recorded, only how long it took."
    )
    if chosen is not None and chosen.unknown:
        note += f" Of {chosen.unknown:,} trials an earlier version recorded no stages: they are not drawn."
    columns = ("lane", "stage", "busy", "of the run")
    if chosen is None:
        return Figure("timeline", "Who did what when", note, None, Grid(columns, ()))
    lanes = [(f"builder {place + 1}", lane) for place, lane in enumerate(chosen.builders[:MOST_LANES])]
    lanes += [(f"device {place + 1}", lane) for place, lane in enumerate(chosen.devices[:MOST_LANES])]
    svg = Svg(WIDTH, ROW * len(lanes) + 44, "Busy times of builders and devices")
    begin = min([0.0, *(lane[0].start for _, lane in lanes)])
    x = Scale(begin, max(chosen.wall_s, 1.0), LEFT, WIDTH - 12)
    for place, (name, lane) in enumerate(lanes):
        y = ROW * place + 6
        svg.text(LEFT - 10, y + 15, name, "label", "end")
        svg.add("rect", x=LEFT, y=y, width=WIDTH - 12 - LEFT, height=20, class_="bar rest")
        for stage in STAGES:
            path = _path(x, [each for each in lane if each.stage == stage], y)
            if path:
                svg.add("path", d=path, class_=f"lane {stage}")
    bottom = ROW * len(lanes) + 10
    for tick in x.moments():
        svg.line(x(tick), bottom - 4, x(tick), bottom)
        svg.text(x(tick), bottom + 14, clock(tick), "tick", "middle")
    rows = []
    for name, lane in lanes:
        for stage, words in STAGES.items():
            busy = sum(each.end - each.start for each in lane if each.stage == stage)
            if busy:
                rows.append((name, words, span(busy), percent(busy / chosen.wall_s if chosen.wall_s else None, 1)))
    return Figure("timeline", "Who did what when", note, svg.render(), Grid(columns, tuple(rows), frozenset({2, 3})))


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


def runs(every: Sequence[Lanes]) -> Grid:
    """The runs of the driver: how long each took and where the time went."""
    columns = ("run", "began", "ended", "lasted", "builds", "gate", "races", "device idle", "host")
    rows = tuple(
        (
            str(each.session.id),
            when(each.session.started_at),
            "" if each.session.finished_at is None else when(each.session.finished_at),
            span(each.wall_s),
            *(span(each.spent[stage]) for stage in STAGES),
            percent(each.device_idle, 1),
            each.session.host,
        )
        for each in every
    )
    return Grid(columns, rows, frozenset({0, 3, 4, 5, 6, 7}))
