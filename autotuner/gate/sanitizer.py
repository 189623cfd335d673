"""G8: a variant runs under sanitizers on a few small cases. Right results are the business of the other checks.

How it is run under which tool is the device's affair (`SanitizerTool`). Where a tool cannot be had, or cannot run here,
its check is unavailable.
"""

import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from autotuner.forge.compiling import run
from autotuner.forge.loaded_variant import DeviceErrors
from autotuner.gate.check import Unavailable
from autotuner.ops import op_of
from autotuner.values import codes
from autotuner.values.gate_report import CheckResult
from autotuner.values.outcome import Artifact, Say
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault, Meaning, Verdict

DEADLINE_S = 120.0
"""For one process that runs all cases."""

READY, DONE, STATUS = "ready", "done", "status"
"""What the lines of a process's progress begin with; kernels/abi/sanitize_main.cpp writes the same."""


class SanitizerCheck(NamedTuple):
    """One check."""

    code: str
    verdict: Verdict
    """On a finding."""
    meaning: Meaning


MEMORY = SanitizerCheck(
    codes.MEMORY,
    Verdict.CORRUPTING,
    Meaning(
        "a memory sanitizer finds no access outside what was allocated",
        "an index past the end of an array, one that no guard around a tensor sees",
    ),
)
RACE = SanitizerCheck(
    codes.RACE,
    Verdict.NONDETERMINISTIC,
    Meaning(
        "a race sanitizer finds no two accesses without an order between them",
        "a missing barrier, or a barrier that not all threads reach",
    ),
)
LEVELS = (MEMORY, RACE)


class SanitizerTool(Protocol):
    """The sanitizers of a kind of device."""

    errors: DeviceErrors

    def command(self, level: SanitizerCheck, artifact: Artifact, cases: Sequence[Problem], folder: Path) -> list[str]:
        """The process that runs the cases, made ready in the folder, where it writes its lines into `progress`.

        Raises Unavailable.
        """

    def is_finished(self, output: str) -> bool:
        """Whether the tool came to its end, by what it printed."""


class ToolRun(NamedTuple):
    """How the process of a tool ended."""

    status: int | None
    """None at the deadline."""
    output: str
    progress: list[str]
    seconds: float


def small_cases(like: Problem, artifact: Artifact) -> tuple[Problem, ...]:
    """Small ragged cases for an artifact compiled for `like`; one is above the variant's own tile."""
    cases = op_of(like).cases
    shapes = cases.sanitized(cases.tile(artifact.variant.parameters, artifact.resources))
    fixed = {name.lower(): length for name, length in like.fixed_in(artifact.macros).items()}
    return tuple(dict.fromkeys(like.cased(shape).model_copy(update=fixed) for shape in shapes))


def sanitized(
    tool: SanitizerTool,
    artifact: Artifact,
    cases: Sequence[Problem],
    say: Say,
    levels: Sequence[SanitizerCheck] = LEVELS,
    deadline_s: float = DEADLINE_S,
) -> tuple[tuple[CheckResult, ...], Fault | None]:
    """The `levels` in their order; the first failure stops. `cases` are what the artifact is compiled for.

    `say` hears of each build and of each process, which takes up to `deadline_s`.
    """
    checks: list[CheckResult] = []
    for level in levels:
        say(level.code)
        started = time.monotonic()
        fault, note = None, None
        try:
            if artifact.interpreted:
                raise Unavailable("a function of Python is not compiled: no sanitizer can watch it")
            with tempfile.TemporaryDirectory(prefix="autotuner-sanitizer-") as name:
                folder = Path(name)
                command = tool.command(level, artifact, cases, folder)
                say(f"{level.code} run")
                fault = _judged(tool, level, _ending(command, folder, deadline_s), cases)
        except Unavailable as why:
            note = str(why)
        status = "fail" if fault else "unavailable" if note else "pass"
        note = fault.detail if fault else note
        said = {"code": level.code, "status": status, "seconds": time.monotonic() - started, "note": note}
        checks.append(CheckResult.model_validate(said))
        if fault is not None:
            return tuple(checks), fault
    return tuple(checks), None


def _ending(command: list[str], folder: Path, deadline_s: float) -> ToolRun:
    progress = folder / "progress"
    progress.write_text("")
    started = time.monotonic()
    done = run(command, deadline_s)
    status, output = (None, "") if done is None else (done.returncode, done.stdout)
    return ToolRun(status, output, progress.read_text().splitlines(), time.monotonic() - started)


def _judged(tool: SanitizerTool, level: SanitizerCheck, ending: ToolRun, cases: Sequence[Problem]) -> Fault | None:
    """None when all cases were run and nothing was found. Raises Unavailable when the tool could not do its work."""
    done = ending.progress.count(DONE)
    case = str(cases[done]) if done < len(cases) else None

    def fault(verdict: Verdict, detail: str) -> Fault:
        return Fault(verdict=verdict, code=level.code, detail=detail, case=case)

    found = finding(ending.output)
    if found is not None:
        return fault(level.verdict, found)
    if READY in ending.progress and ending.status is None:
        return fault(Verdict.HUNG, f"no end after {ending.seconds:.0f} s; the process was killed")
    if READY not in ending.progress or not tool.is_finished(ending.output) or BROKEN.search(ending.output):
        raise Unavailable(f"the tool does not run here: {complaint(ending.output)}")
    if ending.progress[-1].startswith(STATUS):
        status = int(ending.progress[-1].removeprefix(STATUS))
        return fault(Verdict.LAUNCH_FAILED, f"the variant returned status {status} ({tool.errors.text(status)})")
    if ending.status or case is not None:
        status = ending.status or 0
        ended = f"ended with status {status} before all cases were run"
        return fault(Verdict.CRASHED, f"the process {f'was killed by signal {-status}' if status < 0 else ended}")
    return None


# What a tool printed, as one line: what happened, how large the access was, and where

COMPILER = re.compile(r"(?:ERROR|WARNING): (?:Address|Thread)Sanitizer: (.+)")
"""The first line of a report of the compiler's sanitizers."""

NOISE = re.compile(r" on (?:unknown )?address .*| \(pid=\d+\)| (?:on|at|(?:to|of) address) 0x[0-9a-f]+|:$")
UNDEFINED = re.compile(r"^(?:.*/)?([^/\s]+:\d+):\d+: runtime error: (.+)", re.MULTILINE)
ACCESS = re.compile(r"^ *((?:Previous )?(?:atomic )?(?:read|write) of size \d+)(?: at \S+)?([^:\n]*)", re.M | re.I)
FRAME = re.compile(r"^ +#\d+ (?:0x[0-9a-f]+ in )?(.+?) (?:\S*/)?([^/\s]+:\d+)(?::\d+)?(?: \(.*)?$", re.MULTILINE)
REGION = re.compile(r"is located (.+ region)")
RUNTIME = re.compile(r"libsanitizer|compiler-rt|_interceptors")
"""Marks a frame of the sanitizer itself, such as its memcpy."""

SUMMARY = re.compile(r"^========= .*SUMMARY: .*?(\d+) errors?\b", re.MULTILINE)
RECORD = re.compile(r"^========= (?=\S)(?!COMPUTE-SANITIZER|\w+ SUMMARY)(.+(?:\n=========  +\S.*)*)", re.MULTILINE)
"""A finding of compute-sanitizer: a line, and those indented under it."""

LINES = 5
"""Lines at the head of a record that say what, where, and by which thread."""

BROKEN = re.compile(r"FATAL: \w+Sanitizer|Sanitizer: CHECK failed|Sanitizer failed to|Sanitizer cannot proceed")
"""What a sanitizer of the compiler prints that could not do its work."""


def finding(output: str) -> str | None:
    """The first finding, as a line; None when there is none."""
    return _of_device(output) or _of_compiler(output)


def has_summary(output: str) -> bool:
    """True when compute-sanitizer came to its summary: it prints one even when it finds nothing."""
    return SUMMARY.search(output) is not None


def complaint(output: str) -> str:
    """Why a process ended without a report: the tool's first error, and the last line that is not the tool's."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    tools = [line.removeprefix("========= ") for line in lines if line.startswith("========= Error: ")]
    others = [line for line in lines if not line.startswith("=========")]
    return "; ".join([*tools[:1], *others[-1:]]) or "it printed nothing"


def _of_compiler(output: str) -> str | None:
    undefined = UNDEFINED.search(output)
    if undefined is not None:
        return f"{NOISE.sub('', undefined[2])}, at {undefined[1]}"
    found = COMPILER.search(output)
    if found is None:
        return None
    report = output[found.end() :]
    accesses = [f"{access[1]}{access[2]}{_place(report[access.end() :])}" for access in ACCESS.finditer(report)]
    what = NOISE.sub("", found[1]).strip()
    if not accesses:
        return what + _place(report)
    region = REGION.search(report)
    return "; ".join([what, *accesses[:2], *([region[1]] if region else [])])


def _place(report: str) -> str:
    """The first frame that is not the sanitizer's own."""
    frames = (frame for frame in FRAME.finditer(report) if not RUNTIME.search(frame[0]))
    frame = next(frames, None)
    return f" in {frame[1]} at {frame[2]}" if frame else ""


def _of_device(output: str) -> str | None:
    summary = SUMMARY.search(output)
    if summary is None or summary[1] == "0":
        return None
    records = [record[1] for record in RECORD.finditer(output)]
    errors = [record for record in records if not record.startswith("Warning")]
    lines = (errors or [summary[0]])[0].replace("=========", "").splitlines()
    return ", ".join(line.strip() for line in lines[:LINES] if "Frame" not in line and "backtrace" not in line)
