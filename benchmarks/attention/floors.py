"""How much of a small problem's time is launching, loading and multiplying: `mma` with parts of it taken out.

    python -m benchmarks.attention.floors docs/results/tuned_wgmma.json [--problem TEXT] [--point TEXT]... [--json FILE]

Of the row that was found on this kind of device the variant is built whole and with parts taken out of its sources:
launched alone, with and without its parameters; loads alone; products, the merge and the store alone. Other points of
`mma` may race too. All are in graphs of their own, replayed in random order, warm. Needs a GPU that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import torch

from autotuner.devices.environment import usable_cpus
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import moved
from autotuner.tuning.workbench import Workbench, load_space, point_of
from autotuner.values import config
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Fault
from benchmarks import holds
from benchmarks.attention.elsewhere import rows_of
from benchmarks.attention.interleaved import race, ratios, spread, timer, variant_forward
from benchmarks.provenance import command_line
from tests.mutants.warpgroups import edit

Edit = tuple[str, str, str]
KERNEL = "variant_kernel(const __grid_constant__ sdpa_args args) {\n"
END = "  cluster_wait();\n#else\n  finish(at, args, partial, shared);\n#endif\n}"
FINISH = "  finish(at, args, partial, shared);\n#endif\n}"
UNSEEN: Edit = ("mma.cu", "    const bool seen = key < at.warp_end;\n", "    const bool seen = false;\n")
PARTS: dict[str, tuple[Edit, ...]] = {
    "whole": (),
    "launch": (("mma.cu", KERNEL, f"{KERNEL}}}\n#if 0\n{{"), ("mma.cu", END, f"{END}\n#endif")),
    "launch without parameters": (
        ("mma.cu", KERNEL, "variant_kernel() {}\n#if 0\n{"),
        ("mma.cu", END, f"{END}\n#endif"),
    ),
    "loads": (UNSEEN, ("mma.cu", FINISH, "  if (at.rows < 0) finish(at, args, partial, shared);\n#endif\n}")),
    "loads and the store": (UNSEEN,),
    "products and the store": (
        ("mma_ring.h", "    if (key < at.keys) copy(tile, k, STRIDED ? k_row : HEAD_DIM, key);\n", ""),
        ("mma_ring.h", "    if (key < at.keys) copy(tile + TILE_BYTES, v, STRIDED ? v_row : HEAD_DIM, key);\n", ""),
    ),
}
"""What is replaced in the sources, of points with LOAD = cp_async."""


def main() -> None:
    """Prints a line for each and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="what benchmarks/tuned.py wrote")
    parser.add_argument("--problem", default="(1,8,512,64) float16 full")
    parser.add_argument(
        "--point", default=[], metavar="TEXT", action="append", help="another, as in IMPL=mma SPLIT=2 ..."
    )
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = rows_of(given.rows, [given.problem], torch.cuda.get_device_name())
    holds.measured([row["problem"] for row in rows], "variant that was tuned on this device")
    found = floors(given.problem, rows[0]["parameters"], given.point, given.rounds)
    if given.json is not None:
        made = {"command": command_line(), "when": datetime.now(UTC).isoformat(timespec="seconds")}
        made |= {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
        given.json.write_text(json.dumps(made | found, indent=1) + "\n")


def floors(text: str, point: dict[str, Value], others: list[str], rounds: int) -> dict[str, object]:
    """Microseconds of each, and its share of the whole one's, round by round."""
    problem, bench = SdpaProblem.parse(text), Workbench(load_space("sdpa_cuda", problems=[text]))
    inputs = moved(op_of(problem).tensors().inputs(problem, "randn", 1), "cuda")
    with tempfile.TemporaryDirectory() as folder:
        made = {name: (without(Path(folder) / str(n), edits), point) for n, (name, edits) in enumerate(PARTS.items())}
        made |= {each: (bench.family, point_of(bench.space, each)) for each in others}

        def of(name: str) -> Artifact | Fault:
            family, parameters = made[name]
            values = {key: value for key, value in parameters.items() if key != "IMPL"}
            variant = Variant(family="sdpa", backend="cuda", impl=str(parameters["IMPL"]), parameters=values)
            return build(family, variant, problem, bench.toolchain)

        with ThreadPoolExecutor(usable_cpus()) as pool:
            built = dict(zip(made, pool.map(of, made), strict=True))
        timers = {}
        for name, each in built.items():
            if isinstance(each, Artifact):
                timers[name] = timer(variant_forward(each, problem, [inputs])[0], 1)
            else:
                print(f"{name} is not built: {each.detail}", flush=True)
        taken = race(timers, rounds)
    us = {name: spread(each) for name, each in taken.items()}
    shares = {name: ratios(each, taken["whole"]) for name, each in taken.items()}
    for name in us:
        print(f"{us[name]['median']:6.2f} us, {shares[name]['median']:.3f} of the whole: {name}", flush=True)
    return {"problem": text, "parameters": point, "us": us, "of_whole": shares}


def without(folder: Path, edits: tuple[Edit, ...]) -> Family:
    """The kernel's family with parts taken out."""
    shutil.copytree(config.kernels_dir() / "sdpa", folder / "sdpa")
    edit(folder / "sdpa", edits)
    return Family.load(folder / "sdpa")


if __name__ == "__main__":
    main()
