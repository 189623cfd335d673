"""Runs a long proof in parts side by side, each on two CPUs of its own, and makes one result of them.

    python -m benchmarks.shards attacks|accusations|busy --json OUT.json [--cpus 0-31] [--minutes M] [--hold]

A part is the proof's own command on some of its cases, in a process group bound to two CPUs, which are of one core
where the machine says so, with a home, a cache and a folder for temporary files of its own. No part begins that would
not end within M minutes; the same command later goes on with the parts that OUT.json lacks. What must hold of the whole
is said by the proof's own command, given `--judge OUT.json --hold`.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks import holds
from benchmarks.attacks import catalogue, judged
from benchmarks.gate import accusations
from benchmarks.provenance import command_line
from benchmarks.timing import busy

EACH = 8
TOPOLOGY = Path("/sys/devices/system/cpu")


class Proof(NamedTuple):
    """A proof that can be cut."""

    module: ModuleType
    parts: Callable[[], list[tuple[str, ...]]]
    """Arguments of the proof's command, a part each; the first are the longest."""
    minutes: float
    """Of a part, at most."""


def attacks() -> list[tuple[str, ...]]:
    """EACH attacks of a group at a time: more in one sweep would take longer, fewer would repeat the honest one."""
    groups = catalogue.groups("cpu")
    flags = [group.name for group in groups if group.flags]
    named = [[f"{group.name}/{each.name}" for each in group.attacks] for group in groups if not group.flags]
    cut = [names[first : first + EACH] for names in named for first in range(0, len(names), EACH)]
    return [("--only", *names) for names in sorted([*cut, flags], key=len, reverse=True)]


def seeds(count: int, *arguments: str) -> list[tuple[str, ...]]:
    return [(*arguments, "--seed", str(seed)) for seed in range(count)]


PROOFS = {
    "attacks": Proof(judged, attacks, 8.5),
    "accusations": Proof(accusations, lambda: seeds(15, "cpu", "--points", "10"), 5.0),
    "busy": Proof(busy, lambda: seeds(busy.RUNS, "--runs", "1"), 8.5),
}


def pairs(cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """CPUs two by two, those of one core together."""

    def core(cpu: int) -> tuple[int, int]:
        siblings = TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        first = siblings.read_text().replace("-", ",").split(",")[0] if siblings.exists() else cpu
        return int(first), cpu

    ordered = sorted(cpus, key=core)
    return [tuple(ordered[first : first + 2]) for first in range(0, len(ordered) - 1, 2)]


def numbers(text: str) -> list[int]:
    """Those of a list such as 0-3,8."""
    found: list[int] = []
    for each in text.split(","):
        first, _, last = each.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def run(proof: Proof, arguments: tuple[str, ...], cpus: tuple[int, ...], limit_s: float) -> Any:
    """The document of one part; None where it did not end."""
    with tempfile.TemporaryDirectory(prefix="shard_") as name:
        folder = Path(name)
        around = {"HOME": name, "TMPDIR": name, "AUTOTUNER_CACHE": str(folder / "cache"), "CUDA_VISIBLE_DEVICES": ""}
        words = [sys.executable, "-m", proof.module.__name__, *arguments, "--json", str(folder / "part.json")]
        with (folder / "log").open("w+") as log:
            process = subprocess.Popen(
                ["taskset", "-c", ",".join(map(str, cpus)), *words],
                env=os.environ | around,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return None
            part = folder / "part.json"
            if not part.exists():
                log.seek(0)
                print(*arguments, "left nothing:", log.read()[-1500:], flush=True)
                return None
            return json.loads(part.read_text())


def done(proof: Proof, cpus: Sequence[int], until: float, before: Sequence[str]) -> dict[str, Any]:
    """Documents by the arguments of their parts, but those of before."""
    found: dict[str, Any] = {}
    waiting: queue.SimpleQueue[tuple[str, ...]] = queue.SimpleQueue()
    for part in proof.parts():
        if " ".join(part) not in before:
            waiting.put(part)

    def work(pair: tuple[int, ...]) -> None:
        while until - time.monotonic() > 60 * proof.minutes * 0.6:
            try:
                part = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            document = run(proof, part, pair, until - began)
            said = "is done" if document is not None else "did not end"
            print(f"{' '.join(part)} {said}: {time.monotonic() - began:.0f} s on CPUs {pair}", flush=True)
            if document is not None:
                found[" ".join(part)] = document

    workers = [threading.Thread(target=work, args=(pair,)) for pair in pairs(cpus)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("proof", choices=PROOFS)
    parser.add_argument("--cpus", type=numbers, default=sorted(os.sched_getaffinity(0)), help="such as 0-7,16")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--json", type=Path, required=True)
    holds.add_option(parser)
    given = parser.parse_args()
    if shutil.which("taskset") is None:
        parser.error("there is no taskset; install util-linux")
    proof = PROOFS[given.proof]
    before = {"parts": [], **(json.loads(given.json.read_text()) if given.json.exists() else {})}
    found = done(proof, given.cpus, time.monotonic() + 60 * given.minutes, before["parts"])
    documents = [*([before] if before["parts"] else []), *found.values()]
    holds.measured([*before["parts"], *found], f"part of {given.proof}")
    parts = [*before["parts"], *found]
    missing = [" ".join(part) for part in proof.parts() if " ".join(part) not in parts]
    whole = proof.module.merged(documents) | {"command": command_line(), "missing": missing, "parts": parts}
    given.json.write_text(json.dumps(whole, indent=1) + "\n")
    print(f"{len(parts)} parts are done, {len(missing)} are missing")
    if given.hold:
        holds.require([*(f"{each} is missing" for each in missing), *proof.module.unmet(whole)])


if __name__ == "__main__":
    main()
