"""What Nsight Compute counts of tuned variants and of cuDNN, side by side.

    python -m benchmarks.attention.counters docs/results/tuned_wgmma.json [--problems TEXT] [--json FILE]

Of each row of benchmarks/tuned.py that was found on this kind of device (with --problems, of those that contain the
text) the variant and cuDNN run once in a process of their own under `ncu`, which empties the caches first and leaves
the clocks alone. What is counted is their longest kernel. In the process of this program both are timed without it,
interleaved, cold. Needs a GPU that nothing else uses, and the right to read its counters.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from autotuner.ops import OPS, op_of
from autotuner.ops.tensors import Tensors, moved
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact
from benchmarks import holds
from benchmarks.attention.elsewhere import rows_of
from benchmarks.attention.interleaved import (
    Forward,
    baseline_forward,
    input_sets,
    race,
    ratios,
    spread,
    timer,
    variant_forward,
)
from benchmarks.provenance import command_line

Figures = dict[str, Any]

SIDES = ("variant", "cudnn")
SECTIONS = (
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
    "InstructionStats",
    "LaunchStats",
    "Occupancy",
)
DURATION = "gpu__time_duration.sum"
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
COUNTERS = (
    DURATION,
    "gpc__cycles_elapsed.avg.per_second",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__inst_executed.sum",
    "sm__warps_active.avg.per_cycle_active",
    STALLED.format("wait"),
    STALLED.format("long_scoreboard"),
    STALLED.format("barrier"),
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sector_hit_rate.pct",
    "dram__bytes.sum.per_second",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_dynamic",
    "launch__block_size",
    "launch__grid_size",
)
"""What is kept of what the sections count."""
WARM_UPS = 3
ROUNDS = 200
LIMIT_S = 300.0


class Side:
    """One problem on this GPU, and the variant that a row names."""

    def __init__(self, row: Figures) -> None:
        """Builds the variant, or finds its build in the cache."""
        self.problem = OPS["sdpa"].problem.parse(row["problem"])
        file = load_space(row["space"])
        self.workbench = Workbench(file.model_copy(update={"problems": (self.problem,)}))
        index = self.workbench.space.index_of(row["parameters"])
        if index is None:
            sys.exit(f"{row['problem']}: its parameters are no point of {row['space']} on this device; tune it anew")
        (built,) = self.workbench.build_all([index])
        if not isinstance(built, Artifact):
            sys.exit(f"{row['problem']}: {built.detail}")
        self.built = built

    def sets(self, cold: bool) -> list[Tensors]:
        """Input sets to use in turn."""
        inputs = moved(op_of(self.problem).tensors().inputs(self.problem, "randn", 1), "cuda")
        return input_sets(self.problem, inputs, cold)

    def forward(self, name: str, sets: list[Tensors]) -> Forward:
        """Of the variant or of cuDNN."""
        if name == "variant":
            return variant_forward(self.built, self.problem, sets)[0]
        return baseline_forward(name, self.problem, sets)


def run_here(row: Figures, name: str) -> None:
    """One forward between the marks that the profiler waits for."""
    side = Side(row)
    forward = side.forward(name, side.sets(cold=False))
    for _ in range(WARM_UPS):
        forward(0)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    forward(0)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def counted(row: Figures, name: str, folder: Path) -> Figures:
    """The counters of one side's longest kernel, by their names."""
    log = folder / "ncu.csv"
    command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--csv", "--page", "raw"]
    command += ["--print-units", "base", "--log-file", str(log)]
    command += [word for section in SECTIONS for word in ("--section", section)]
    command += [sys.executable, "-m", "benchmarks.attention.counters", json.dumps(row), "--here", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        sys.exit(f"{done.stdout[-2000:]}{done.stderr[-2000:]}{log.read_text()[-2000:] if log.exists() else ''}")
    return longest(log.read_text())


def longest(log: str) -> Figures:
    """Of the kernels in a log of ncu, the figures of the one that took longest, and how many there were."""
    lines = [line for line in log.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))[1:]  # the first has the units
    kernel = max(rows, key=lambda each: float(each[DURATION].replace(",", "")))
    return {"kernels": len(rows), "kernel": kernel["Kernel Name"], "counters": numbers(kernel)}


def numbers(kernel: dict[str, str]) -> dict[str, float]:
    """The counters among its columns; one that this device does not have is left out."""
    return {name: float(kernel[name].replace(",", "")) for name in COUNTERS if kernel.get(name)}


def timed(side: Side) -> Figures:
    """Microseconds of both, interleaved, and how many times as fast the variant is."""
    sets = side.sets(cold=True)
    taken = race({name: timer(side.forward(name, sets), len(sets)) for name in SIDES}, ROUNDS)
    us = {name: spread(each) for name, each in taken.items()}
    return {"us": us, "speedup": ratios(taken["cudnn"], taken["variant"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", help="what benchmarks/tuned.py wrote")
    parser.add_argument("--problems", default="", metavar="TEXT")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--here", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here is not None:
        run_here(json.loads(options.rows), options.here)
        return
    rows = rows_of(Path(options.rows), [options.problems], torch.cuda.get_device_name())
    holds.measured([row["problem"] for row in rows], "variant that was tuned on this device")
    document: Figures = {"command": command_line(), "problems": []}
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            asked = {name: row[name] for name in ("problem", "space", "parameters")} | {"tuned_on": row["device"]}
            side = Side(asked)
            sides = {name: counted(asked, name, Path(folder)) for name in SIDES}
            document["problems"].append({**asked, **timed(side), **sides})
            document |= {
                "when": datetime.now(UTC).isoformat(timespec="seconds"),
                "device": side.workbench.device.name,
                "environment": side.workbench.device.environment,
                "compiler": side.workbench.toolchain.version,
            }
            print(row["problem"], {name: each["counters"][DURATION] for name, each in sides.items()}, flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
