"""How long the figures of a study of ten thousand trials take: each one's median of several calls, in a warm process.

    python -m benchmarks.throughput.figures [--trials 10000] [--postgresql] [--json docs/results/figures.json] [--hold]

The study is made up, with outcomes as large as real ones. With --hold the exit code is 1 where a figure of the database
takes more than 100 ms. `beliefs_ms` are of `autotuner explain`: a model is fitted once for each revision of the study,
and what it says is then read from the cache, in this process as in the next one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from autotuner.store import Store, figures, queries
from autotuner.tuning.run.plan import Plan
from autotuner.values import config
from autotuner.values.outcome import Outcome
from autotuner.values.variant import Variant
from autotuner.views.beliefs import kept_beliefs
from autotuner.views.figure_tables import comparison
from benchmarks import holds
from benchmarks.provenance import provenance
from benchmarks.service.made_up import write
from tests.helpers import postgresql, recorded, simulated

MOST_MS = 100.0
CALLS = 5


def outcome_of(number: int, draw: random.Random, point: dict[str, int | str]) -> Outcome:
    """A made-up outcome with 60 blocks; every third one is a reject. Four parameters more tell variants apart, as the
    space has fewer points."""
    base = recorded.rejected(number) if number % 3 == 0 else recorded.measured(number, 50 + 50 * draw.random())
    digits = {f"DIGIT_{place}": number // 10**place % 10 for place in range(4)}
    variant = Variant.of("sdpa", "cpu", {**point, **digits})
    assert base.artifact is not None
    artifact = base.artifact.model_copy(update={"variant": variant})
    changes: dict[str, Any] = {"variant": variant, "artifact": artifact, "stderr_tail": "x" * 8000}
    return base.model_copy(update=changes)


def fill(store: Store, trials: int, device: str) -> str:
    """A study of `trials`; its name."""
    space, draw = simulated.space(), random.Random(7)
    device_of = simulated.DEVICE.model_copy(update={"name": device})
    record = Plan(space, device_of, simulated.conditions()).record
    store.ensure_study(record)
    session = 0
    for number in range(trials):
        if number % 1000 == 0:
            session = store.start_session(record.name, recorded.CALIBRATION, {})
        point = space.point(draw.randrange(len(space)))
        store.record(record.name, session, number, outcome_of(number, draw, point))
    return record.name


def timed(call: Callable[[], object]) -> float:
    """Milliseconds, the median of several calls."""
    call()
    return median(once(call) for _ in range(CALLS))


def once(call: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    started = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--postgresql", action="store_true", help="on a server that is started for it")
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(postgresql.running()) if options.postgresql else None
        place = server.url() if server is not None else str(Path(folder) / "studies.db")
        store = stack.enter_context(Store.open(place))
        one, other = (fill(store, options.trials, device) for device in ("one", "another"))
        database: dict[str, Callable[[], object]] = {
            "history": lambda: figures.history(store, one),
            "costs": lambda: figures.costs(store, one),
            "comparison": lambda: comparison(store, one, other),
            "judged_count": lambda: queries.judged_count(store, one),
        }
        milliseconds = {name: round(timed(call), 1) for name, call in database.items()}
        modelled = write(store, options.trials)
        os.environ[config.CACHE] = str(Path(folder) / "cache")
        beliefs = {
            "found": round(once(lambda: kept_beliefs(store, modelled)), 1),
            "kept": round(timed(lambda: kept_beliefs(store, modelled)), 1),
        }
    document = {
        **provenance(),
        "engine": "postgresql" if options.postgresql else "sqlite",
        "trials": options.trials,
        "milliseconds": milliseconds,
        "beliefs_ms": beliefs,
    }
    print(json.dumps(document, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.hold:
        holds.require([f"{name} takes {ms} ms" for name, ms in milliseconds.items() if ms > MOST_MS])


if __name__ == "__main__":
    main()
