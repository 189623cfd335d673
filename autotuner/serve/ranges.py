"""What a table may serve between tuned lengths, by what was found there.

Known lengths of a variant on a line (tuning/finals/validation.py) are those on which it was timed. Between two
neighbours of these it may serve where it was faster than the baseline on both, and one of them was not tuned.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from autotuner.race.confirm import Confirmed
from autotuner.store import ValidationRecord
from autotuner.tuning.finals.validation import LengthSeries, confirmed_at, lines_of
from autotuner.tuning.trial_report import GateSummary
from autotuner.values.gate_report import GateReport
from autotuner.values.problem import Problem
from autotuner.values.table import LeftOut, Proven, Range, Ratio, Validated


class Shown(NamedTuple):
    """A variant at a length that it was timed on."""

    length: int
    ratio: Confirmed | None
    """None: it failed there."""
    record: ValidationRecord | None = None
    """None: it was tuned."""
    place: int = 0
    """Of the problem among those of the record."""

    @property
    def is_faster(self) -> bool:
        """Than the baseline."""
        return self.ratio is not None and self.ratio.log_ratio.high < 0


Last = Mapping[tuple[str, Problem], tuple[ValidationRecord, int]]
"""By artifact and problem the last validation, and the place of the problem in it."""


class Ranges(NamedTuple):
    """What the table says beside its entries."""

    ranges: tuple[Range, ...]
    left_out: tuple[LeftOut, ...]


def ranges_of(
    problems: Sequence[Problem], finals: Mapping[str, Sequence[Confirmed | None]], records: Sequence[ValidationRecord]
) -> Ranges:
    """By what the finals showed of the variants of a table on each problem, and the last validation of each length."""
    last: Last = {
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


def _known(line: LengthSeries, use: str, finals: Sequence[Confirmed | None], last: Last) -> list[Shown]:
    """What is known of a variant on a line, by length."""
    found = [Shown(length, ratio) for length, place in line.tuned if (ratio := finals[place]) is not None]
    for (digest, problem), (record, place) in last.items():
        length = line.length_of(problem)
        if digest == use and length is not None:
            found.append(Shown(length, _ratio(record, place), record, place))
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
    ends = [each for each in shown if each.length <= low][-1:] + [each for each in shown if each.length >= high][:1]
    if len(ends) < 2 or not all(each.is_faster for each in ends) or all(each.record is None for each in ends):
        return None
    return sum(each.ratio.log_ratio.mid for each in ends if each.ratio is not None) / 2


def _range(line: LengthSeries, use: str, shown: Sequence[Shown], low: int, high: int) -> Range:
    """With all lengths on which it was tried, from the nearest known one below to the nearest above."""
    first = max(each.length for each in shown if each.length <= low)
    last = min(each.length for each in shown if each.length >= high)
    within = [
        (each.record, each.place, each.ratio)
        for each in shown
        if first <= each.length <= last and each.record is not None and each.ratio is not None
    ]
    record = max((record for record, _, _ in within), key=lambda each: each.id)
    assert record.gate is not None  # what was timed has passed it
    return Range(
        use=use,
        like=line.at(low),
        low=line.at(low).shape,
        high=line.at(high).shape,
        together=line.vary if len(line.vary) > 1 else (),
        proven=proven_of(record.gate),
        validated=tuple(
            Validated(problem=of.problems[place], baseline=of.baselines[place], speedup=ratio_of(ratio))
            for of, place, ratio in within
        ),
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
