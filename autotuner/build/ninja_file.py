"""The build.ninja of one variant. Every rule runs in the console pool: outside it ninja gives each compiler a process
group of its own, which would outlive ours."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from autotuner.build.build_inputs import Recipe
from autotuner.devices.toolchain import CudaToolchain

CUBIN_ASSEMBLY = """\
    .section .rodata
    .balign 64
    .global variant_cubin, variant_cubin_end
variant_cubin:
    .incbin "variant.cubin"
variant_cubin_end:
    .section .note.GNU-stack,"",%progbits
"""
"""Embeds the cubin into the extension under the names that kernels/abi/cuda_host.h declares."""


def ninja_text(recipe: Recipe, objects: Sequence[Path]) -> str:
    """The build of the recipe; `objects` are those that are compiled once a toolchain."""
    if isinstance(recipe.toolchain, CudaToolchain):
        steps = _cuda_steps(recipe, recipe.toolchain, objects)
    else:
        steps = _cpu_steps(recipe, objects)
    return "\n".join([f"cxx = LC_ALL=C {_word(recipe.toolchain.compiler)}", *steps, f"default {library(recipe)}", ""])


def library(recipe: Recipe) -> str:
    """The file name of the extension."""
    return f"{recipe.name}.abi3.so"


def _path(path: Path | str) -> str:
    """A path as a file name of a ninja statement."""
    return re.sub(r"([$ :])", r"$\1", str(path))


def _word(word: Path | str) -> str:
    """A word of a command of a ninja rule."""
    return shlex.quote(str(word)).replace("$", "$$")


def _flags(recipe: Recipe) -> str:
    return " ".join(_word(flag) for flag in (*recipe.flags, *(f"-I{folder}" for folder in recipe.include_dirs)))


def _rule(name: str, command: str) -> list[str]:
    return [f"rule {name}", f"  command = {command}", "  pool = console"]


def _shared(recipe: Recipe) -> str:
    """The link of a library whose Python module carries the artifact's name."""
    return f"$cxx -shared -pthread -Wl,--defsym=PyInit_{recipe.name}=PyInit_variant"


def _cpu_steps(recipe: Recipe, objects: Sequence[Path]) -> list[str]:
    # First the unit alone, since all that it calls must exist; Python's functions do not yet.
    link = f"$cxx -shared -pthread -Wl,-z,defs unit.o -o $out && {_shared(recipe)} $in -o $out"
    return [
        *_rule("compile", f"$cxx {_flags(recipe)} -c $in -o $out"),
        *_rule("link", link),
        "build unit.o: compile unit.cpp",
        f"build {library(recipe)}: link unit.o {' '.join(_path(each) for each in objects)}",
    ]


def _cuda_steps(recipe: Recipe, toolchain: CudaToolchain, objects: Sequence[Path]) -> list[str]:
    return [
        *_rule("device", f"TMPDIR=. LC_ALL=C {_word(toolchain.nvcc)} {_flags(recipe)} $in -o $out"),
        *_rule("embed", "$cxx -c $in -o $out"),
        *_rule("link", f"{_shared(recipe)} $in -ldl -o $out"),
        "build variant.cubin: device unit.cu",
        "build cubin.o: embed cubin.S | variant.cubin",
        f"build {library(recipe)}: link cubin.o {' '.join(_path(each) for each in objects)}",
    ]
