"""What a sweep's events say, in a line for a person and as data for programs."""

from __future__ import annotations

import math
import statistics

from autotuner.ops import op_of
from autotuner.store.sweeps import Data
from autotuner.tuning.calm import Calm, Protest, Waiting
from autotuner.tuning.driver import Converged, Event, Judged, Started, TieFound, UnderWay
from autotuner.tuning.finals import Step
from autotuner.values.outcome import Outcome
from autotuner.values.problem import Problem
from autotuner.values.verdict import Verdict


def noted(event: Event | Step, trials: int, problem: Problem) -> tuple[str, str, Data] | None:
    """Kind, line and data of what a run tells; None of what is not kept. Looks of one wait are one event."""
    baseline = op_of(problem).words.baseline
    match event:
        case Started():
            of = ", ".join(event.calibration.baselines)
            data: Data = {"study": event.study, "judged": event.judged, "lanes": event.lanes}
            return "started", f"study {event.study}, {event.judged} judged already; {baseline} {of}", data
        case Judged():
            text = f"[{event.judged}/{trials}] trial {event.number}: {outcome_line(event.outcome, baseline)}"
            return "judged", text, _data(event)
        case Waiting():
            return ("waiting", f"waiting: {event.detail}", {}) if event.since_s < 1 else None
        case Calm():
            said = "; ".join(filter(None, [f"calm again after {event.waited_s:.0f} s", event.detail]))
            return "calm", said, {"waited_s": event.waited_s}
        case Protest():
            return "protest", f"disturbed still after {event.waited_s:.0f} s: {event.detail}", {}
        case Converged():
            return "converged", f"what is left promises {event.promise:.2%}, and {event.tie:.2%} is a tie", {}
        case Step():
            return None if event.passing else ("finals", f"finals: {event.text}", {})
        case TieFound() | UnderWay():
            return None


def _data(event: Judged) -> Data:
    outcome = event.outcome
    found = outcome.measurement if outcome.verdict.has_latency else None
    return {
        "trial": event.number,
        "verdict": str(outcome.verdict),
        "code": None if outcome.fault is None else outcome.fault.code,
        "speedup": None if found is None else found.speedup,
        "judged": event.judged,
        "best_speedup": None if event.best is None else math.exp(-event.best),
        "seconds": math.fsum(outcome.seconds.values()),
    }


def outcome_line(outcome: Outcome, baseline: str) -> str:
    """A judged variant in one line."""
    if outcome.measurement is not None:
        note = "" if outcome.verdict == Verdict.MEASURED else f" ({outcome.verdict})"
        micros = statistics.median(outcome.measurement.timings[0].variant_us)
        return f"{outcome.measurement.speedup:.3f}x {baseline}, {micros:.1f} us{note}  {outcome.variant}"
    why = f" {outcome.fault.code}" if outcome.fault else ""
    if outcome.fault is not None and not outcome.verdict.judges:  # not the variant's: a person can help
        why += f" ({outcome.fault.detail.partition(chr(10))[0]})"
    return f"{outcome.verdict}{why}  {outcome.variant}"
