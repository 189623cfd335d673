"""A worker with two devices whose PostgreSQL server is restarted at random, on a new database, and what is left."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from autotuner.jobs.outlook import RESTING
from autotuner.store import Store, queries
from benchmarks.driver.chaos import sweep_of
from tests.helpers.chaos import DRAWN, Chaos, lay_out_drawn, recorded, require_whole
from tests.helpers.postgresql import Server

FIRST_S = 10.0
"""Seconds after the worker has said what it serves within which the server is stopped first."""
BETWEEN_S = (2.0, 10.0)
GONE_S = (1.0, 10.0)
GOES, RETURNS = "waits for the store: ", "the store is back after "


class Restarted(NamedTuple):
    """A sweep during which a server was restarted, and that came to its end."""

    restarts: int
    judged: int
    recorded_before: list[int]
    """How many trials were recorded when the server was stopped, each time."""
    gone_s: list[float]
    """Seconds without a server, each time."""
    said_gone: int
    """How often the worker said so; once more than it was restarted, as there was no server when it was started."""
    said_back: int


def restarted_sweep(folder: Path, server: Server, restarts: int, trials: int, draw: random.Random) -> Restarted:
    """Starts a worker while the server is down, restarts the server during the sweep of a new database, then lets it
    end. Raises AssertionError where the worker ended, something was lost or judged twice, or the worker did not say
    that the store went and came back."""
    lay_out_drawn(folder)
    place = server.url()
    chaos = Chaos(folder, place, 0, server, devices=f"{DRAWN}:0,{DRAWN}:1")
    asked = ["space.toml", "--trials", str(trials), "--no-finals", "--cold", "--sampler", "random", "--calm"]
    number = json.loads(chaos.command("submit", *asked, "--json"))["number"]
    before: list[dict[int, tuple[str, str]]] = []
    gone: list[float] = []
    server.stop()
    chaos.see_to_the_worker()
    wait, log = draw.uniform(0.0, FIRST_S), folder / "worker.log"
    try:
        _rest(chaos, 120, lambda: GOES in log.read_text())
        server.start()
        _rest(chaos, 120, lambda: "serves " in log.read_text())
        while len(gone) < restarts:
            _rest(chaos, wait, lambda: False)
            before.append(_there(place))
            if sweep_of(place, number).state in RESTING:
                break
            server.stop()
            since = time.monotonic()
            _rest(chaos, draw.uniform(*GONE_S), lambda: False)
            server.start()
            gone.append(round(time.monotonic() - since, 1))
            wait = draw.uniform(*BETWEEN_S)
        _rest(chaos, 600, lambda: sweep_of(place, number).state in RESTING)
    finally:
        chaos.end_worker()
    chaos.wait_for_the_rest()
    with Store.open(place, create=False) as store:
        judged = require_whole(store, sweep_of(place, number), before)
    said = log.read_text()
    found = Restarted(
        len(gone), judged, [len(each) for each in before[: len(gone)]], gone, said.count(GOES), said.count(RETURNS)
    )
    assert found.said_gone == found.said_back <= len(gone) + 1, said
    return found


def _rest(chaos: Chaos, seconds: float, done: Callable[[], bool]) -> None:
    """Waits, and sees that the worker lives."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not done():
        chaos.require_the_worker()
        time.sleep(min(0.5, max(0.0, until - time.monotonic())))


def _there(place: str) -> dict[int, tuple[str, str]]:
    """What is recorded of the one study; nothing before it is there."""
    with Store.open(place, create=False) as store:
        names = queries.names(store)
        return recorded(store, names[0]) if names else {}
