"""G8 on the CPU: the variant built anew with the compiler's sanitizers and a small program around it."""

import platform
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

from autotuner.devices.sanitized_inputs import draw, output_bytes, strides_of
from autotuner.forge.build_inputs import BuildInputs, abi_dir, files_of
from autotuner.forge.compiling import NotCompiled, run, run_compiler
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import DeviceErrors
from autotuner.forge.toolchain import Toolchain
from autotuner.forge.unit import unit_text
from autotuner.gate.check import Unavailable
from autotuner.gate.sanitizer import MEMORY, RACE, SanitizerCheck, complaint
from autotuner.ops import op_of
from autotuner.ops.op import Input, Output, shape_of
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem

HIDDEN = ("-U__SANITIZE_ADDRESS__", "-U__SANITIZE_THREAD__")
"""By which a source could tell that it is looked at. Clang tells by other means."""
FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-U_FORTIFY_SOURCE", *HIDDEN)
"""After the variant's own flags."""

MAIN = "sanitize_main.cpp"
"""The program around the variant, in the ABI's folder."""
RANK = 4
"""Dimensions of a tensor, at most: AT_MAX_RANK of kernels/abi/variant.h."""

SANITIZE = {
    MEMORY.code: ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    # The runtime does not understand fences, and would report what they order: the compiler warns of them. Copies are
    # seen only where they are calls.
    RACE.code: ("-fsanitize=thread", "-Werror=tsan", *(f"-fno-builtin-mem{what}" for what in ("cpy", "move", "set"))),
}


class CpuSanitizer:
    """The sanitizers of the C++ compiler."""

    errors = DeviceErrors()

    def __init__(self, family: Family, toolchain: Toolchain) -> None:
        self._family, self._toolchain = family, toolchain

    def command(self, level: SanitizerCheck, artifact: Artifact, cases: Sequence[Problem], folder: Path) -> list[str]:
        """Builds the program and writes its calls."""
        inputs = BuildInputs.of(self._family, artifact.variant, cases[0], self._toolchain)
        if inputs.digest != artifact.digest:
            raise Unavailable("the variant's sources or its compiler have changed since it was built")
        launcher = self._launcher(level, inputs, folder)
        unit, program = folder / "unit.cpp", folder / "sanitized"
        unit.write_text(unit_text(inputs))
        includes = [f"-I{path}" for path in inputs.include_dirs]
        sources = [str(unit), *(str(abi_dir() / name) for name in (*self._toolchain.sources, MAIN))]
        _compile(inputs, [*FLAGS, *SANITIZE[level.code], *includes, *sources], program)
        calls = [folder / f"call{number}" for number in range(len(cases))]
        for call, problem in zip(calls, cases, strict=True):
            call.write_bytes(_call(problem))
        return [*launcher, str(program), str(folder / "progress"), *map(str, calls)]

    def is_finished(self, output: str) -> bool:
        return True  # the program's own end says it

    def _launcher(self, level: SanitizerCheck, inputs: BuildInputs, folder: Path) -> list[str]:
        """What goes before the program's name for the sanitizer to run here, tried on a program that does nothing.

        Some versions find the place of their tables taken, now and then, where addresses are randomised widely.
        """
        source, program = folder / "nothing.cpp", folder / "nothing"
        source.write_text("int main() { return 0; }\n")
        _compile(inputs, [*SANITIZE[level.code], str(source)], program)
        setarch = shutil.which("setarch")
        failed = "it did not end"
        for launcher in ([[setarch, platform.machine(), "-R"]] if setarch else []) + [[]]:
            done = run([*launcher, str(program)], 30)
            if done is not None and done.returncode == 0:
                return launcher
            if done is not None:
                failed = complaint(done.stdout)
        raise Unavailable(f"a program built with {SANITIZE[level.code][0]} does not run here: {failed}")


def _call(problem: Problem) -> bytes:
    """A call as kernels/abi/sanitize_main.cpp reads it: counts, dims, scalars; bytes and strides of tensors; inputs."""
    inputs, outputs = draw(problem), output_bytes(problem)
    shape, scalars, sizes = problem.shape, problem.scalars, (*map(len, inputs), *outputs)
    counts = struct.pack("=4q", len(shape), len(scalars), len(inputs), len(outputs))
    numbers = struct.pack(f"={len(shape)}q{len(scalars)}d{len(sizes)}q", *shape, *scalars, *sizes)
    op = op_of(problem)
    tensors: tuple[Input | Output, ...] = (*op.inputs(problem), *op.outputs(problem))
    strides = (strides_of(each, shape_of(each, problem)) for each in tensors)
    packed = (struct.pack(f"={RANK}q", *each, *[0] * (RANK - len(each))) for each in strides)
    return b"".join((counts, numbers, *packed, *inputs))


def _compile(inputs: BuildInputs, arguments: list[str], program: Path) -> None:
    """Raises Unavailable when the compiler refuses; it has taken the variant without sanitizers."""
    compiler = inputs.toolchain.compiler
    try:
        reads = files_of([*inputs.files, abi_dir() / MAIN], inputs.include_dirs)
        run_compiler([compiler, *inputs.flags, *arguments, "-o", str(program)], program.parent, reads)
    except NotCompiled as failed:
        raise Unavailable(f"{compiler} does not build it with sanitizers: {failed}") from None
