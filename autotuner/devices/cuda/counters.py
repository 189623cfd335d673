"""Counters of a GPU, by Nsight Compute: `ncu` runs one side of a profile, and prints what it has counted.

It replays each kernel some forty times, restores what the kernel wrote, and leaves the clocks alone. Run as a module
this is the process that it starts.
"""

import csv
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from autotuner.devices.counted import command, forward_of, output_of
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.profile import Counted, Side

WARM_UPS = 3
DURATION = "gpu__time_duration.sum"
STALLED = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
KEPT = (
    DURATION,
    "gpc__cycles_elapsed.avg.per_second",
    "dram__cycles_elapsed.avg.per_second",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "smsp__inst_executed.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    *(f"launch__occupancy_limit_{each}" for each in ("barriers", "blocks", "registers", "shared_mem", "warps")),
    *("launch__waves_per_multiprocessor", "launch__grid_size", "launch__block_size", "launch__registers_per_thread"),
    "launch__shared_mem_per_block_dynamic",
    "lts__t_sector_hit_rate.pct",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__sass_inst_executed_op_local_ld.sum",
    "smsp__sass_inst_executed_op_local_st.sum",
)
"""What is kept of what is counted, beside the reasons of stalls."""
REMEDY = (
    "have an administrator set the driver's NVreg_RestrictProfilingToAdminUsers=0, or start the container with"
    " --cap-add SYS_ADMIN"
)


def found() -> str:
    """The path of ncu. Raises InputError where there is none."""
    nvcc = config.nvcc()
    beside = [Path(nvcc).parent / "ncu"] if nvcc is not None else []
    places = [*beside, *sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)]
    path = shutil.which("ncu") or next((str(each) for each in places if each.is_file()), None)
    if path is None:
        raise InputError("there is no ncu: install Nsight Compute (with the CUDA toolkit, or package nsight-compute)")
    return path


def count(side: Side, report: Path | None = None) -> Counted:
    """What ncu counts of a side; `report`: a file for all that it found. Raises InputError where nothing is counted."""
    ncu = found()
    with tempfile.TemporaryDirectory(prefix="autotuner-profile-") as place:
        folder = Path(place)
        path = folder / "side.ncu-rep"
        control = ["--cache-control", "all" if side.cache == "cold" else "none", "--clock-control", "none"]
        options = ["--set", "full", "--profile-from-start", "off", *control, "--force-overwrite", "--export", str(path)]
        done = output_of([ncu, *options, *command(__name__, side, folder)])
        said = f"{done.stdout}\n{done.stderr}"
        if not path.exists():
            raise InputError(refused(said))
        read = output_of([ncu, "--import", str(path), "--csv", "--page", "raw", "--print-units", "base"])
        version = re.search(r"^Version (\S+)", output_of([ncu, "--version"]).stdout, re.MULTILINE)
        if report is not None:
            shutil.copy(path, report)
    return counted(read.stdout, f"ncu {version[1] if version else ''}".strip())


def refused(said: str) -> str:
    """Why ncu counted nothing, in a line with the remedy."""
    if "ERR_NVGPUCTRPERM" in said:
        return f"this user may not read the GPU's counters: {REMEDY}"
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("==PROF==")]
    errors = [line for line in lines if "==ERROR==" in line or "Error" in line] or lines or ["nothing"]
    return f"ncu has counted no kernel, and says: {errors[-1][:200]}"


def counted(text: str, tool: str) -> Counted:
    """The longest kernel in what ncu prints as CSV; its duration is that of all kernels. Raises InputError."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))[1:]  # the first has the units
    numbers = [(row["Kernel Name"], _numbers(row)) for row in rows]
    timed = [(name, found) for name, found in numbers if DURATION in found]
    if not timed:
        raise InputError(refused(text))
    name, longest = max(timed, key=lambda each: each[1][DURATION])
    whole = {DURATION: sum(found[DURATION] for _, found in timed)}
    return Counted(tool=tool, kernel=name, kernels=len(timed), counters=longest | whole)


def _numbers(row: Mapping[str, str]) -> dict[str, float]:
    """The counters that are kept; one that this device does not have is left out."""
    kept: dict[str, float] = {}
    for name, value in row.items():
        if name in KEPT or STALLED.fullmatch(name):
            with suppress(ValueError):
                kept[name] = float(value.replace(",", ""))
    return kept


def main() -> None:
    """One forward between the marks that ncu waits for."""
    import torch

    forward = forward_of(Side.model_validate_json(Path(sys.argv[1]).read_text()), "cuda")
    for _ in range(WARM_UPS):
        forward()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    forward()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
