"""Runs the linters and the tests, part by part, and says at the end how long each took: what `make test`, `make slow`
and `.ci/run` call.

    python -m tests lint fast slow gpu [--sample SEED] [--of PATH...]

`gpu` is those that need a GPU, quick or slow. What times nothing runs side by side. Tests marked `alone` run
afterwards, one by one, and with them the timed ones that failed beside others. The first part that fails is the last.
The final line has the form of pytest's own, over all parts.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from autotuner.devices.environment import usable_cpus
from benchmarks.provenance import command_line
from tests.helpers.timed import PUT_OFF

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LINTERS = (
    ["ruff", "check", "."],
    ["ruff", "format", "--check", "."],
    ["mypy"],
    ["lint-imports"],
    ["python", "-m", "tests.lines"],
)
GPU = "gpu"
SHOWN = 10
KEPT_S = 1.0
"""Tests that take less are not named in what is kept of a run."""
SKIPS = 5
"""More skipped tests than these leave something unproven."""
NOTHING_COLLECTED = 5
"""pytest's exit code where no test has the wanted marks."""


@dataclass
class Part:
    """A part of the run, and what became of it."""

    name: str
    seconds: float = 0.0
    failed: bool = False
    tests: dict[str, float] = field(default_factory=dict)
    """Seconds of each test, with its fixtures."""
    counts: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, str] = field(default_factory=dict)
    put_off: list[str] = field(default_factory=list)
    """Tests that are to be tried again alone."""
    alone: list[str] = field(default_factory=list)
    """The tests with that mark, whatever their other marks."""


class Run:
    """The parts so far. They share their builds."""

    def __init__(self, sample: str, folder: Path, kept: Path | None = None, of: Sequence[str] = ()) -> None:
        """`kept`: where it is kept what each part took and found. `of`: the files and folders whose tests run; without
        any, all."""
        self._sample, self._folder, self._kept, self._of = sample, folder, kept, of
        self.parts: list[Part] = []

    def lint(self) -> None:
        def perform(part: Part) -> None:
            started = [start(tool, *words) for tool, *words in LINTERS]
            for linter in started:
                print(linter.communicate()[0], end="", flush=True)
            part.failed = any(linter.returncode for linter in started)

        self._time(Part("lint"), perform)

    def tests(self, kind: str, marks: str) -> None:
        """Side by side, in one process more than there are CPUs, as tests wait: for a process to start or end, or for a
        deadline. Then alone."""
        together = ["-m", f"{marks} and not alone", "-n", str(usable_cpus() + 1), "--dist", "worksteal"]
        self._pytest(f"{kind} tests, side by side", [*together, *self._of])
        # Those that were collected just now are named: collecting all anew would take longer than they do.
        named = self.parts[-1].alone
        self._pytest(f"{kind} tests, alone", ["-m", f"{marks} and alone", *(named or self._of)])
        again = [test for part in self.parts for test in part.put_off if part.name.startswith(kind)]
        if again:
            self._pytest(f"{kind} tests, again alone", ["-m", "timed", *again])

    def _time(self, part: Part, perform: Callable[[Part], None]) -> None:
        if any(each.failed for each in self.parts):
            return
        print(f"== {part.name}", flush=True)
        started = time.monotonic()
        perform(part)
        part.seconds = time.monotonic() - started
        self.parts.append(part)
        if self._kept is not None:
            self._kept.write_text(json.dumps(document(self.parts, self._sample), indent=1) + "\n")

    def _pytest(self, name: str, arguments: Sequence[str]) -> None:
        self._time(Part(name), partial(self._perform, arguments))

    def _perform(self, arguments: Sequence[str], part: Part) -> None:
        record = self._folder / "record.json"
        record.unlink(missing_ok=True)
        values = {"sample": self._sample, "record": record, "builds": self._folder / "builds"}
        options = [f"--{name}={value}" for name, value in {**values, "basetemp": self._folder / "tmp"}.items()]
        command = [sys.executable, "-m", "pytest", *arguments, *options]
        code = subprocess.run(command, cwd=ROOT, env=self._environment()).returncode
        part.failed = code not in (0, NOTHING_COLLECTED)
        if not record.exists():
            return
        found = json.loads(record.read_text())
        part.tests, part.counts, skipped = found["seconds"], Counter(found["counts"]), found["skipped"]
        part.put_off = [test for test, why in skipped.items() if why.startswith(PUT_OFF)]
        part.skipped = {test: why for test, why in skipped.items() if not why.startswith(PUT_OFF)}
        part.counts["skipped"] = len(part.skipped)
        part.alone = found["alone"]

    def _environment(self) -> dict[str, str]:
        """Every process that the tests start, hundreds of them, finds compiled modules beside the sources: pip leaves
        those of the packages there, and a folder of our own would make each run compile all of torch again."""
        return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def start(tool: str, *words: str) -> subprocess.Popen[str]:
    """A linter, beside the others; what it says is to be read."""
    return subprocess.Popen([BIN / tool, *words], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def report(parts: Sequence[Part], sample: str) -> Iterator[str]:
    """The last lines of a run."""
    yield "== seconds of each part"
    yield from (f"{part.seconds:7.1f}  {part.name}{' (failed)' if part.failed else ''}" for part in parts)
    seconds = [(spent, name) for part in parts for name, spent in part.tests.items()]
    if seconds:
        yield f"== the {SHOWN} slowest tests, in seconds"
        yield from (f"{spent:7.1f}  {name}" for spent, name in sorted(seconds, reverse=True)[:SHOWN])
        yield f"== the rotating sample is that of {sample}; SAMPLE={sample} make ... takes the same again"
    skipped = {name: why for part in parts for name, why in part.skipped.items()}
    if len(skipped) > SKIPS:
        yield f"== NOT PROVEN: {len(skipped)} tests were skipped"
        for why, count in Counter(skipped.values()).most_common():
            yield f"{count:7}  {why}"
            yield from (f"         {name}" for name in skipped if skipped[name] == why)
    yield closing(parts)


def closing(parts: Sequence[Part]) -> str:
    """A line like pytest's last one, over all parts."""
    counts = sum((part.counts for part in parts), Counter[str]())
    told = [f"{counts[name]} {name}" for name in ("failed", "passed", "skipped") if counts[name]]
    if any(part.failed for part in parts) and not counts["failed"]:
        told.append("1 error")
    return f" {', '.join(told) or 'no tests ran'} in {sum(part.seconds for part in parts):.2f}s ".center(100, "=")


def document(parts: Sequence[Part], sample: str) -> dict[str, object]:
    """What is kept of a run."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    shown = ("name", "seconds", "failed", "counts", "skipped")
    on_gpu = any(part.name.startswith(GPU) for part in parts)
    found = [
        {
            **{name: getattr(part, name) for name in shown},
            "slow": {test: round(spent, 1) for test, spent in part.tests.items() if spent >= KEPT_S},
        }
        | ({"ran": sorted(part.tests)} if part.name.startswith(GPU) else {})
        for part in parts
    ]
    where = {"command": command_line(), "when": when, "sample": sample, "cpus": usable_cpus()}
    return where | (gpu() if on_gpu else {}) | {"parts": found}


def gpu() -> dict[str, object]:
    """What computed. It takes some seconds to ask."""
    import torch

    return {"device": torch.cuda.get_device_name(), "torch": torch.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("parts", nargs="+", choices=["lint", "fast", "slow", GPU])
    today = datetime.now(UTC).date().isoformat()
    parser.add_argument("--sample", default=os.environ.get("SAMPLE") or today, help="seed of the rotating sample")
    parser.add_argument("--json", type=Path, metavar="PATH", help="keep what each part took and found")
    parser.add_argument("--of", nargs="+", default=[], metavar="PATH", help="of these files and folders alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotuner-tests-") as folder:
        run = Run(options.sample, Path(folder), options.json, options.of)
        if "lint" in options.parts:
            run.lint()
        if "fast" in options.parts:
            run.tests("fast", "not slow")
        if "slow" in options.parts:
            run.tests("slow", "slow")
        if GPU in options.parts:
            run.tests(GPU, "gpu")
    print(*report(run.parts, options.sample), sep="\n", flush=True)
    sys.exit(any(part.failed for part in run.parts))


if __name__ == "__main__":
    main()
