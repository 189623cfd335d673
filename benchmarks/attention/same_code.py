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
from pathlib import Path

from elftools.elf.elffile import ELFFile

from benchmarks.attention.old_and_new import asked_for, builds_of
from benchmarks.provenance import ROOT, command_line

CUDA_MACHINE = "EM_CUDA"


def machine_code(library: bytes) -> dict[str, bytes]:
    """The code of each kernel in the cubin that a library holds. Raises ValueError where it holds none."""
    start = library.find(b"\x7fELF", 4)
    while start > 0:
        elf = ELFFile(io.BytesIO(library[start:]))
        if elf["e_machine"] in (CUDA_MACHINE, 190):
            return {each.name: each.data() for each in elf.iter_sections() if each.name.startswith(".text")}
        start = library.find(b"\x7fELF", start + 4)
    raise ValueError("there is no cubin in it")


def same(old: tuple[str | None, str], new: tuple[str | None, str]) -> bool | None:
    """Whether the libraries of two builds hold the same machine code; None where one was not built."""
    if old[0] is None or new[0] is None:
        return None
    return machine_code(Path(old[1]).read_bytes()) == machine_code(Path(new[1]).read_bytes())


def main() -> int:
    """Prints a line a point and writes them all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention.same_code", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--impl", action="append")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    asked = asked_for(given.impl or ["scalar", "wmma", "mma"], [])
    builds = [builds_of(checkout, asked, given.architecture) for checkout in (given.old.resolve(), ROOT)]
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
