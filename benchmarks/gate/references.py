"""torch's own SDPA backends against float64, for every element type, head dimension and mask of a backend.

    python -m benchmarks.gate.references cpu|cuda [--json docs/results/references_DEVICE.json]

What `autotuner gate --reference` shows for one space, for all of them:
each backend on every case of the gate with one seed,
its largest error in units of the tolerance. Exit code 1 when a backend breaks a tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from autotuner.devices import DEVICES, Wishes, versions
from autotuner.gate.cases import Case
from autotuner.gate.references import names, reference_checks
from autotuner.gate.tolerance import Truth, compute_truth
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.gate_report import ReferenceCheck
from benchmarks.provenance import command_line

SEED = 20_26
TYPES = {"cpu": ("float32", "bfloat16"), "cuda": ("float16", "bfloat16")}


def truth(device: str, case: Case, seed: int) -> Truth:
    return compute_truth(case, seed, device)


def backend_row(checks: list[ReferenceCheck]) -> dict[str, Any]:
    """One backend over all cases."""
    ratios = {check.case: check.errors.worst_ratio for check in checks if check.errors is not None}
    worst = max(ratios, key=lambda case: ratios[case]) if ratios else ""
    return {
        "cases": len(ratios),
        "not_taken": len(checks) - len(ratios),
        "worst_ratio": ratios.get(worst, 0.0),
        "worst_case": worst,
        "broken": sum(check.failed_rule is not None for check in checks),
        "ratios": {case: round(ratio, 4) for case, ratio in ratios.items()},
    }


def part(device: str, like: SdpaProblem, backends: tuple[str, ...]) -> dict[str, Any]:
    """All backends for one type, head dimension and mask."""
    checks = reference_checks((like,), backends, partial(truth, device), SEED, 1, lambda _: None)
    mask = "causal" if like.causal else "full"
    rows = {name: backend_row([check for check in checks if check.backend == name]) for name in backends}
    return {"compiled_for": f"{like.dtype}, {like.head_dim}, {mask}", "backends": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    here = DEVICES[options.device].choose(Wishes()).device
    parts = []
    for dtype in TYPES[options.device]:
        for head_dim in (64, 128):
            for causal in (False, True):
                fields = {"batch": 1, "heads": 8, "seq_q": 512, "seq_k": 512, "head_dim": head_dim}
                like = SdpaProblem.model_validate({**fields, "dtype": dtype, "causal": causal})
                parts.append(part(options.device, like, names(like, options.device)))
                for name, row in parts[-1]["backends"].items():
                    print(f"{parts[-1]['compiled_for']}: {name} {row['cases']} cases, worst {row['worst_ratio']:.2f}")
    document = {
        "command": command_line(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": here.name,
        "environment": {**here.environment, **versions()},
        "parts": parts,
    }
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(any(row["broken"] for each in parts for row in each["backends"].values()))


if __name__ == "__main__":
    main()
