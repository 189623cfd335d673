"""The build.ninja of one variant. Every rule runs in the console pool: outside it ninja gives each compiler a process
group of its own, which would outlive ours. The steps are the toolchain's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from autotuner.forge.build_inputs import BuildInputs


def ninja_text(inputs: BuildInputs, objects: Sequence[Path]) -> str:
    """The build of the inputs; `objects` are those that are compiled once a toolchain."""
    steps = inputs.toolchain.steps(inputs, objects)
    compiler = f"cxx = {word(inputs.toolchain.compiler)}"
    return "\n".join([compiler, *steps, f"default {inputs.library}", ""])


def path(of: Path | str) -> str:
    """A path as a file name of a ninja statement."""
    return re.sub(r"([$ :])", r"$\1", str(of))


def word(of: Path | str) -> str:
    """A word of a command of a ninja rule."""
    return shlex.quote(str(of)).replace("$", "$$")


def flags(inputs: BuildInputs) -> str:
    """The variant's flags and the folders of its headers, as words of a command."""
    return " ".join(word(flag) for flag in (*inputs.flags, *(f"-I{folder}" for folder in inputs.include_dirs)))


def rule(name: str, command: str) -> list[str]:
    """A rule that runs the command."""
    return [f"rule {name}", f"  command = {command}", "  pool = console"]


def shared(inputs: BuildInputs) -> str:
    """The link of a library whose Python module carries the artifact's name."""
    return f"$cxx -shared -pthread -Wl,--defsym=PyInit_{inputs.name}=PyInit_variant"
