"""Finals of a simulated study, whose truth is known."""

import sqlite3
from collections.abc import Callable

from autotuner.store import FinalsRecord, Store
from autotuner.tuning.finals.finals import Finals
from autotuner.tuning.finals.retrials import Retrials, Step
from autotuner.values.outcome import Outcome
from autotuner.values.ratio import LogRatio
from autotuner.values.variant import Variant
from tests.helpers import driven, simulated
from tests.helpers.fake_line import Deviations, FakeLine, Truth
from tests.helpers.inline_executor import InlineExecutor

SPACE = simulated.space()
DEFAULT = Variant.of("sdpa", "cpu", SPACE.point(SPACE.default_index)).digest
DEVIATIONS = Deviations(noise=0.004, spikes=0.02, process=0.002)
Truths = Callable[[Variant], Truth]


def executor(truth: Truths, deviations: Deviations = DEVIATIONS) -> InlineExecutor:
    """Each fresh process is another one."""
    seeds = iter(range(1, 1000))
    return InlineExecutor(
        FakeLine(truth, deviations=deviations), fresh=lambda: FakeLine(truth, deviations=deviations, seed=next(seeds))
    )


def swept(store: Store, truth: Truths, trials: int = 40) -> str:
    """Searches the simulated space; the study's name."""
    return driven.swept(store, executor(truth), trials)


def confirmed(
    store: Store, study: str, by: InlineExecutor, listen: Callable[[Step], None] = lambda _: None
) -> FinalsRecord:
    """Holds the finals of a study."""
    return Finals(Retrials(store, study, simulated.conditions(), by, {"os": "none"}, listen), DEFAULT).run()


def flatter(raw: sqlite3.Connection, number: int) -> None:
    """Makes a recorded trial of a store look e**4 times as fast as it was."""
    (text,) = raw.execute("SELECT outcome FROM at_trial WHERE number = ?", (number,)).fetchone()
    outcome = Outcome.model_validate_json(text)
    timings = tuple(
        timing.model_copy(
            update={
                "log_ratio": LogRatio(
                    **{name: getattr(timing.log_ratio, name) - 4.0 for name in ("low", "mid", "high")}
                )
            }
        )
        for timing in outcome.measurement.timings
    )
    objective = outcome.measurement.objective - 4.0
    measurement = outcome.measurement.model_copy(update={"timings": timings, "objective": objective})
    wrong = outcome.model_copy(update={"measurement": measurement})
    raw.execute(
        "UPDATE at_trial SET outcome = ?, objective = ? WHERE number = ?", (wrong.model_dump_json(), objective, number)
    )
