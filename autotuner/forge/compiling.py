"""Running compilers: in a process group of their own, with a deadline, and once more where the system killed one."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotuner.values import config
from autotuner.values.errors import ToolchainError
from autotuner.values.files import FULL, FULL_WORDS

BUILD_DEADLINE_S = 300.0
"""Seconds that a compiler may take."""
KILLED = re.compile(r"Killed signal terminated program|died due to signal 9")
"""What g++ and nvcc print when a part of them was killed."""
BY_SIGKILL = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""How a compiler that was killed itself ends, as a child of this process and as one of a shell."""
ERROR = re.compile(r"\b(error|ERROR|fatal)\s*: |undefined reference|: multiple definition")
"""What the line of a compiler's or linker's first error contains."""


class NotCompiled(ToolchainError):
    """Raised for what a compiler refuses, or is too `late` with: in one line, and as it `said` from the first error
    on."""

    def __init__(self, said: str, command: Sequence[str] = ("the compiler", "it"), late: bool = False) -> None:
        super().__init__(f"{Path(command[0]).name} cannot make {Path(command[-1]).name}: {' '.join(said.split())}")
        self.said, self.late = said, late


def run(
    command: list[str], deadline_s: float, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Runs a command in a process group of its own, which is killed at the deadline; None then. Both outputs in one.
    Without `environment` or `folder` it has this process's."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    )
    with process:
        try:
            output, _ = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, output)


def run_compiler(command: list[str], folder: Path) -> str:
    """What a compiler, linker or the like printed, run in that folder, in which its own files are. It is run once more
    where it, or a part of it, was killed: by the system perhaps, for want of memory, which says nothing of what it
    compiles. Raises NotCompiled, and OSError where its complaint is that the disk is full."""
    environment = config.for_compilers(folder)
    done = run(command, BUILD_DEADLINE_S, environment, folder)
    if done is not None and (done.returncode in BY_SIGKILL or (done.returncode and KILLED.search(done.stdout))):
        done = run(command, BUILD_DEADLINE_S, environment, folder)
    if done is None:
        raise NotCompiled(f"the compiler took longer than {BUILD_DEADLINE_S:.0f} s and was killed", command, late=True)
    if done.returncode:
        for number, words in zip(FULL, FULL_WORDS, strict=True):
            if words in done.stdout:
                raise OSError(number, words)
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise NotCompiled(first_error(done.stdout) or f"it printed nothing and ended with {ended}", command)
    return done.stdout


def first_error(output: str) -> str:
    """Compiler output from the first error on, at most 1,000 characters."""
    lines = output.splitlines()
    starts = [i for i, line in enumerate(lines) if ERROR.search(line)]
    return "\n".join(lines[starts[0] :] if starts else lines[-10:])[:1000]
