"""A sweep of a store, done by one worker on one GPU; as many as there are GPUs, done by a worker on each, or by one
worker that has them all.

    python -m benchmarks.driver.workers --devices cuda:0,cuda:1 [--trials 144] [--only 1 ...]
        [--json docs/results/workers.json] [--hold]

The sweeps are of one small space, each for a length of its own. Every build is in the cache before the first worker
starts. Workers are not told which sweep to take. There are two rates, in variants a second: of the whole time, in which
the workers' start and the calibrations are; and while all workers judge, from the last one's first variant to the
first one's last, of one worker during each sweep. Needs devices that nothing else uses.

It ends with an error where a trial was lost, judged twice or left running. With --hold the exit code is 1 where a
variant was not judged, or where while they judge two GPUs reach less than 1.8 times one.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from autotuner.jobs.outlook import RESTING
from autotuner.store import Store, sweeps
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Device
from benchmarks import holds
from benchmarks.provenance import provenance
from benchmarks.throughput.rates import fresh_cache
from tests.helpers.chaos import require_whole

SPACE = """
title = "Attention by mma: a part that is swept in a minute"
family = "sdpa"
backend = "cuda"
problems = [{ batch = 1, heads = 8, seq_q = 512, seq_k = 512, head_dim = 64, dtype = "float16", causal = false }]

[parameters]
IMPL = ["mma"]
BLOCK_N = [32, 64]
STAGES = [1, 2]
WARPS_M = [2, 4, 8]
ROW_TILES = [1]
WARPS_N = [1, 2]
SPLIT = [1]
LOAD = ["cp_async"]
MULTICAST = [1]
EXP = ["ex2"]
FIXED = [0]
"""
LENGTHS = range(512, 4096, 128)
"""Of the sweeps' problems, from the first on."""
WANTED = 0.9
"""Of as many times the rate of one as there are devices."""
LOOK_S = 0.2
LIMIT_S = 1200.0
TOGETHER = "1 with all"


def problems(count: int) -> list[str]:
    """A problem for each sweep, as commands take it."""
    return [f"(1,8,{length},64) float16 full" for length in LENGTHS[:count]]


def built(space: Path, trials: int) -> tuple[Device, int]:
    """Builds so many variants, or all; the device, and how many there are."""
    here = Workbench(load_space(str(space)))
    trials = min(trials, len(here.space))
    here.build_all(range(trials))
    return here.device, trials


def called(store: Path, *words: str) -> list[str]:
    """A command of autotuner on that store."""
    return [sys.executable, "-m", "autotuner", *words, "--store", str(store)]


def swept(store: Path, space: Path, trials: int, served: Sequence[str]) -> dict[str, Any]:
    """What became of as many sweeps as there are devices, in a new store; each worker serves what one of `served`
    names."""
    devices = len(",".join(served).split(","))
    for problem in problems(devices):
        words = ["submit", str(space), "--problem", problem, "--trials", str(trials)]
        words += ["--sampler", "exhaustive", "--cold", "--no-finals"]
        subprocess.run(called(store, *words), check=True, stdout=subprocess.DEVNULL)
    started = time.monotonic()
    workers = [
        subprocess.Popen(called(store, "worker", "--devices", each, "--idle-exit"), stdout=sys.stderr)
        for each in served
    ]
    try:
        with Store.open(str(store), create=False) as opened:
            seconds = waited(opened, workers, started)
            judged = sum(require_whole(opened, each, []) for each in sweeps.every(opened))
        return {
            "devices": devices,
            "seconds": round(seconds, 1),
            "judged": judged,
            "whole_rate": round(judged / seconds, 3),
            "rate": round(rate(store), 3),
        }
    finally:
        for each in workers:
            each.terminate()
            each.wait()


def rate(store: Path) -> float:
    """Variants a second while every sweep of the store was judged, or, one after another, any: of each those but the
    first, between its first and its last."""
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT study_id, recorded_at FROM at_trial WHERE judged").fetchall()
    studies: dict[int, list[datetime]] = {}
    for study, at in rows:
        studies.setdefault(study, []).append(datetime.fromisoformat(at))
    begin, end = max(map(min, studies.values())), min(map(max, studies.values()))
    spans = [(begin, end)] if begin < end else [(min(times), max(times)) for times in studies.values()]
    judged = sum(since < at <= until for since, until in spans for times in studies.values() for at in times)
    return judged / sum((until - since).total_seconds() for since, until in spans)


def waited(store: Store, workers: Sequence[subprocess.Popen[bytes]], started: float) -> float:
    """Seconds until every sweep has come to its end. Exits where none can."""
    while any(each.state not in RESTING for each in sweeps.every(store)):
        if time.monotonic() - started > LIMIT_S or all(each.poll() is not None for each in workers):
            sys.exit("the workers ended before their sweeps, or took too long")
        time.sleep(LOOK_S)
    return time.monotonic() - started


def unmet(document: dict[str, Any]) -> list[str]:
    """What does not hold."""
    said = list[str]()
    for count, found in document["by_workers"].items():
        wanted = found["devices"] * document["trials"]
        if found["judged"] != wanted:
            said.append(f"workers: {count}: judged {found['judged']} of {wanted} variants")
        if document["ratios"][count] < WANTED * found["devices"]:
            said.append(f"workers: {count}: {document['ratios'][count]:.2f} times the rate of one on one device")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", required=True, help="such as cuda:0,cuda:1")
    parser.add_argument("--trials", type=int, default=144, help="of each sweep")
    parser.add_argument("--only", nargs="+", default=(), help=f"besides 1: as many as there are devices, {TOGETHER!r}")
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    options = parser.parse_args()
    devices = options.devices.split(",")
    served = {"1": devices[:1], str(len(devices)): devices, TOGETHER: [options.devices]}
    with fresh_cache() as folder, tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(SPACE)
        file.flush()
        device, trials = built(Path(file.name), options.trials)
        found = {
            name: swept(folder / f"{place}.db", Path(file.name), trials, words)
            for place, (name, words) in enumerate(served.items())
            if name in ("1", *(options.only or served))
        }
    document = {
        **provenance(),
        "device": device.name,
        "torch": torch.__version__,
        "trials": trials,
        "by_workers": found,
        "ratios": {count: round(each["rate"] / found["1"]["rate"], 3) for count, each in found.items()},
        "whole_ratios": {
            count: round(each["whole_rate"] / found["1"]["whole_rate"], 3) for count, each in found.items()
        },
    }
    print(json.dumps(document, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.hold:
        holds.require(unmet(document))


if __name__ == "__main__":
    main()
