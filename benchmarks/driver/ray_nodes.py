"""A sweep on a Ray cluster of three nodes of this machine, one is killed in the middle; docs/reference/hosts.md.

    python -m benchmarks.driver.ray_nodes [--trials 60] [--json docs/results/ray.json]

The trials are simulated and take some tenths of a second; the nodes, the actors, the processes that judge and the store
are real. Exit code 1 unless every trial is judged, and what the node had in hand was begun once more and nothing else
was begun again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from autotuner.store import Store
from benchmarks import holds
from benchmarks.provenance import provenance

IN_HAND = 2
"""What the node does at a time: it judges, and it builds on its CPU."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--json", type=Path, metavar="PATH")
    options = parser.parse_args()
    if find_spec("ray") is None:
        sys.exit("ray_nodes: Ray is not installed: pip install 'kernel-autotuner[ray]'")
    from benchmarks.driver import ray_sweep
    from tests.helpers import ray_nodes

    with tempfile.TemporaryDirectory() as name, Store.open(str(Path(name) / "studies.db")) as store:
        folder = Path(name)
        with ray_nodes.running(folder) as nodes:
            ray_sweep.start(nodes)
            found = ray_sweep.swept(nodes, store, folder / "notes", options.trials, options.trials // 2)
    made = provenance()
    document = {
        **made,
        "versions": {**made["versions"], "ray": version("ray")},
        "nodes": 3,
        "trials": options.trials,
        "judged": found.judged,
        "lost": found.failed,
        "begun": {what: dict(sorted(counts.items())) for what, counts in found.tries.items()},
        "begun_again": found.again,
        "judged_after_the_kill": found.moved,
        "seconds": round(found.seconds, 1),
    }
    print(json.dumps(document, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    holds.require(ray_sweep.unmet(found, options.trials, IN_HAND))


if __name__ == "__main__":
    main()
