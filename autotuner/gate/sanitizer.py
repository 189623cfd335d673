"""G8: a variant runs under sanitizers on a few small cases. Right results are the business of the other checks.

A CPU variant is built anew, twice, with the compiler's sanitizers and a small program around it; a CUDA variant runs as
it is under NVIDIA's compute-sanitizer. Where a tool cannot be had, or cannot run here, its check is unavailable.
"""

from __future__ import annotations

import platform
import shutil
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from autotuner.build.build import BUILD_DEADLINE_S, first_error, private_directory, run
from autotuner.build.build_inputs import Recipe, abi_dir, unit_text
from autotuner.build.family import Kernel
from autotuner.build.loaded_variant import status_text
from autotuner.devices.cuda.sanitized import DONE, READY, STATUS, Job, draw
from autotuner.devices.toolchain import AnyToolchain
from autotuner.gate import sanitizer_report
from autotuner.ops.sdpa.problem import Problem
from autotuner.values import config
from autotuner.values.gate_report import CheckResult
from autotuner.values.outcome import Artifact, Say
from autotuner.values.verdict import Fault, Verdict

DEADLINE_S = 120.0
"""For one process that runs all cases."""

HOST_FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-U_FORTIFY_SOURCE")
"""After the variant's own flags."""

DEVICE_FLAGS = ("--check-exit-code", "no", "--print-limit", "20")
LONGEST_CASE = 520
"""A tool may slow a kernel down a hundred times: no case is much longer, whatever the variant's tile."""


class Level(NamedTuple):
    """One check: the code, the verdict on a finding, the compiler's options on the CPU and the tool's on CUDA."""

    code: str
    verdict: Verdict
    host: tuple[str, ...]
    device: tuple[str, ...]


LEVELS = (
    Level(
        "G8.memory",
        Verdict.CORRUPTING,
        host=("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        # Without padding, allocations of whole granules touch, and what is past the end of one belongs to the next.
        device=("--tool", "memcheck", "--padding", "1024", "--report-api-errors", "no"),
    ),
    Level(
        "G8.race",
        Verdict.NONDETERMINISTIC,
        # The runtime does not understand fences, and would report what they order: the compiler warns of them. Copies
        # are seen only where they are calls.
        host=("-fsanitize=thread", "-Werror=tsan", *(f"-fno-builtin-mem{what}" for what in ("cpy", "move", "set"))),
        device=("--tool", "racecheck"),
    ),
)


class Unavailable(Exception):
    """The check cannot be made here; the message says why."""


class Ending(NamedTuple):
    """How the process ended."""

    status: int | None
    """None at the deadline."""
    output: str
    progress: list[str]
    seconds: float


def small_cases(like: Problem, lengths: tuple[int, int] | None, tiles: tuple[int, int]) -> tuple[Problem, ...]:
    """Ragged cases for an artifact compiled for `like`; one is above the variant's own tile (block_m, block_n).

    With `lengths`, (seq_q, seq_k), the artifact serves no others.
    """
    block_m, block_n = (min(block, LONGEST_CASE) for block in tiles)
    shapes = ((1, 2, 33, 17), (2, 1, 1, 5), (1, 2, block_m + 1, block_n + 3))
    found = []
    for batch, heads, *ragged in shapes:
        seq_q, seq_k = lengths or ragged
        sizes = {"batch": batch, "heads": heads, "seq_q": seq_q, "seq_k": seq_k}
        found.append(like.model_copy(update=sizes))
    return tuple(dict.fromkeys(found))


def sanitized(
    kernel: Kernel,
    artifact: Artifact,
    toolchain: AnyToolchain,
    cases: Sequence[Problem],
    say: Say,
    deadline_s: float = DEADLINE_S,
) -> tuple[tuple[CheckResult, ...], Fault | None]:
    """G8.memory and G8.race, in this order; the first failure stops. `cases` are what the artifact is compiled for.

    `say` hears of each build, which takes up to BUILD_DEADLINE_S, and of each process, which takes up to `deadline_s`.
    """
    checks: list[CheckResult] = []
    for level in LEVELS:
        say(level.code)
        started = time.monotonic()
        fault, note = None, None
        try:
            with private_directory() as folder:
                command = _command(level, kernel, artifact, toolchain, cases, folder)
                say(f"{level.code} run")
                fault = _judged(level, _ending(command, folder, deadline_s), cases, artifact.variant.backend)
        except Unavailable as why:
            note = str(why)
        status = "fail" if fault else "unavailable" if note else "pass"
        seconds = time.monotonic() - started
        checks.append(
            CheckResult.model_validate({"code": level.code, "status": status, "seconds": seconds, "note": note})
        )
        if fault is not None:
            return tuple(checks), fault
    return tuple(checks), None


def _command(
    level: Level, kernel: Kernel, artifact: Artifact, toolchain: AnyToolchain, cases: Sequence[Problem], folder: Path
) -> list[str]:
    """The process to run, made ready in the folder. Raises Unavailable."""
    if artifact.variant.backend == "cuda":
        return _device_command(level, artifact, cases, folder)
    recipe = Recipe.of(kernel, artifact.variant, cases[0], toolchain)
    if recipe.digest != artifact.digest:
        raise Unavailable("the variant's sources or its compiler have changed since it was built")
    return _host_command(level, recipe, cases, folder)


# The CPU --------------------------------------------------------------------------------------------------------------


def _host_command(level: Level, recipe: Recipe, cases: Sequence[Problem], folder: Path) -> list[str]:
    """Builds the program and writes its calls. Raises Unavailable."""
    launcher = _launcher(level, recipe, folder)
    unit, program = folder / "unit.cpp", folder / "sanitized"
    unit.write_text(unit_text(recipe))
    includes = [f"-I{path}" for path in recipe.include_dirs]
    sources = [str(unit), str(abi_dir() / "sanitize_main.cpp")]
    _compile(recipe, [*HOST_FLAGS, *level.host, *includes, *sources], program)
    calls = [folder / f"call{number}" for number in range(len(cases))]
    for call, problem in zip(calls, cases, strict=True):
        call.write_bytes(_call(problem))
    return [*launcher, str(program), str(folder / "progress"), *map(str, calls)]


def _call(problem: Problem) -> bytes:
    """A call as kernels/abi/sanitize_main.cpp reads it."""
    q, k, v = draw(problem)
    dims = (problem.batch, problem.heads, problem.seq_q, problem.seq_k)
    return struct.pack("=6qd", *dims, len(q), len(k), problem.scale) + q + k + v


def _compile(recipe: Recipe, arguments: list[str], program: Path) -> None:
    """Raises Unavailable when the compiler refuses; it has taken the variant without sanitizers."""
    compiler = recipe.toolchain.compiler
    done = run([compiler, *recipe.flags, *arguments, "-o", str(program)], BUILD_DEADLINE_S)
    if done is None:
        raise Unavailable(f"{compiler} took longer than {BUILD_DEADLINE_S:.0f} s")
    if done.returncode:
        raise Unavailable(f"{compiler} does not build it with sanitizers: {_one_line(first_error(done.stdout))}")


def _launcher(level: Level, recipe: Recipe, folder: Path) -> list[str]:
    """What goes before the program's name for the sanitizer to run here, tried on a program that does nothing.

    Some versions find the place of their tables taken, now and then, where addresses are randomised widely.
    """
    source, program = folder / "nothing.cpp", folder / "nothing"
    source.write_text("int main() { return 0; }\n")
    _compile(recipe, [*level.host, str(source)], program)
    setarch = shutil.which("setarch")
    failed = "it did not end"
    for launcher in ([[setarch, platform.machine(), "-R"]] if setarch else []) + [[]]:
        done = run([*launcher, str(program)], 30)
        if done is not None and done.returncode == 0:
            return launcher
        if done is not None:
            failed = sanitizer_report.complaint(done.stdout)
    raise Unavailable(f"a program built with {level.host[0]} does not run here: {failed}")


# CUDA -----------------------------------------------------------------------------------------------------------------


def _device_command(level: Level, artifact: Artifact, cases: Sequence[Problem], folder: Path) -> list[str]:
    """Raises Unavailable where there is no compute-sanitizer."""
    tool = config.compute_sanitizer()
    if tool is None:
        raise Unavailable("no compute-sanitizer: neither beside nvcc, nor on the PATH, nor installed by pip")
    job = folder / "job.json"
    job.write_text(Job(artifact=artifact, cases=tuple(cases)).model_dump_json())
    process = [sys.executable, "-m", "autotuner.devices.cuda.sanitized", str(job), str(folder / "progress")]
    return [tool, *level.device, *DEVICE_FLAGS, *process]


# The process ----------------------------------------------------------------------------------------------------------


def _ending(command: list[str], folder: Path, deadline_s: float) -> Ending:
    progress = folder / "progress"
    progress.write_text("")
    started = time.monotonic()
    done = run(command, deadline_s)
    status, output = (None, "") if done is None else (done.returncode, done.stdout)
    return Ending(status, output, progress.read_text().splitlines(), time.monotonic() - started)


def _judged(level: Level, ending: Ending, cases: Sequence[Problem], backend: str) -> Fault | None:
    """None when all cases were run and nothing was found. Raises Unavailable when the tool could not do its work."""
    done = ending.progress.count(DONE)
    case = str(cases[done]) if done < len(cases) else None

    def fault(verdict: Verdict, detail: str) -> Fault:
        return Fault(verdict=verdict, code=level.code, detail=detail, case=case)

    found = sanitizer_report.finding(ending.output)
    if found is not None:
        return fault(level.verdict, found)
    if READY in ending.progress and ending.status is None:
        return fault(Verdict.HUNG, f"no end after {ending.seconds:.0f} s; the process was killed")
    finished = backend == "cpu" or sanitizer_report.is_finished(ending.output)
    if READY not in ending.progress or not finished or sanitizer_report.is_broken(ending.output):
        raise Unavailable(f"the tool does not run here: {sanitizer_report.complaint(ending.output)}")
    if ending.progress[-1].startswith(STATUS):
        status = int(ending.progress[-1].removeprefix(STATUS))
        return fault(Verdict.LAUNCH_FAILED, f"the variant returned status {status} ({status_text(status)})")
    if ending.status or case is not None:
        return fault(Verdict.CRASHED, _how(ending.status or 0))
    return None


def _how(status: int) -> str:
    if status < 0:
        return f"the process was killed by signal {-status}"
    return f"the process ended with status {status} before all cases were run"


def _one_line(text: str) -> str:
    return " ".join(text.split())
