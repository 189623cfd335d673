"""What tuning a problem promises, before anything is built: who can serve it, its bound, what is known of near
problems, and how long a search takes."""

from collections.abc import Callable, Iterator, Mapping

from pydantic import Field

from autotuner.devices import DEVICES
from autotuner.race.plausible import floor_us
from autotuner.spaces.first_points import read_first_points
from autotuner.store import Store
from autotuner.tuning import possible, transfer
from autotuner.tuning.finals import standings
from autotuner.tuning.workbench import Workbench
from autotuner.values.model import Model
from autotuner.values.problem import Problem

FAR = 2.5
"""Distance from which what is known of another problem says nothing of this one."""
SHOWN = 4
"""Problems, at most, that the range is taken from: the nearest."""
SLOWEST_US = 2e6
"""A problem that takes longer by its bound is not timed."""
READY_S, BUILT_S, FORWARDS = 30.0, 3.0, 300
"""What a search takes in round numbers: seconds before the first variant, of a build, and forwards of the baseline in
the time of judging one variant."""


class Near(Model):
    """What is known of a near problem: its best implementation of those that can serve here."""

    problem: str
    impl: str
    speedup: float = Field(description="t_baseline / t_variant there")
    confirmed: bool = Field(description="by finals")
    distance: float = Field(description="in doublings and changes")
    where: str = Field(description="the device of a kept result, or a study of the store")
    here: bool = Field(description="on a device of this model: another one may have a faster torch")


class Foresight(Model):
    """What tuning one problem promises."""

    problem: Problem
    serves: dict[str, int] = Field(description="valid points, by implementation")
    left_out: dict[str, str] = Field(description="why an implementation has no point, by implementation")
    us: float | None = Field(description="microseconds that torch takes here; None: it takes too long to be asked")
    bound_us: float = Field(description="microseconds that no implementation can go below on this device")
    bounds_us: dict[str, float] = Field(description="those that an implementation cannot go below, by implementation")
    near: tuple[Near, ...]
    low: float = Field(description="the least speedup to expect: 1 where torch stays")
    high: float = Field(description="the largest speedup to hope for")
    weight: float = Field(description="microseconds of all its calls, where a record says how many there are")


def foresee(
    here: Workbench, store: Store | None, timed: Callable[[Problem, str], float], weights: Mapping[Problem, float]
) -> Iterator[Foresight]:
    """For each problem of a space on this machine. `timed`: the microseconds of torch's own function on what torch
    calls a device. `weights`: those of all calls, of problems that a record knows. Opens the device in this process.
    Raises as the store does."""
    from autotuner.ops.tensors import on_threads  # imports torch

    space, device = here.space, DEVICES[here.device.backend].open(here.toolchain, here.device)
    device.prepare(here.conditions)
    ceilings = device.ceilings(here.conditions)
    for problem in space.file.problems:
        is_cold = here.conditions.cache == "cold"
        bound_us = floor_us(problem, ceilings, is_cold)
        with on_threads(here.conditions.threads):  # as a baseline is timed
            taken_us = timed(problem, device.torch_device) if bound_us < SLOWEST_US else None
        near = tuple(_near(here, store, problem))[:SHOWN]
        most = max(1.0, taken_us / bound_us) if taken_us is not None else float("inf")
        surely = [each.speedup for each in near if each.here]
        yield Foresight(
            problem=problem,
            serves={each.impl: len(each) for each in space.branches},
            left_out=space.left_out,
            us=taken_us,
            bound_us=bound_us,
            bounds_us={each.impl: possible.bound_us(each, problem, ceilings, is_cold) for each in space.branches},
            near=near,
            low=min(max(1.0, min(surely, default=1.0)), most),
            high=min(max(1.0, max((each.speedup for each in near), default=most)), most),
            weight=weights.get(problem) or taken_us or bound_us,
        )


def _near(here: Workbench, store: Store | None, problem: Problem) -> list[Near]:
    """The best of each near problem, the nearest first."""
    best: dict[str, Near] = {}
    for each in (*_shipped(here, problem), *(_studied(here, store, problem) if store is not None else ())):
        if each.distance < FAR and (each.problem not in best or best[each.problem].speedup < each.speedup):
            best[each.problem] = each
    return sorted(best.values(), key=lambda each: each.distance)


def _shipped(here: Workbench, problem: Problem) -> Iterator[Near]:
    for impl, points in read_first_points(here.family.folder, here.device.backend, problem.op).items():
        for each in points if here.space.branch_of(impl) is not None else ():
            yield Near(
                problem=str(each.problem),
                impl=impl,
                speedup=each.speedup,
                confirmed=False,
                distance=each.distance([problem]),
                where=each.device,
                here=each.device == here.device.name,
            )


def _studied(here: Workbench, store: Store, problem: Problem) -> Iterator[Near]:
    new = here.plan().record.model_copy(update={"problems": (problem,)})
    for study in transfer.related(store, new):
        best = standings.best(store, study.name)
        if best is not None and len(study.problems) == 1:
            found = best.confirmed or best.entry.speedup
            yield Near(
                problem=str(study.problems[0]),
                impl=best.outcome.variant.impl,
                speedup=found.mid,
                confirmed=best.confirmed is not None,
                distance=transfer.distance(study, new),
                where=study.name,
                here=study.device.name == here.device.name,
            )


def search_s(here: Workbench, store: Store | None, us: float, trials: int) -> float:
    """Seconds that so many trials take, about, without finals: by the nearest study of the store that has judged some,
    or else by round numbers."""
    for study in transfer.related(store, here.plan().record) if store is not None else ():
        seconds = [sum(outcome.seconds.values()) for _, outcome in store.outcomes(study.name)] if store else []
        if len(seconds) >= transfer.LEAST:
            return READY_S + trials * sum(seconds) / len(seconds)
    lanes = len(here.chosen.lanes)
    building = BUILT_S / (DEVICES[here.device.backend].builders(lanes) if DEVICES[here.device.backend].overlap else 1)
    return READY_S + trials * (building + FORWARDS * us / 1e6 / lanes)
