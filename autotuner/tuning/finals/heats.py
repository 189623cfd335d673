"""Heats of the finals: each a fresh process with one finalist and the baseline.

The baseline is timed in processes of its own, too, in which no variant was ever loaded. They say whether it is a
finalist that makes the baseline beside it slow.
"""

from collections import Counter
from typing import Literal

from autotuner.race.blocks import shortest_quarter
from autotuner.race.calibrate import slowed
from autotuner.race.confirm import FINAL_BLOCKS
from autotuner.race.plausible import moves_bytes
from autotuner.race.statistics import median_interval
from autotuner.race.tie import logs
from autotuner.run.executor import ask
from autotuner.run.jobs import RaceJob
from autotuner.store import OtherCache
from autotuner.tuning.finals.retrials import TRIES, Retrials
from autotuner.values.conditions import Conditions
from autotuner.values.errors import InfrastructureError
from autotuner.values.outcome import Artifact, Heat
from autotuner.values.ratio import combined
from autotuner.values.verdict import Fault, Verdict

WITNESS = "measure.witness"
STRIKES = 5
"""Times that the baseline is slow beside a finalist, and not by itself before and right after, until that is its doing.
Baselines of some ten microseconds differ from process to process, so two or three times may be chance."""
SLOW = 0.15
"""How much longer the baseline may take beside a variant than by itself, relative: a variant heats the device, and
leaves caches and threads in another state."""
HELD_UP = 0.5
"""Share of held up blocks from which on a heat says nothing of that."""


class FinalHeats:
    """Runs heats."""

    def __init__(self, trials: Retrials) -> None:
        """`trials`: calibrated."""
        self._trials, self._conditions = trials, trials.conditions
        self._witness: Heat | None = None
        """The last one."""
        self._held = Counter[str]()  # heats of each finalist, by its digest

    def draw(self, seeds: tuple[int, int, int, int]) -> None:
        """The inputs of the next heats are drawn from these seeds."""
        self._conditions = self._conditions.model_copy(update={"seeds": seeds})

    def witness(self) -> Heat:
        """The baseline alone. Raises InfrastructureError when it cannot be timed."""
        found = self._race()
        if isinstance(found, Fault):
            raise InfrastructureError(f"the baseline cannot be timed: {found.detail}")
        self._witness = found
        return found

    def of(self, artifact: Artifact) -> tuple[Heat | None, Fault | None]:
        """A finalist's heat, in a process that audits it after and judges it before, or in every second one in the end:
        what is only timed is timed so by whoever uses it. Or its fault, with the heat in which it showed, if any.

        Raises InfrastructureError when processes are lost again and again.
        """
        slower: list[float] = []
        while len(slower) < STRIKES:
            result = self._race(artifact)
            if isinstance(result, Fault):
                return None, result
            before = self._witness or self.witness()
            if slower_beside(result, before) <= SLOW or slower_beside(result, self.witness()) <= SLOW:
                return result, result.faults.get(0)
            slower.append(slower_beside(result, self.witness()))
        times = ", ".join(f"{100 * each:.0f}" for each in slower)
        detail = f"the baseline takes {times} % longer beside it than by itself right before and after"
        return None, Fault(verdict=Verdict.IMPOSSIBLE, code=WITNESS, detail=detail)

    def other_cache(self, artifact: Artifact) -> OtherCache | Fault | None:
        """What it takes in the other state of the caches, where that may be another answer: where moving a problem's
        bytes takes longer than its operations. A fault is the finalist's own. Raises as `of`."""
        conditions = self._conditions
        ceilings = conditions.ceilings
        if ceilings is None or not any(moves_bytes(problem, ceilings) for problem in conditions.problems):
            return None
        cache: Literal["cold", "warm"] = "warm" if conditions.cache == "cold" else "cold"
        heat = self._race(artifact, conditions=conditions.model_copy(update={"cache": cache, "baselines_us": ()}))
        if isinstance(heat, Fault) or heat.faults:
            return heat if isinstance(heat, Fault) else heat.faults[0]
        speedup = median_interval(combined(logs(heat, 0), conditions.objective)).speedup
        return OtherCache(cache=cache, speedup=speedup)

    def _race(self, *artifacts: Artifact, conditions: Conditions | None = None) -> Heat | Fault:
        """A heat, or a fault of the finalist's own."""
        why: object = None
        judged: Literal["before", "after"] | None = None
        for each in artifacts:
            judged = "after" if self._held[each.digest] % 2 else "before"
            self._held[each.digest] += 1
        under = conditions or self._conditions
        for _ in range(TRIES):
            job = RaceJob(artifacts=artifacts, conditions=under, blocks=FINAL_BLOCKS, judged=judged, fresh=True)
            result = ask(self._trials.executor, job, self._trials.beat)
            if isinstance(result, Heat) and result.held_up >= HELD_UP:
                result = slowed(result.baseline_us, under.baselines_us) or result
            if isinstance(result, Heat) or (isinstance(result, Fault) and result.verdict.judges):
                return result
            why = result.detail if isinstance(result, Fault) else result
        raise InfrastructureError(f"the finals cannot be raced: {why}")


def slower_beside(heat: Heat, witness: Heat) -> float:
    """How much longer the baseline took beside a variant than by itself, relative: on the problem where it is most, by
    the shorter samples. 0 where either was held up too often to say."""
    if max(heat.held_up, witness.held_up) >= HELD_UP:
        return 0.0
    pairs = zip(_short(heat), _short(witness), strict=True)
    return max(beside / alone - 1 for beside, alone in pairs)


def _short(heat: Heat) -> list[float]:
    """Microseconds of the baseline, by its shorter samples; one a problem."""
    waited = heat.baseline_waited_us or [()] * len(heat.baseline_us)
    return [shortest_quarter(us, lost) for us, lost in zip(heat.baseline_us, waited, strict=True)]
