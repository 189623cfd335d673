"""What readers of the pages cost a real sweep: how long a trial takes to be recorded, and the sweep as a whole.

    python -m benchmarks.service.readers [--trials 40] [--readers 8] [--json docs/results/service_readers.json]
        [--space SPACE] [--full-speed]

Three sweeps of one space, each in a store and a cache of its own: alone, beside readers, and alone again. The two alone
say how far two quiet sweeps are apart. Each reader asks for two pages a second, with --full-speed for one as soon as it
has another, of the study that is being searched and of a made-up one; the server is `autotuner serve`, and the readers
are a process of their own. Ends with exit code 1 where something was locked or lost, or where the median of recording
beside readers is more than 10 ms above that of the first quiet sweep; at full speed, where the sweep beside readers
took longer than the quiet ones by more than these differ.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import autotuner
from autotuner.store import Store, queries
from autotuner.store.store import Unwritten
from autotuner.values.errors import StoreError
from benchmarks.provenance import provenance
from benchmarks.service.made_up import spread_times, write
from tests.helpers.browser import served

SPACE = "sdpa_cpu"
A_SECOND = 2.0
"""Requests a second of one reader."""
ALLOWED_MS = 10.0
"""By how much recording a trial may take longer beside readers."""
TABS = ("", "/rejects", "/variants", "/leaderboard", "/costs")
LIST, OTHERS = "/api/v1/studies", ("/", "/queue", "/metrics")


class Recording:
    """How long each trial of a sweep took to be recorded, and what went wrong with it."""

    def __init__(self) -> None:
        self.ms: list[float] = []
        self.ended: list[float] = []
        self.refused = 0
        self.kept = 0

    @contextmanager
    def listens(self) -> Iterator[None]:
        """Times what the sweep of this process records while the block runs."""
        record, keep = Store.record, Unwritten.keep

        def timed(*arguments: Any) -> None:
            began = time.perf_counter()
            try:
                record(*arguments)
            except StoreError:
                self.refused += 1
                raise
            self.ended.append(time.perf_counter())
            self.ms.append(1e3 * (self.ended[-1] - began))

        def counted(*arguments: Any) -> None:
            self.kept += 1
            keep(*arguments)

        Store.record, Unwritten.keep = timed, counted  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            Store.record, Unwritten.keep = record, keep  # type: ignore[method-assign]

    def summary(self) -> dict[str, Any]:
        """Milliseconds of one record, and seconds from one to the next."""
        ordered = sorted(self.ms)
        between = [later - sooner for sooner, later in zip(self.ended, self.ended[1:], strict=False)]
        return {
            "trials": len(ordered),
            "record_ms": round(statistics.median(ordered), 2),
            "record_p95_ms": round(ordered[int(0.95 * (len(ordered) - 1))], 2),
            "record_max_ms": round(ordered[-1], 2),
            "trial_s": round(statistics.median(between), 3),
            "locked": self.kept,
            "refused": self.refused,
        }


def sweep(store: Path, space: str, trials: int) -> dict[str, Any]:
    """One sweep in a process of its own: what builds and judges there keeps to the cache that it began with."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_sweep, store, space, trials).result()


def _sweep(store: Path, space: str, trials: int) -> dict[str, Any]:
    """One sweep in this process, its variants built anew."""
    heard = Recording()
    with tempfile.TemporaryDirectory(prefix="autotuner-readers-cache-") as cache:
        os.environ["AUTOTUNER_CACHE"] = cache
        began = time.monotonic()
        with heard.listens():
            threads = 1 if space == SPACE else None
            study = autotuner.tune(
                space=space, trials=trials, threads=threads, finals=False, patience_minutes=0.0, store=store
            )
        seconds = round(time.monotonic() - began, 1)
    with Store.open(str(store), read_only=True) as opened:
        judged = queries.judged(opened, study.name)
    right = sum(each.code is None for each in judged)
    return {**heard.summary(), "seconds": seconds, "asked": trials, "judged": len(judged), "right": right}


@contextmanager
def readers(url: str, count: int, full_speed: bool) -> Iterator[dict[str, Any]]:
    """Readers in a process of their own while the block runs; afterwards what they say of their requests."""
    words = [sys.executable, "-m", __spec__.name, "--read", url, "--readers", str(count)]
    words += ["--full-speed"] if full_speed else []
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    said: dict[str, Any] = {}
    try:
        yield said
    finally:
        answer, _ = process.communicate("", timeout=60)
        said |= json.loads(answer)


def read(url: str, count: int, full_speed: bool) -> None:
    """Reads until standard input ends, then prints the statuses of all answers."""
    os.nice(10)  # readers are elsewhere: they take from the sweep as little as this machine lets them
    stop, statuses, slowest = threading.Event(), Counter[str](), [0.0]

    def ask(path: str) -> bytes:
        began, answer = time.monotonic(), b""
        try:
            with urllib.request.urlopen(f"{url}{path}", timeout=60) as opened:
                answer, status = opened.read(), str(opened.status)
        except urllib.error.HTTPError as error:
            status = str(error.code)
        except (OSError, http.client.HTTPException) as error:
            status = type(error).__name__
        statuses[status] += 1
        slowest[0] = max(slowest[0], time.monotonic() - began)
        return answer

    def reader(place: int) -> None:
        names: list[str] = []
        while not stop.wait(0.0 if full_speed else 1 / A_SECOND):
            paths = [LIST, *OTHERS, *(f"/studies/{name}{tab}" for name in names for tab in TABS)]
            path, place = paths[place % len(paths)], place + 1
            answer = ask(path)
            if path == LIST and answer:
                names = [each["name"] for each in json.loads(answer)["studies"]]

    threads = [threading.Thread(target=reader, args=(3 * each,)) for each in range(count)]
    for each in threads:
        each.start()
    sys.stdin.read()
    stop.set()
    for each in threads:
        each.join()
    print(json.dumps({"requests": statuses.total(), "statuses": statuses, "slowest_s": round(slowest[0], 2)}))


def compare(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The three sweeps."""
    space, trials, count = options.space, options.trials, options.readers
    first = folder / "alone.db"
    with Store.open(str(first)) as store:
        name = write(store, options.made_up)
    spread_times(first, name)
    found: dict[str, Any] = {"space": space, "readers": count}
    found["requests_a_second"] = "full speed" if options.full_speed else A_SECOND * count
    for key in ("beside_readers", "alone_again"):
        shutil.copy(first, folder / f"{key}.db")
    found["alone"] = sweep(first, space, trials)
    with (
        served(folder / "beside_readers.db", "--read-only") as server,
        readers(server.url, count, options.full_speed) as said,
    ):
        found["beside_readers"] = sweep(folder / "beside_readers.db", space, trials)
    found["beside_readers"] |= {"answers": said}
    found["alone_again"] = sweep(folder / "alone_again.db", space, trials)
    return found


def faults(found: dict[str, Any]) -> list[str]:
    """What does not hold, in words."""
    beside, alone = found["beside_readers"], found["alone"]
    wrong = [f"beside readers: {beside[what]} {what}" for what in ("locked", "refused") if beside[what]]
    later = beside["record_ms"] - alone["record_ms"]
    if later > ALLOWED_MS:
        wrong.append(f"a trial is recorded {later:.1f} ms later beside readers, {ALLOWED_MS:g} ms are allowed")
    quiet = alone["seconds"], found["alone_again"]["seconds"]
    if found["requests_a_second"] == "full speed" and beside["seconds"] > 2 * max(quiet) - min(quiet):
        wrong.append(
            f"the sweep took {beside['seconds']:.1f} s beside readers, {quiet[0]:.1f} and {quiet[1]:.1f} alone"
        )
    for name in ("alone", "beside_readers", "alone_again"):
        judged, asked = found[name]["judged"], found[name]["asked"]
        if judged < asked:
            wrong.append(f"{name}: {judged} of {asked} variants were judged; was the machine quiet?")
        elif not found[name]["right"]:
            wrong.append(f"{name}: no variant was right: no sweep was watched")
    odd = {status: count for status, count in beside["answers"]["statuses"].items() if status != "200"}
    return wrong + ([f"answers other than 200: {odd}"] if odd else [])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.readers", description=__doc__)
    parser.add_argument("--space", default=SPACE)
    parser.add_argument("--full-speed", action="store_true")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--made-up", type=int, default=2000, help="trials of the study beside the one that is searched")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--read", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read is not None:
        read(options.read, options.readers, options.full_speed)
        return
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="autotuner-readers-") as name:
        found = {"load_before": load, **compare(Path(name), options)}
    wrong = faults(found)
    print(json.dumps(found, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps({**provenance(), **found}, indent=1) + "\n")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
