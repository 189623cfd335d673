"""An hour of a queue: workers are struck, its server is killed, its disk filled and emptied, while clients read.

    python -m benchmarks.driver.queue_soak [--minutes 60] [--every 60] [--json docs/results/queue_soak.json] [--hold]

Two workers have one device: one works, the other stands by. A sweep of its own problem is asked for whenever none
waits. Every so many seconds on average one of the things of benchmarks/driver/chaos.py happens to a worker, the first
time a lock of the store for two minutes; or the disk is full for half a minute. Store and cache lie on it: a file
system in memory, which only root can mount. The server lives a quarter of the time and is killed while clients read.
Processes, builds and the gate are real, times are drawn (tests/plugins/drawn_cpu).

Exit code 1 where an outcome was lost or judged twice, a sweep was not done, or something was left running; with --hold
also where an answer was a fault of the server, where workers or server took more memory in the last third of the time
than MOST times what they had taken before, or where nothing was struck, filled or read.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotuner.store import Store, queries, sweeps
from autotuner.values import config
from autotuner.values.sweep import State
from benchmarks import holds
from benchmarks.provenance import provenance
from benchmarks.service.readers import readers
from tests.helpers.browser import served
from tests.helpers.chaos import AROUND, DRAWN, Chaos, lay_out_drawn, recorded, require_whole

MIB = 1 << 20
DISK_MIB, FULL_S = 2048, 30.0
FIRST_LOCK_S = 120.0
TRIALS, READERS, LIVES = 100, 8, 4
STUCK_S = 600.0
"""Seconds after the last strike in which no trial is judged, though a sweep has not come to its end."""
MOST = 1.1


@contextmanager
def disk(place: Path) -> Iterator[Path]:
    """A small disk that is there while the block runs. Exits where it cannot be mounted."""
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)]).returncode:
        sys.exit("queue_soak: a disk to fill can only be mounted by root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


class Queue:
    """A queue that never is empty, and what happens to it."""

    def __init__(self, folder: Path, disk: Path, seed: int = 20) -> None:
        self.store, self._ballast, self._emptied = disk / "studies.db", disk / "ballast", 0.0
        self._draw = random.Random(seed)
        self.workers = [
            Chaos(folder, str(self.store), each, first_lock_s=FIRST_LOCK_S, devices=DRAWN) for each in (1, 2)
        ]
        self.server: list[float] = []
        """MiB, a sample a second."""
        self.done = Counter[str]()
        self._before: dict[str, list[dict[int, tuple[str, str]]]] = {}

    def goes_on(self, server: int | None) -> None:
        """Looks after workers and disk, and asks for a sweep where none waits. `server`: its process."""
        for each in self.workers:
            each.see_to_the_worker()
        if self._ballast.exists() and time.monotonic() > self._emptied:
            self._ballast.unlink()
        if server is not None:
            pages = int(Path(f"/proc/{server}/statm").read_text().split()[1])
            self.server.append(pages * os.sysconf("SC_PAGE_SIZE") / MIB)
            if not self._ballast.exists() and not self.states()[State.QUEUED]:
                rows = 64 + sum(self.states().values())
                asked = ["space.toml", "--problem", f"({rows},512) float32", "--trials", str(TRIALS)]
                self.workers[0].command("submit", *asked, "--no-finals", "--cold", "--calm")
        time.sleep(1.0)

    def states(self) -> Counter[State]:
        """Sweeps by state."""
        with Store.open(str(self.store)) as store:
            return Counter(each.state for each in sweeps.every(store))

    def judged(self) -> int:
        """Trials, of all sweeps."""
        with Store.open(str(self.store)) as store:
            return sum(each.found.judged for each in sweeps.every(store) if each.found is not None)

    def strike(self) -> str:
        """One thing happens; what."""
        kind = None if self.done["lock"] else "lock"
        if kind is None and not self._ballast.exists() and self._draw.random() < 1 / 8:
            self._emptied = time.monotonic() + FULL_S
            try:
                with self._ballast.open("wb") as file:
                    while True:
                        file.write(bytes(MIB))
            except OSError:
                did = "disk"
        else:
            did = self._draw.choice(self.workers).strike(kind)
        self.done[did] += 1
        if not self._ballast.exists():
            with Store.open(str(self.store)) as store:
                for study in queries.names(store):
                    self._before.setdefault(study, []).append(recorded(store, study))
        return did

    def end(self) -> int:
        """Lets every sweep come to its end; the trials judged. Raises AssertionError where not all is whole."""
        judged, until = -1, 0.0
        while self.states()[State.QUEUED] + self.states()[State.RUNNING]:
            if (found := self.judged()) > judged:
                judged, until = found, time.monotonic() + STUCK_S
            elif time.monotonic() > until:
                break
            self.goes_on(None)
        for each in self.workers:
            each.end_worker()
        for each in self.workers:
            each.wait_for_the_rest()
        with Store.open(str(self.store)) as store:
            every = sweeps.every(store)
            return sum(require_whole(store, each, self._before.get(str(each.study), [])) for each in every)


def soaked(queue: Queue, minutes: float, every_s: float) -> dict[str, Any]:
    """What became of the queue. Raises AssertionError."""
    draw, began = random.Random(7), time.monotonic()
    due, answers, slowest_s = began + every_s / 2, Counter[str](), 0.0
    queue.states()  # makes the store
    queue.goes_on(None)
    for life in range(1, LIVES + 1):
        with served(queue.store) as server, readers(server.url, READERS, False) as said:
            while time.monotonic() < began + 60 * minutes * life / LIVES:
                queue.goes_on(server.pid)
                if time.monotonic() >= due:
                    did = queue.strike()
                    due = time.monotonic() + (draw.expovariate(1 / every_s) if did else 1.0)
                    print(f"{time.monotonic() - began:6.0f} s: {did or 'nothing to strike'}", flush=True)
            server.kill()
        answers, slowest_s = answers + Counter(said["statuses"]), max(slowest_s, said["slowest_s"])
    judged = queue.end()
    memory = [max(one[0], other[0]) for one, other in zip(*(each.memory for each in queue.workers), strict=False)]
    del queue.done[""]
    return {
        "wall_s": round(time.monotonic() - began, 1),
        "sweeps": sum(queue.states().values()),
        "judged": judged,
        "strikes": dict(sorted(queue.done.items())),
        "server_killed": LIVES,
        "answers": dict(sorted(answers.items())),
        "slowest_answer_s": slowest_s,
        "slowest_end_s": round(max(each.slowest_end_s for each in queue.workers), 2),
        "worker_mib_by_third": by_third(memory),
        "server_mib_by_third": by_third(queue.server),
    }


def by_third(samples: Sequence[float]) -> list[float]:
    """The largest of each third."""
    third = len(samples) // 3
    return [round(max(samples[place * third : (place + 1) * third]), 1) for place in range(3)]


def unmet(found: dict[str, Any]) -> list[str]:
    """What does not hold."""
    said = [f"{count} answers {status}" for status, count in found["answers"].items() if status == "500"]
    for what in ("worker", "server"):
        *before, last = found[f"{what}_mib_by_third"]
        said += [f"{what}: {last} MiB, {max(before)} before"] if last > MOST * max(before) else []
    said += [f"no {what}" for what in ("disk", "lock", "worker") if not found["strikes"].get(what)]
    return said + ([] if found["answers"].get("200") else ["nothing was read"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two strikes, on average")
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotuner-soak-") as name, disk(Path(name) / "disk") as small:
        lay_out_drawn(Path(name))
        os.environ.update(AROUND, **{config.CACHE: str(small / "cache")})
        try:
            found = soaked(Queue(Path(name), small), options.minutes, options.every)
        except AssertionError as error:
            print((Path(name) / "worker.log").read_text()[-4000:], file=sys.stderr)
            holds.require([str(error)])
            raise
    document = {**provenance(), "minutes": options.minutes, "every_s": options.every, **found}
    print(json.dumps(document, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.hold:
        holds.require(unmet(found))


if __name__ == "__main__":
    main()
