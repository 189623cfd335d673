"""A worker on a Ray cluster of two nodes of this machine does a sweep with finals; one node is killed in the middle.

    python -m benchmarks.driver.ray_worker [--gpus 0,1] [--trials 400] [--json docs/results/ray_worker.json] [--hold]

Nothing is simulated. Each node has a GPU of its own and a share of the CPUs; where one GPU is given the second node
only builds, without one both judge on CPUs. The same sweep is done by the first node alone, by both, and by both where
the second is killed once half of the trials are judged; each node has an empty cache of its own every time. With --hold
it fails where a trial was lost or judged twice, or the finals came to no end, or where two GPUs reach less than 1.9
times one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotuner.devices import DEVICES, Wishes
from autotuner.jobs.outlook import RESTING
from autotuner.store import Store, sweeps
from autotuner.tuning.finals import standings
from benchmarks import holds
from benchmarks.driver.workers import SPACE, rate
from benchmarks.provenance import provenance
from tests.helpers import ray_nodes
from tests.helpers.chaos import require_whole

WIDER = SPACE.replace('EXP = ["ex2"]', 'EXP = ["ex2", "poly", "mixed"]')
"""A space of 432 points."""
WANTED = 1.9
"""Times one GPU's rate that two reach."""
LIMIT_S = 900.0
LOOK_S = 0.2
ON_CPU = {"autotuner_cpu": 1}


def swept(folder: Path, gpus: list[str], nodes: int, kill: bool, asked: list[str]) -> dict[str, Any]:
    """What became of a sweep on so many nodes."""
    folder.mkdir()
    store, cpus = folder / "studies.db", (os.cpu_count() or 2) // 2
    with ray_nodes.running(folder) as cluster, Store.open(str(store)) as opened:
        for place, name in enumerate(("one", "two")[:nodes]):
            gpu = gpus[place : place + 1]
            cluster.start(name, cpus, None if gpus else ON_CPU, gpu)
        called(store, "submit", *asked)
        served = "cuda" if gpus else "cpu"
        words = ["worker", "--ray", cluster.address, "--devices", served, "--idle-exit", "--store", str(store)]
        began = time.monotonic()
        around = {**os.environ, "AUTOTUNER_CACHE": str(folder / "worker")}
        worker = subprocess.Popen([sys.executable, "-m", "autotuner", *words], env=around, stdout=sys.stderr)
        try:
            killed_at = waited(opened, worker, began, (lambda: cluster.kill("two")) if kill else None)
            seconds = time.monotonic() - began
        finally:
            worker.terminate()
            worker.wait()
        (sweep,) = sweeps.every(opened)
        study = sweep.study or ""
        best, lost = standings.best(opened, study), [not each.verdict.judges for _, each in opened.outcomes(study)]
        judged = require_whole(opened, sweep, [])
    return {
        "nodes": nodes,
        "devices": min(nodes, len(gpus)) if gpus else nodes,
        "state": str(sweep.state),
        "judged": judged,
        "lost": sum(lost),
        "killed_after_s": killed_at and round(killed_at, 1),
        "confirmed": best is not None and best.finals is not None,
        "seconds": round(seconds, 1),
        "rate": round(rate(store), 3),
    }


def called(store: Path, *words: str) -> None:
    """Runs a command of autotuner on that store."""
    subprocess.run([sys.executable, "-m", "autotuner", *words, "--store", str(store)], check=True, stdout=sys.stderr)


def waited(store: Store, worker: subprocess.Popen[bytes], began: float, kills: Any) -> float | None:
    """Waits until the sweep rests, or exits; `kills` is called once half of it is judged. When that was."""
    at = None
    while (sweep := sweeps.every(store)[0]).state not in RESTING:
        if time.monotonic() - began > LIMIT_S or worker.poll() is not None:
            sys.exit("ray_worker: the worker ended before its sweep, or took too long")
        half = sweep.found is not None and sweep.found.judged >= sweep.request.trials // 2
        if kills is not None and at is None and half:
            kills()
            at = time.monotonic() - began
        time.sleep(LOOK_S)
    return at


def unmet(document: dict[str, Any]) -> list[str]:
    """What does not hold."""
    said = list[str]()
    runs = document["runs"]
    for name, found in runs.items():
        if (found["state"], found["judged"], found["lost"]) != ("done", document["trials"], 0):
            said.append(f"{name}: {found['state']}, {found['judged']} judged, {found['lost']} lost")
        if not found["confirmed"]:
            said.append(f"{name}: its finals came to no end")
    rates = [runs[name]["rate"] for name in ("one", "two") if name in runs]
    if document["gpus"] > 1 and len(rates) == 2 and rates[1] < WANTED * rates[0]:
        said.append(f"two GPUs reach {rates[1] / rates[0]:.2f} times the rate of one")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driver.ray_worker", description=__doc__)
    parser.add_argument("--gpus", default="", help="such as 0,1; without one both nodes judge on CPUs")
    parser.add_argument("--space", help="another space; needed on CPUs")
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--only", choices=("one", "two", "killed"), action="append", help="of the three sweeps")
    parser.add_argument("--json", type=Path, metavar="PATH")
    holds.add_option(parser)
    options = parser.parse_args()
    gpus = [each for each in options.gpus.split(",") if each]
    runs: dict[str, Any] = {}
    made = provenance()
    document = {**made, "versions": {**made["versions"], "ray": version("ray")}, "torch": version("torch")}
    document |= {"device": DEVICES["cuda" if gpus else "cpu"].choose(Wishes()).device.name, "trials": options.trials}
    document |= {"gpus": len(gpus), "cpus": os.cpu_count(), "runs": runs}
    with tempfile.TemporaryDirectory(prefix="autotuner-ray-") as name:
        space = Path(name) / "space.toml"
        space.write_text(WIDER)
        asked = [options.space or str(space), "--trials", str(options.trials), "--cold", "--finals-minutes", "0.6"]
        for each, nodes in (("one", 1), ("two", 2), ("killed", 2)):
            if not options.only or each in options.only:
                runs[each] = swept(Path(name) / each, gpus, nodes, each == "killed", asked)
                print(json.dumps({each: runs[each]}), flush=True)
                if options.json is not None:
                    options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.hold:
        holds.require(unmet(document))


if __name__ == "__main__":
    main()
