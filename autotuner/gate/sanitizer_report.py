"""What a sanitizer printed, as one line: what happened, how large the access was, and where."""

from __future__ import annotations

import re

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


def is_finished(output: str) -> bool:
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
