"""The runs of a study: in which stretches of time each builder and each device was busy, and how long it idled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from autotuner.store import ListedTrial, SessionRecord

STAGES = {"build": "build", "check": "gate", "measure": "race"}
"""The stages of a trial, in their order, and what a lane calls them."""
STAGE_KEY = tuple(f"stage {name}" for name in STAGES)
"""What tells their looks above a drawing."""
MOMENT_S = 0.2
"""Seconds by which two builds of one lane may overlap: the clocks of their processes differ by less."""


class Stretch(NamedTuple):
    """A time in which a builder or a device was busy; seconds since the run began."""

    start: float
    end: float
    stage: str


class Lane(NamedTuple):
    """A builder or a device."""

    stretches: tuple[Stretch, ...]
    spent: dict[str, float]
    """Seconds of each stage."""

    @classmethod
    def of(cls, stretches: Iterable[Stretch]) -> Lane:
        """The lane of these, which are in order."""
        held, spent = tuple(stretches), dict.fromkeys(STAGES, 0.0)
        for start, end, stage in held:
            spent[stage] += end - start
        return cls(held, spent)


def busy(lanes: Iterable[Lane], stage: str | None = None) -> float:
    """Seconds of all stages or of one, over all these lanes."""
    return sum(sum(lane.spent.values()) if stage is None else lane.spent[stage] for lane in lanes)


def idle(wall_s: float, lanes: Sequence[Lane]) -> float | None:
    """The share of so many seconds in which these were not busy; None where there is nothing to have a share of."""
    return max(0.0, 1 - busy(lanes) / (wall_s * len(lanes))) if wall_s and lanes else None


class Run(NamedTuple):
    """One run of the driver. Each of its devices has a session, and all have the builders in common."""

    sessions: tuple[SessionRecord, ...]
    wall_s: float
    builders: tuple[Lane, ...]
    devices: tuple[Lane, ...]
    trials: int

    @property
    def number(self) -> int:
        """What it is called: the number of its first session."""
        return self.sessions[0].id

    @property
    def builder_idle(self) -> float | None:
        """The share of the run in which a builder built nothing."""
        return idle(self.wall_s, self.builders)

    @property
    def device_idle(self) -> float | None:
        """The share of the run in which a device neither checked nor raced a variant."""
        return idle(self.wall_s, self.devices)


def runs_of(sessions: Iterable[SessionRecord], trials: Iterable[ListedTrial]) -> tuple[Run, ...]:
    """Every run of a study, the first one first. `trials` in the order in which they were recorded."""
    groups = _groups(sessions)
    of = {session.id: place for place, group in enumerate(groups) for session in group}
    judged: list[list[ListedTrial]] = [[] for _ in groups]
    built: list[list[ListedTrial]] = [[] for _ in groups]
    for trial in trials:
        place = of[trial.session]
        judged[place].append(trial)
        built[_built_in(groups, place, trial.build_began)].append(trial)
    return tuple(_run(*each) for each in zip(groups, built, judged, strict=True))


def _groups(sessions: Iterable[SessionRecord]) -> list[list[SessionRecord]]:
    """The sessions of each run. A driver starts those of all its devices one after the other, the first one as 0."""
    groups: list[list[SessionRecord]] = []
    for session in sessions:
        if session.lane and groups:
            groups[-1].append(session)
        else:
            groups.append([session])
    return groups


def _built_in(groups: Sequence[Sequence[SessionRecord]], judged_in: int, began: datetime | None) -> int:
    """The run in which a build began: devices may be calibrated anew between a build and its judging."""
    if began is None:
        return judged_in
    return next((place for place in range(judged_in, -1, -1) if groups[place][0].started_at <= began), judged_in)


def _run(sessions: Sequence[SessionRecord], built: Sequence[ListedTrial], judged: Sequence[ListedTrial]) -> Run:
    """`built` in it, and `judged` in it."""
    began = sessions[0].started_at
    ends = [each.started_at if each.finished_at is None else each.finished_at for each in sessions]
    wall_s = (max([*ends, *(each.recorded_at for each in judged)]) - began).total_seconds()
    devices = tuple(_judging([each for each in judged if each.session == of.id], began) for of in sessions)
    begins = [(each.build_s, (each.build_began - began).total_seconds()) for each in built if each.build_began]
    lanes = _spread(Stretch(start, start + seconds, "build") for seconds, start in begins if seconds)
    lanes += (Lane.of(()),) * max(0, sessions[0].builders - len(lanes))
    return Run(tuple(sessions), wall_s, lanes, devices, len(judged))


def _judging(trials: Sequence[ListedTrial], began: datetime) -> Lane:
    """A device's lane, from its end. It judges one variant after the other: one that was recorded late, as while the
    sampler was thinking, was over before the next one began."""
    found, until = list[Stretch](), float("inf")
    for trial in reversed(trials):
        end = min(until, (trial.recorded_at - began).total_seconds())
        for stage, seconds in (("measure", trial.measure_s), ("check", trial.check_s)):
            if seconds:
                found.append(Stretch(end - seconds, end, stage))
                until = end = end - seconds
    return Lane.of(reversed(found))


def _spread(stretches: Iterable[Stretch]) -> tuple[Lane, ...]:
    """Into as few lanes as hold them without an overlap of more than a moment."""
    lanes: list[list[Stretch]] = []
    for each in sorted(stretches):
        for lane in lanes:
            if lane[-1].end <= each.start + MOMENT_S:
                lane.append(each)
                break
        else:
            lanes.append([each])
    return tuple(map(Lane.of, lanes))
