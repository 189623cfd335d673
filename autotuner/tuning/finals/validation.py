"""Variants on problems that were not tuned: which ones, and what is found there. They are judged by the whole gate and
timed in fresh processes as in finals.

A line is tuned problems that differ in nothing but lengths that go together. What serves lengths between tuned ones is
taken from what is found (serve/table.py). Nothing here is chosen by its figures, so there is no winner's curse; a
variant that the gate finds wrong is revoked, as in finals.
"""

import math
import random
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from autotuner.race.confirm import PROCESSES, Confirmed, biases, standing_of
from autotuner.race.tie import logs
from autotuner.store import Validation, queries
from autotuner.tuning.finals.retrials import FinalHeats, Retrials, rebuilt
from autotuner.values.conditions import TIE, fresh_seeds
from autotuner.values.errors import InputError
from autotuner.values.outcome import Artifact, Heat
from autotuner.values.problem import LONGEST, Problem
from autotuner.values.verdict import Fault

LEAST = 3
"""Processes of a variant, at least: two bound nothing."""
PER_DOUBLING, PER_DOUBLING_GROWN = 2, 0.25
"""Steps between two tried lengths in a doubling; below one that grows."""
DRAWN = 1 / 3
"""Of a step, how far from its place a length may be."""
TILE = 32
"""Every second length is a multiple of this where there is one; the others are odd, so that every tile ends ragged."""

Lengths = tuple[int, int]


class Trying(NamedTuple):
    """Trials of a study, by number, and the problems they are tried on; one artifact serves all of these."""

    numbers: tuple[int, ...]
    problems: tuple[Problem, ...]
    vary: tuple[str, ...]
    """The lengths that differ, and are one number in each of them."""


def validate(trials: Retrials, wanted: Sequence[Trying]) -> None:
    """Tries variants of a study on problems that were not tuned, and records what it finds. After `trials.seconds`
    nothing is timed that is not needed.

    Raises InputError where a variant cannot be built as it was, OracleError or InfrastructureError where the machine
    does not let it be judged. What was recorded until then stays.
    """
    until = time.monotonic() + trials.seconds
    with trials.leased() as leased:
        for trying in wanted:
            leased.say(f"calibrating on {', '.join(map(str, trying.problems))}")
            calibrated = leased.calibrated(problems=trying.problems, objective="mean")
            for number in trying.numbers:
                found = _tried(number, trying, calibrated, until)
                calibrated.store.record_validation(calibrated.study, found, calibrated.environment)


def _tried(number: int, trying: Trying, trials: Retrials, until: float) -> Validation:
    """The whole gate, with these problems in place of the tuned ones, and then processes."""
    built = rebuilt(trials.executor, queries.trial(trials.store, trials.study, number), trials.conditions, trials.beat)
    trials.say(f"judging trial {number} on them")
    outcome = trials.judged(number, built)
    fault, heats = None if outcome.verdict.has_latency else outcome.fault, list[Heat]()
    if fault is None:
        fault = _timed(number, built.artifact, trials, until, heats)
    if fault is not None:  # it serves no length that was not tuned; where it is wrong there, it is revoked
        trials.refuse(number, fault, "on lengths that were not tuned")
    return Validation(
        number=number,
        digest=built.artifact.digest,
        problems=trying.problems,
        vary=trying.vary,
        baselines=trials.conditions.baselines,
        gate=outcome.gate,
        fault=fault,
        heats=tuple(heats),
    )


def _timed(number: int, artifact: Artifact, trials: Retrials, until: float, heats: list[Heat]) -> Fault | None:
    """Processes until it is known of each problem whether the variant is faster there; its fault if it has one."""
    runner = FinalHeats(trials)
    for process in range(PROCESSES):
        if process >= LEAST and (time.monotonic() > until or not _open(heats, artifact.digest)):
            break
        trials.say(f"timing trial {number}, process {process + 1}")
        runner.draw(fresh_seeds())
        heat, fault = runner.of(artifact)
        if heat is not None:
            heats.append(heat)
        if fault is not None:
            return fault
    return None


def confirmed_at(heats: Sequence[Heat], digest: str, place: int) -> Confirmed | None:
    """What a variant takes on the problem at that place of heats in which it raced alone: ln(t_variant / t_baseline),
    the process as the unit. None where it failed in one of them, or there are none."""
    values: list[float] = []
    for heat in heats:
        if 0 in heat.faults or not all(heat.us[0]):
            return None
        values.append(median(logs(heat, 0)[place]))
    return standing_of({digest: values}, TIE, biases(heats, itemgetter(place))).finalists[0] if values else None


def _open(heats: Sequence[Heat], digest: str) -> bool:
    """Whether it is not known of some problem if the variant is faster there than the baseline."""
    count = len(heats[0].baselines)
    found = [confirmed_at(heats, digest, place) for place in range(count)]
    return any(each is not None and each.log_ratio.low < 0 < each.log_ratio.high for each in found)


# Which problems -------------------------------------------------------------------------------------------------------


class LengthSeries(NamedTuple):
    """Problems of a study that differ in the lengths `vary` alone, which are one number in each."""

    like: Problem
    """With these lengths at 1."""
    vary: tuple[str, ...]
    tuned: tuple[tuple[int, int], ...]
    """Lengths, and of each the place among the study's problems."""

    def at(self, length: int) -> Problem:
        """The problem of this line with that length. Raises InputError where there is none."""
        update = dict.fromkeys(self.vary, length)
        try:
            return type(self.like).model_validate({**self.like.model_dump(), **update}, strict=True)
        except ValueError as error:
            raise InputError(f"length {length}: {' '.join(str(error).split())}") from None

    def length_of(self, problem: Problem) -> int | None:
        """Of a problem of this line; None of another one."""
        on = _on_a_line(problem, self.vary)
        return on[1] if on is not None and on[0] == self.like else None


def lines_of(problems: Sequence[Problem], vary: Sequence[str] = ()) -> tuple[LengthSeries, ...]:
    """The lines on which problems lie. Without `vary` all lengths of a problem go together where they are equal, and
    else one of them varies where another problem differs in it alone. Raises InputError for an unknown length."""
    known = problems[0].LENGTHS
    for name in vary:
        if name not in known:
            raise InputError(f"--vary {name}: the lengths of {problems[0].op} are {', '.join(known)}")
    found: dict[tuple[Problem, tuple[str, ...]], dict[int, int]] = {}
    for place, problem in enumerate(problems):
        names = tuple(vary) or _varies(problem, problems)
        on = _on_a_line(problem, names)
        if on is not None:
            found.setdefault((on[0], names), {})[on[1]] = place
    return tuple(LengthSeries(like, names, tuple(sorted(tuned.items()))) for (like, names), tuned in found.items())


def _on_a_line(problem: Problem, vary: Sequence[str]) -> tuple[Problem, int] | None:
    """The problem with these lengths at 1, and what they are; None where they are not one number."""
    sizes = {getattr(problem, name) for name in vary}
    return (problem.model_copy(update=dict.fromkeys(vary, 1)), sizes.pop()) if len(sizes) == 1 else None


def _varies(problem: Problem, others: Sequence[Problem]) -> tuple[str, ...]:
    if len({getattr(problem, name) for name in problem.LENGTHS}) == 1:
        return problem.LENGTHS
    for name in problem.LENGTHS:
        same = {name: getattr(problem, name)}
        if any(each != problem and each.model_copy(update=same) == problem for each in others):
            return (name,)
    return ()


def lengths_of(text: str) -> Lengths:
    """The least and the largest of "128-2048". Raises InputError."""
    low, _, high = text.partition("-")
    if not (low.strip().isdecimal() and high.strip().isdecimal() and 0 < int(low) < int(high) <= LONGEST):
        raise InputError(f"--lengths {text}: expected the least and the largest length, such as 128-2048")
    return int(low), int(high)


def tried(line: LengthSeries, lengths: Lengths | None, per_doubling: float = PER_DOUBLING) -> tuple[int, ...]:
    """Lengths of the line to be tried: between each two tuned ones and, with `lengths`, its ends and what lies between
    these and the tuned ones. None of them was tuned."""
    tuned = [each for each, _ in line.tuned if lengths is None or lengths[0] <= each <= lengths[1]]
    ends = sorted({*tuned, *(lengths or ())})
    found = {each for low, high in pairwise(ends) for each in _between(low, high, per_doubling)} | set(ends)
    return tuple(sorted(found - {each for each, _ in line.tuned}))


def _between(low: int, high: int, per_doubling: float) -> Iterator[int]:
    """Lengths between two, about evenly in proportion: odd ones and multiples of a tile by turns, no powers of two.
    They are drawn, so that no variant is right at these alone."""
    steps = max(2, math.ceil(per_doubling * math.log2(high / low)))
    for step in range(1, steps):
        length = round(low * (high / low) ** ((step + random.uniform(-DRAWN, DRAWN)) / steps))
        odd, even = length | 1, TILE * round(length / TILE)
        wanted = odd if step % 2 or even & (even - 1) == 0 else even
        yield from [each for each in (wanted, odd, length, low + 1) if low < each < high][:1]


def grown(problems: Sequence[Problem], numbers: tuple[int, ...]) -> tuple[Trying, ...]:
    """What trials are to be tried on so that they serve each length that grows, from 1 on."""
    found: list[Trying] = []
    for vary in dict.fromkeys(each.growing for each in problems if each.growing):
        others: list[Problem] = []
        for line in lines_of([each for each in problems if each.growing == vary], vary):
            points = tried(line._replace(tuned=line.tuned[-1:]), (1, line.tuned[-1][0]), PER_DOUBLING_GROWN)
            others += map(line.at, points)
        found.append(Trying(numbers, tuple(each for each in others if each not in problems), vary))
    return tuple(found)


def to_try(
    problems: Sequence[Problem], used: Sequence[int | None], lengths: Lengths | None, vary: Sequence[str]
) -> tuple[Trying, ...]:
    """What is to be tried: on each line the trials that serve one of its tuned problems (`used`, by place; None: the
    baseline), on other lengths; without a word those of one that grows. Raises InputError where there are none."""
    found: list[Trying] = []
    lines = lines_of(problems, vary)
    for line in lines:
        numbers = tuple(dict.fromkeys(number for _, place in line.tuned if (number := used[place]) is not None))
        points = tried(line, lengths)
        if numbers and points:
            found.append(Trying(numbers, tuple(line.at(each) for each in points), line.vary))
    if not found and lengths is None and not vary:
        found += grown(problems, tuple(dict.fromkeys(number for number in used if number is not None)))
    if found:
        return tuple(found)
    if not any(number is not None for number in used):
        raise InputError("the baseline serves every problem of the study: there is no variant to try")
    if not lines:
        raise InputError(f"no length varies: name one with --vary, of {', '.join(problems[0].LENGTHS)}")
    raise InputError("one length was tuned: say between which ones it shall serve, such as --lengths 128-2048")
