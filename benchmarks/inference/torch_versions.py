"""One exported package under several versions of torch, each of an environment of its own, on the CPU.

    autotuner export --format package --out demo
    python -m benchmarks.inference.torch_versions demo PYTHON ... --out docs/results/package_torch.json

PYTHON is the interpreter of an environment that has another torch; this one's goes first. The library is the same in
all of them. Exits with 1 where a version that the package is for does not serve every problem of its table as torch
computes it, or fails torch.library.opcheck; or where an older torch is not refused in one line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance

CHECK = """
import importlib.util, json, sys, torch
from pathlib import Path

folder = Path(sys.argv[1])
said = {"torch": torch.__version__, "python": sys.version.split()[0], "refused": None}
metadata = json.loads((folder / "metadata.json").read_text())["autotuner"]
torch.set_num_threads(metadata["proven_on"]["THREADS_ALLOWED"])
torch.manual_seed(0)
spec = importlib.util.spec_from_file_location("package", folder / "__init__.py")
module = importlib.util.module_from_spec(spec)
sys.modules["package"] = module
try:
    spec.loader.exec_module(module)
except ImportError as error:
    said["refused"] = str(error)
else:
    ours, sdpa, worst, checked = module.attention, module.masked.attention, 0.0, []
    for call in metadata["warm"]:
        q, k = call["query"], call["key"]
        for _ in range(4):  # the second of a kind is remembered, and what comes then is launched in another way
            tensors = [torch.randn(size, dtype=getattr(torch, call["dtype"])) for size in (q, k, k)]
            if call["layout"] != "bhsd":
                tensors = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in tensors]
            lengths = [torch.randint(1, k[2] + 1, k[:1], dtype=torch.int32)] if call["key_lengths"] else []
            options = call["options"] | ({"key_lengths": lengths[0]} if lengths else {})
            with torch.no_grad():
                found, expected = ours(*tensors, **options), sdpa(*tensors, **options)
                worst = max(worst, float((found - expected).abs().max()))
        checked.append(torch.library.opcheck(ours.op, (*tensors, *lengths), call["options"]))
    said |= {"served": ours.served, "worst_difference": worst, "counters": dict(ours.counters)}
    said["opcheck"] = all(result == "SUCCESS" for each in checked for result in each.values())
print(json.dumps(said))
"""


def check(python: str, folder: Path) -> dict[str, Any]:
    """What the package does under that interpreter's torch."""
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run([python, "-I", "-c", CHECK, str(folder)], capture_output=True, text=True, cwd=empty)
    if done.returncode:
        sys.exit(f"{python}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def holds(found: dict[str, Any], tolerance: float) -> bool:
    """Whether all is served and right; or, under a torch that is too old, refused in a line."""
    if tuple(int(part) for part in found["torch"].split(".")[:2]) < (2, 10):
        return found["refused"] is not None and "\n" not in found["refused"]
    served = found["refused"] is None and found["served"] == 1.0
    return bool(served and found["opcheck"] and found["worst_difference"] <= tolerance)


def table(document: dict[str, Any]) -> str:
    """The result as rows of a page."""
    lines = ["| torch | calls served | opcheck | largest difference from SDPA |", "| --- | --- | --- | --- |"]
    for found in document["found"]:
        if found["refused"]:
            lines.append(f"| {found['torch']} | refused: {found['refused']} | | |")
        else:
            passed = "passes" if found["opcheck"] else "fails"
            lines.append(
                f"| {found['torch']} | {100 * found['served']:.0f} % | {passed} | {found['worst_difference']:.1e} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Prints what it found, and keeps it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("python", nargs="+", help="interpreters of environments with another torch")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest difference from SDPA, absolute")
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    (built,) = (each.parent.resolve() for each in wanted.folder.glob("build/*/metadata.json"))
    found = [check(python, built) for python in (sys.executable, *wanted.python)]
    said = json.loads((built / "metadata.json").read_text())
    document = {
        **provenance([wanted.folder, *map(Path, wanted.python)]),
        "library_sha256": said["digest"]["files"][said["autotuner"]["library"]],
        "needs": said["autotuner"]["needs"],
        "tolerance": wanted.tolerance,
        "found": found,
    }
    if wanted.out:
        wanted.out.write_text(json.dumps(document, indent=1) + "\n")
    print(table(document))
    sys.exit(not all(holds(each, wanted.tolerance) for each in found))


if __name__ == "__main__":
    main()
