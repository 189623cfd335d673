"""Lengths between tuned ones: which are to be tried, and what a table may serve by what was found there.

A line is tuned problems that differ in nothing but lengths that go together. Known lengths of a variant on a line are
those on which the finals or a validation timed it. Between two neighbours of these it may serve where it was faster
than the baseline on both, and one of them was not tuned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from autotuner.race.confirm import Confirmed
from autotuner.store import ValidationRecord
from autotuner.tuning.finals.validation import Trying, confirmed_at
from autotuner.tuning.gate_summary import GateSummary
from autotuner.values.errors import InputError
from autotuner.values.gate_report import GateReport
from autotuner.values.problem import LONGEST, Problem
from autotuner.values.table import LeftOut, Proven, Range, Ratio, Validated

PER_DOUBLING = 2
"""Steps between two tried lengths, as parts of a doubling."""
TILE = 32
"""Every second length is a multiple of this where there is one; the others are odd, so that every tile ends ragged."""

Lengths = tuple[int, int]


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
        sizes = {getattr(problem, name) for name in names}
        if len(sizes) == 1:
            like = problem.model_copy(update=dict.fromkeys(names, 1))
            found.setdefault((like, names), {})[sizes.pop()] = place
    return tuple(LengthSeries(like, names, tuple(sorted(tuned.items()))) for (like, names), tuned in found.items())


def _varies(problem: Problem, others: Sequence[Problem]) -> tuple[str, ...]:
    if len({getattr(problem, name) for name in problem.LENGTHS}) == 1:
        return problem.LENGTHS
    for name in problem.LENGTHS:
        if any(
            each != problem and each.model_copy(update={name: getattr(problem, name)}) == problem for each in others
        ):
            return (name,)
    return ()


def lengths_of(text: str) -> Lengths:
    """The least and the largest of "128-2048". Raises InputError."""
    low, _, high = text.partition("-")
    if not (low.strip().isdecimal() and high.strip().isdecimal() and 0 < int(low) < int(high) <= LONGEST):
        raise InputError(f"--lengths {text}: expected the least and the largest length, such as 128-2048")
    return int(low), int(high)


def tried(line: LengthSeries, lengths: Lengths | None) -> tuple[int, ...]:
    """Lengths of the line to be tried: between each two tuned ones and, with `lengths`, its ends and what lies between
    these and the tuned ones. None of them was tuned."""
    tuned = [each for each, _ in line.tuned if lengths is None or lengths[0] <= each <= lengths[1]]
    ends = sorted({*tuned, *(lengths or ())})
    found = {each for low, high in pairwise(ends) for each in _between(low, high)} | set(ends)
    return tuple(sorted(found - {each for each, _ in line.tuned}))


def _between(low: int, high: int) -> Iterator[int]:
    """Lengths between two, evenly in proportion: odd ones and multiples of a tile by turns, no powers of two."""
    if high - low < 2:
        return
    steps = max(2, math.ceil(PER_DOUBLING * math.log2(high / low)))
    for step in range(1, steps):
        length = round(low * (high / low) ** (step / steps))
        odd, even = length | 1, TILE * round(length / TILE)
        wanted = odd if step % 2 or even & (even - 1) == 0 else even
        yield next(each for each in (wanted, odd, length, low + 1) if low < each < high)


def to_try(
    problems: Sequence[Problem], used: Sequence[int | None], lengths: Lengths | None, vary: Sequence[str]
) -> tuple[Trying, ...]:
    """What is to be tried: on each line the trials that serve one of its tuned problems (`used`, by place; None: the
    baseline), on lengths that had no part in tuning. Raises InputError where there is nothing to try."""
    found: list[Trying] = []
    lines = lines_of(problems, vary)
    for line in lines:
        numbers = tuple(dict.fromkeys(number for _, place in line.tuned if (number := used[place]) is not None))
        points = tried(line, lengths)
        if numbers and points:
            found.append(Trying(numbers, tuple(line.at(each) for each in points), line.vary))
    if found:
        return tuple(found)
    if not any(number is not None for number in used):
        raise InputError("the baseline serves every problem of the study: there is no variant to try")
    if not lines:
        raise InputError(f"no length varies: name one with --vary, of {', '.join(problems[0].LENGTHS)}")
    raise InputError("one length was tuned: say between which ones it shall serve, such as --lengths 128-2048")


# What was found -------------------------------------------------------------------------------------------------------


class Shown(NamedTuple):
    """A variant at a length that it was timed on."""

    length: int
    faster: bool
    log_ratio: float
    validated: Validated | None
    """None: it was tuned."""
    record: ValidationRecord | None


class Ranges(NamedTuple):
    """What the table says beside its entries."""

    ranges: tuple[Range, ...]
    left_out: tuple[LeftOut, ...]


def ranges_of(
    problems: Sequence[Problem], finals: Mapping[str, Sequence[Confirmed | None]], records: Sequence[ValidationRecord]
) -> Ranges:
    """By what the finals showed of the variants of a table on each problem, and the last validation of each length."""
    last = {
        (record.digest, problem): (record, place)
        for record in records
        if record.digest in finals
        for place, problem in enumerate(record.problems)
    }
    left_out = tuple(
        LeftOut(problem=problem, use=use, why=why)
        for (use, problem), (record, place) in last.items()
        if (why := _why_not(record, place)) is not None
    )
    ranges: list[Range] = []
    for line in dict.fromkeys(line for record in records for line in lines_of(problems, record.vary)):
        known = {use: _known(line, use, shown, last) for use, shown in finals.items()}
        ranges += _on_line(line, known)
    return Ranges(tuple(ranges), left_out)


def _known(
    line: LengthSeries,
    use: str,
    finals: Sequence[Confirmed | None],
    last: Mapping[tuple[str, Problem], tuple[ValidationRecord, int]],
) -> list[Shown]:
    """What is known of a variant on a line, by length."""
    found: list[Shown] = []
    for length, place in line.tuned:
        ratio = finals[place]
        if ratio is not None:
            found.append(Shown(length, ratio.log_ratio.high < 0, ratio.log_ratio.mid, None, None))
    for (digest, problem), (record, place) in last.items():
        length = getattr(problem, line.vary[0])
        is_one = len({getattr(problem, name) for name in line.vary}) == 1
        is_on = is_one and problem.model_copy(update=dict.fromkeys(line.vary, 1)) == line.like
        if digest != use or not is_on:
            continue
        ratio = _ratio(record, place)
        if ratio is None:
            found.append(Shown(length, False, math.inf, None, record))
            continue
        shown = Validated(problem=problem, baseline=record.baselines[place], speedup=ratio_of(ratio))
        found.append(Shown(length, ratio.log_ratio.high < 0, ratio.log_ratio.mid, shown, record))
    return sorted(found, key=lambda each: each.length)


def _on_line(line: LengthSeries, known: Mapping[str, list[Shown]]) -> Iterator[Range]:
    """From each known length to the next one the variant that was fastest on both, of those that were faster than the
    baseline on both; neighbours with the same variant are one range."""
    points = sorted({each.length for shown in known.values() for each in shown})
    joined: list[tuple[str, list[int]]] = []
    for low, high in pairwise(points):
        costs = {use: cost for use, shown in known.items() if (cost := _cost(shown, low, high)) is not None}
        if not costs:
            continue
        use = min(costs, key=lambda each: costs[each])
        if joined and joined[-1][0] == use and joined[-1][1][-1] == low:
            joined[-1][1].append(high)
        else:
            joined.append((use, [low, high]))
    for use, lengths in joined:
        yield _range(line, use, known[use], lengths[0], lengths[-1])


def _cost(shown: Sequence[Shown], low: int, high: int) -> float | None:
    """The mean log-ratio on the nearest known lengths around an interval; None where the variant is not to serve it."""
    below = [each for each in shown if each.length <= low][-1:]
    above = [each for each in shown if each.length >= high][:1]
    ends = below + above
    if len(ends) < 2 or not all(each.faster for each in ends) or all(each.validated is None for each in ends):
        return None
    return sum(each.log_ratio for each in ends) / 2


def _range(line: LengthSeries, use: str, shown: Sequence[Shown], low: int, high: int) -> Range:
    """With all lengths on which it was tried, from the nearest known one below to the nearest above."""
    first = max(each.length for each in shown if each.length <= low)
    last = min(each.length for each in shown if each.length >= high)
    within = [each for each in shown if first <= each.length <= last and each.validated is not None]
    record = max((each.record for each in within if each.record is not None), key=lambda each: each.id)
    assert record.gate is not None  # what was timed has passed it
    return Range(
        use=use,
        like=line.at(low),
        low=line.at(low).shape,
        high=line.at(high).shape,
        together=line.vary if len(line.vary) > 1 else (),
        proven=proven_of(record.gate),
        validated=tuple(each.validated for each in within if each.validated is not None),
    )


def ratio_of(found: Confirmed) -> Ratio:
    """What a table says of a confirmed ratio: t_baseline / t_variant, without its infinite ends."""
    return Ratio(**dict(found.log_ratio.speedup), processes=found.processes)


def proven_of(gate: GateReport) -> Proven:
    """What a table says of a gate report: some of its figures, without infinite ones."""
    return Proven.model_validate_json(GateSummary.of(gate).model_dump_json(include={*Proven.model_fields}))


def _ratio(record: ValidationRecord, place: int) -> Confirmed | None:
    return None if record.fault is not None else confirmed_at(record.heats, record.digest, place)


def _why_not(record: ValidationRecord, place: int) -> str | None:
    """Why the variant does not serve a length that it was tried on; None where it may."""
    if record.fault is not None:
        return f"a variant was tried and failed: {record.fault.code}, {record.fault.detail}"
    found, baseline = _ratio(record, place), record.baselines[place]
    if found is not None and found.log_ratio.high < 0:
        return None
    said = "" if found is None else f": {found.log_ratio.speedup.mid:.3f}x"
    return f"a variant was tried and not shown to be faster than the baseline {baseline}{said}"
