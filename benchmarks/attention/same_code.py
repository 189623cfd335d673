"""Which kernels of version 2 of the ABI are, to the byte, the machine code that version 1 had.

    python -m benchmarks.attention.same_code OLD [--architecture sm_90] [--impl mma]... [--json FILE]

OLD is a checkout of version 1 (`git archive COMMIT | tar x -C OLD`). The points are those of
benchmarks/attention/old_and_new.py; both checkouts compile them. What is the same code takes the same time, and no run
has to show it. Needs nvcc and no GPU; `cublas` has a kernel of its own for the softmax alone, and its headers may be
absent.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from benchmarks.attention.old_and_new import asked_for
from benchmarks.provenance import ROOT, command_line

CUDA_MACHINE = "EM_CUDA"
BUILD = """
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
from autotuner.build.build import build
from autotuner.build.family import Family
from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values import config
from autotuner.values.variant import Variant
asked = json.loads(sys.stdin.read())
family = Family.load(config.kernels_dir() / "sdpa")
toolchain = CudaToolchain.discover(architecture(sys.argv[1]))
def one(each):
    variant = Variant(family="sdpa", backend="cuda", impl=each["impl"], parameters=each["parameters"])
    try:
        return str(getattr(build(family, variant, SdpaProblem.parse(each["problem"]), toolchain), "path", ""))
    except Exception:
        return ""
with ThreadPoolExecutor(os.cpu_count()) as pool:
    print(json.dumps(list(pool.map(one, asked))))
"""
"""What each checkout runs: where its libraries are; nothing where there is none."""


def libraries(checkout: Path, asked: list[dict[str, Any]], architecture: str) -> list[str]:
    """The library of each point as a checkout builds it, or an empty path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), *sys.path[1:]])}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, architecture],
        input=json.dumps(asked),
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return [str(path) for path in json.loads(done.stdout.splitlines()[-1])]


def machine_code(library: bytes) -> dict[str, bytes]:
    """The code of each kernel in the cubin that a library holds. Raises ValueError where it holds none."""
    start = library.find(b"\x7fELF", 4)
    while start > 0:
        elf = ELFFile(io.BytesIO(library[start:]))
        if elf["e_machine"] in (CUDA_MACHINE, 190):
            return {each.name: each.data() for each in elf.iter_sections() if each.name.startswith(".text")}
        start = library.find(b"\x7fELF", start + 4)
    raise ValueError("there is no cubin in it")


def same(old: str, new: str) -> bool | None:
    """Whether two libraries hold the same machine code; None where one was not built."""
    if not old or not new:
        return None
    return machine_code(Path(old).read_bytes()) == machine_code(Path(new).read_bytes())


def main() -> int:
    """Prints a line a point and writes them all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention.same_code", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--impl", action="append")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    asked = asked_for(given.impl or ["scalar", "wmma", "mma"], [])
    builds = [libraries(checkout, asked, given.architecture) for checkout in (given.old.resolve(), ROOT)]
    rows = [{**each, "same_code": same(*pair)} for each, pair in zip(asked, zip(*builds, strict=True), strict=True)]
    said = {True: "same code", False: "other code", None: "not built"}
    for row in rows:
        print(row["impl"], row["problem"], said[row["same_code"]])
    if given.json is not None:
        document = {"command": command_line([given.old]), "architecture": given.architecture, "rows": rows}
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
