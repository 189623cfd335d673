"""What a variant takes right after an operation of torch, as in a model, beside what it takes alone; on a CPU.

    python -m benchmarks.inference.after_torch best.json [--json docs/results/after_torch.json]

A variant of several threads runs on those of torch's OpenMP, which go on spinning for a while after each operation;
with OMP_WAIT_POLICY=PASSIVE they sleep. One with threads of its own would wait for a CPU behind those that spin. Each
policy is measured in several processes: torch's attention and the variant in turns, alone and after a linear layer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotuner.devices.cpu import choose
from autotuner.devices.kind import Wishes
from benchmarks.provenance import ROOT, provenance

UNSET = "not set"
POLICIES = (UNSET, "PASSIVE")
ROUNDS = 60
PROCESSES = 7
"""Of each policy, in turns."""


def measured(export: Path) -> dict[str, float]:
    """Median microseconds of each way, in this process."""
    import torch

    import autotuner

    variant = autotuner.load(export)
    problem = next(each.problem for each in variant.table.entries if each.use is not None)
    facts = problem.facts()
    shape = tuple(int(facts[name]) for name in ("BATCH", "HEADS", "SEQ_Q", "HEAD_DIM"))
    q, k, v = (torch.randn(shape) for _ in range(3))
    rows, layer = torch.randn(512, 768), torch.nn.Linear(768, 3072)
    ways: dict[str, Callable[..., Any]] = {
        "torch": torch.nn.functional.scaled_dot_product_attention,
        "variant": variant,
    }
    taken = defaultdict[str, list[float]](list)
    with torch.inference_mode():
        for _ in range(ROUNDS):
            for name, way in ways.items():
                for after in (False, True):
                    if after:
                        layer(rows)
                    else:
                        time.sleep(0.01)  # by then nobody spins any more
                    started = time.perf_counter()
                    way(q, k, v)
                    taken[f"{name}{' after a layer' if after else ''}"].append(1e6 * (time.perf_counter() - started))
    return {name: round(statistics.median(times), 1) for name, times in taken.items()}


def table(found: dict[str, Any] | None) -> str:
    """The result in words."""
    if found is None:
        return "Not kept yet."
    named = zip(("As usual", "With `OMP_WAIT_POLICY=PASSIVE`"), found["us"].values(), strict=True)
    said = [
        f"{name}, a variant took {_median(us, 'variant')} us alone and {_median(us, 'variant after a layer')} after a"
        f" layer, torch {_median(us, 'torch')} and {_median(us, 'torch after a layer')}"
        for name, us in named
    ]
    where = f"{found['cpus']} CPUs of {found['device']}, torch {found['versions']['torch']}"
    made = f"medians of {PROCESSES} processes by `{found['command']}` on {found['when'][:10]}, {where}"
    return f"{'. '.join(said)} ({made})."


def _median(processes: list[dict[str, float]], way: str) -> str:
    return f"{statistics.median([each[way] for each in processes]):,.0f}"


def main() -> None:
    """Prints what it found, and keeps it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("export", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measured(options.export)))
        return
    us: dict[str, list[dict[str, float]]] = {policy: [] for policy in POLICIES}
    for policy in PROCESSES * POLICIES:
        command = [sys.executable, "-m", __spec__.name, str(options.export.absolute()), "--here"]
        others = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        environment = others if policy == UNSET else {**others, "OMP_WAIT_POLICY": policy}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        us[policy].append(json.loads(done.stdout.splitlines()[-1]))
    made = provenance([options.export, *filter(None, [options.json])])
    versions = {**made["versions"], "torch": version("torch")}
    document = {**made, "versions": versions, "device": choose(Wishes()).device.name, "us": us}
    print(table(document))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
