"""Runs the linters and the tests, part by part, and says at the end how long each took: what `make test`, `make slow`
and `.ci/run` call.

    python -m tests lint fast slow [--sample SEED]

What times nothing runs in as many processes as there are CPUs; tests marked `alone` run afterwards, one by one. The
first part that fails is the last. The final line has the form of pytest's own, over all parts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from autotuner.devices.facts import usable_cpus

ROOT = Path(__file__).resolve().parent.parent
SHOWN = 10
SKIPS = 5
"""More skipped tests than these leave something unproven."""
NOTHING_COLLECTED = 5
"""pytest's exit code where no test has the wanted marks."""
BIN = Path(sys.executable).parent
LINTERS = (
    [BIN / "ruff", "check", "."],
    [BIN / "ruff", "format", "--check", "."],
    [BIN / "mypy"],
    [BIN / "lint-imports"],
)
TESTS = {
    "fast tests, side by side": ("not slow and not alone", True),
    "fast tests, alone": ("not slow and alone", False),
    "slow tests, side by side": ("slow and not alone", True),
    "slow tests, alone": ("slow and alone", False),
}


class Part(NamedTuple):
    """What became of a part of the run."""

    name: str
    seconds: float
    failed: bool
    tests: dict[str, float]
    """Seconds of each test, with its fixtures."""
    counts: Counter[str]
    skipped: dict[str, str]


def lint() -> Part:
    started = time.monotonic()
    failed = any(subprocess.run(command, cwd=ROOT, check=False).returncode for command in LINTERS)
    return Part("lint", time.monotonic() - started, failed, {}, Counter(), {})


def tests(name: str, sample: str, folder: Path) -> Part:
    """One run of pytest. The parts share their builds."""
    marks, side_by_side = TESTS[name]
    record = folder / "record.json"
    record.unlink(missing_ok=True)
    command: list[str | Path] = [sys.executable, "-m", "pytest", "-m", marks, "--sample", sample, "--record", record]
    command += ["--builds", folder / "builds", "--basetemp", folder / "tmp"]
    command += ["-n", str(usable_cpus()), "--dist", "loadgroup"] if side_by_side else []
    started = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    found = json.loads(record.read_text()) if record.exists() else {"seconds": {}, "counts": {}, "skipped": {}}
    failed = code not in (0, NOTHING_COLLECTED)
    seconds = time.monotonic() - started
    return Part(name, seconds, failed, found["seconds"], Counter(found["counts"]), found["skipped"])


def run(wanted: Sequence[str], sample: str) -> list[Part]:
    """The parts up to the first that fails."""
    done: list[Part] = []
    with tempfile.TemporaryDirectory(prefix="autotuner-tests-") as folder:
        for name in [
            name for word in wanted for name in (["lint"] if word == "lint" else TESTS) if name.startswith(word)
        ]:
            print(f"== {name}", flush=True)
            done.append(lint() if name == "lint" else tests(name, sample, Path(folder)))
            if done[-1].failed:
                break
    return done


def report(parts: Sequence[Part], sample: str) -> Iterator[str]:
    """The last lines of a run."""
    yield "== seconds of each part"
    for part in parts:
        yield f"{part.seconds:7.1f}  {part.name}{' (failed)' if part.failed else ''}"
    seconds = [(spent, name) for part in parts for name, spent in part.tests.items()]
    if seconds:
        yield f"== the {SHOWN} slowest tests, in seconds"
        yield from (f"{spent:7.1f}  {name}" for spent, name in sorted(seconds, reverse=True)[:SHOWN])
        yield f"The rotating sample is that of {sample}; the same again: SAMPLE={sample} make ..."
    skipped = {name: why for part in parts for name, why in part.skipped.items()}
    if len(skipped) > SKIPS:
        yield f"== NOT PROVEN: {len(skipped)} tests were skipped"
        yield from (f"{count:7}  {why}" for why, count in Counter(skipped.values()).most_common())
        yield from (f"         {name}: {why}" for name, why in skipped.items())
    yield closing(parts)


def closing(parts: Sequence[Part]) -> str:
    """A line like pytest's last one, over all parts."""
    counts = sum((part.counts for part in parts), Counter[str]())
    told = [f"{counts[name]} {name}" for name in ("failed", "passed", "skipped") if counts[name]]
    if any(part.failed for part in parts) and not counts["failed"]:
        told.insert(0, "1 error")
    return f" {', '.join(told) or 'no tests ran'} in {sum(part.seconds for part in parts):.2f}s ".center(100, "=")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("parts", nargs="+", choices=["lint", "fast", "slow"])
    today = datetime.now(UTC).date().isoformat()
    parser.add_argument("--sample", default=os.environ.get("SAMPLE") or today, help="seed of the rotating sample")
    options = parser.parse_args()
    done = run(options.parts, options.sample)
    print(*report(done, options.sample), sep="\n", flush=True)
    sys.exit(any(part.failed for part in done))


if __name__ == "__main__":
    main()
