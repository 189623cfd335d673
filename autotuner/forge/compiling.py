"""Running compilers: in a cage, with a deadline, and once more where the system killed one.

Of the user's files a compiler reads those alone that are in the digest of what it makes, and it writes into its own
folder. Whatever the flags and the source say, it can do no more. docs/method/isolation.md says what that is worth.
"""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from autotuner.forge import compiler_files, landlock, seccomp
from autotuner.values import config
from autotuner.values.errors import ToolchainError
from autotuner.values.files import FULL, FULL_WORDS

BUILD_DEADLINE_S = 300.0
"""Seconds that a compiler may take."""
KILLED = re.compile(r"Killed signal terminated program|died due to signal 9")
"""What g++ and nvcc print when a part of them was killed."""
BY_SIGKILL = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""How a compiler that was killed itself ends, as a child of this process and as one of a shell."""
ERROR = re.compile(r"\b(error|ERROR|fatal)\s*: |undefined reference|: multiple definition|ld: cannot")
"""What the line of a compiler's or linker's first error contains."""

SOURCES = ("-c", "-cubin")
"""What is in a command that compiles; others read objects alone."""
WRITES: tuple[str, ...] = ("/dev/null", "/dev/zero", "/dev/urandom")
"""Where it writes beside its folder."""
UNREAD = re.compile(r"Permission denied|file not found: |could not open|cannot open")
"""What compilers say of a file that they may not read."""
REMEDY = (
    "\na build reads its toolchain, and files of the family's folder and headers whose names stand in the sources, in"
    " quotes or <>: these are in its digest"
)


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


def run_compiler(command: list[str], folder: Path, reads: Iterable[Path]) -> str:
    """What a compiler, linker or the like printed, run in that folder, in which its own files are; of others it reads
    its toolchain and `reads`. It is run once more where it, or a part of it, was killed: by the system perhaps, for
    want of memory, which says nothing of what it compiles. Raises NotCompiled, and OSError where its complaint is that
    the disk is full."""
    environment = config.for_compilers(folder)
    system = compiler_files.needed() if {*SOURCES} & {*command} else compiler_files.everything()
    with ThreadPoolExecutor(1) as thread:  # what it gives up holds for it, and what it starts, alone
        thread.submit(_enter_cage, folder, (Path(command[0]), *system, *reads)).result()
        done = thread.submit(run, command, BUILD_DEADLINE_S, environment, folder).result()
        if done is not None and (done.returncode in BY_SIGKILL or (done.returncode and KILLED.search(done.stdout))):
            done = thread.submit(run, command, BUILD_DEADLINE_S, environment, folder).result()
    if done is None:
        raise NotCompiled(f"the compiler took longer than {BUILD_DEADLINE_S:.0f} s and was killed", command, late=True)
    if done.returncode:
        for number, words in zip(FULL, FULL_WORDS, strict=True):
            if words in done.stdout:
                raise OSError(number, words)
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        said = first_error(done.stdout) or f"it printed nothing and ended with {ended}"
        raise NotCompiled(said + (REMEDY if UNREAD.search(said) else ""), command)
    return done.stdout


def _enter_cage(folder: Path, reads: Iterable[Path]) -> None:
    """As run/cage.py does for a process that runs variants; what the machine lacks is named there."""
    seccomp.give_up_privileges()
    if landlock.version():
        landlock.restrict([*config.toolkits(), *reads], [folder, *map(Path, WRITES)])
    if seccomp.machine() is not None:
        seccomp.refuse(seccomp.Walls(signals=False, processes=False, code=False), everywhere=False)


def first_error(output: str) -> str:
    """Compiler output from the first error on, at most 1,000 characters."""
    lines = output.splitlines()
    starts = [i for i, line in enumerate(lines) if ERROR.search(line)]
    return "\n".join(lines[starts[0] :] if starts else lines[-10:])[:1000]
