"""What a variant takes right after an operation of torch, as in a model, beside what it takes alone; on a CPU.

    python -m benchmarks.inference.after_torch best.json [--json docs/results/after_torch.json]

A variant has threads of its own. Those of torch's OpenMP go on spinning for a while after each operation, and take the
CPUs from them; with OMP_WAIT_POLICY=PASSIVE they sleep. Each policy is measured in a process of its own: torch's
attention and the variant in turns, alone and after a linear layer.
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
from pathlib import Path
from typing import Any

from benchmarks.provenance import ROOT, provenance

UNSET = "not set"
POLICIES = (UNSET, "PASSIVE")
ROUNDS = 60


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
    """The result as rows of a page."""
    if found is None:
        return "Not kept yet."
    lines = ["| `OMP_WAIT_POLICY` | alone: torch, variant, us | after a layer: torch, variant, us |"]
    lines.append("| --- | --- | --- |")
    for policy, us in found["us"].items():
        after = f"{us['torch after a layer']:.0f}, {us['variant after a layer']:.0f}"
        lines.append(f"| {policy} | {us['torch']:.0f}, {us['variant']:.0f} | {after} |")
    return "\n".join([*lines, "", f"Made by `{found['command']}` on {found['when'][:10]}; {found['cpus']} CPUs."])


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
    us = {}
    for policy in POLICIES:
        command = [sys.executable, "-m", "benchmarks.inference.after_torch", str(options.export.absolute()), "--here"]
        others = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        environment = others if policy == UNSET else {**others, "OMP_WAIT_POLICY": policy}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        us[policy] = json.loads(done.stdout.splitlines()[-1])
    document = {**provenance([options.export, *filter(None, [options.json])]), "us": us}
    print(table(document))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
