"""The machine's C++ compiler."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import Field

from autotuner.devices.cpu import object_file
from autotuner.forge.build_inputs import BuildInputs
from autotuner.forge.toolchain import Toolchain, ask, cxx
from autotuner.values.errors import ToolchainError
from autotuner.values.variant import digest_of

NOTHING_ELSE = ("-fno-stack-protector", "-Wno-builtin-macro-redefined", "-D__TIMESTAMP__=__DATE__")
"""Neither a number of the process's own nor a file's time is anything that a variant may read; dates are fixed."""
FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno"),
    *("-fPIC", "-fvisibility=hidden", "-pthread", "-fstack-usage", *NOTHING_ELSE),
)

ALLOWED = (
    r"-O[123]|-Ofast|-std=[\w+]+|-[DU][A-Za-z_]\w*(=\w*)?|-m[a-z0-9][\w.=-]*|-W[a-z][a-z0-9+-]*(=\d+)?|"
    r"--param=[a-z0-9-]+=\d+|-f(no-)?(fast-math|[a-z]+-math(-only|-optimizations)?|math-errno|signed-zeros|"
    r"fp-contract=\w+|vect-cost-model=\w+|(tree|ipa|gcse|inline|unroll|peel|split|schedule)[a-z0-9-]*|strict-aliasing|"
    r"omit-frame-pointer|exceptions|rtti|prefetch-loop-arrays|if-conversion2?|ivopts|align-[a-z]+(=\d+)?|openmp-simd)"
)

UNIT, POOL = "unit.o", "cpu_pool.o"
"""The objects of a build: the variant's own, and the ABI's threads."""


class CpuToolchain(Toolchain):
    """A C++ compiler and the machine it compiles for."""

    unit = "unit.cpp"
    trial = "#include <cmath>\nfloat tried(float x) { return std::exp(x); }\n"
    objects = (UNIT, POOL)
    sources = ("cpu_pool.cpp",)
    shared = sources
    allowed = ALLOWED
    torch_device = "cpu"

    architecture: str = Field(description="what -march=native means here: CPU name and a digest of the target options")
    binding_flags: tuple[str, ...] = FLAGS

    @classmethod
    def discover(cls) -> Self:
        """Finds the C++ compiler and tries it. Raises ToolchainError with the remedy."""
        compiler = cxx()
        version, *_ = ask(compiler, "--version").splitlines() or [""]
        target = ask(compiler, "-march=native", "-Q", "--help=target")
        march = re.search(r"-march=\s+(\S+)", target)
        if not version or march is None:
            raise ToolchainError(f"{compiler} does not say what -march=native means; is it a working g++?")
        digest = hashlib.sha256(target.encode()).hexdigest()[:12]
        return cls(compiler=compiler, version=version, architecture=f"{march[1]}-{digest}")

    @property
    def flags(self) -> tuple[str, ...]:
        return FLAGS

    def identity(self, digest: str, report: Sequence[str], signature: str) -> list[str]:
        """In sections of their own."""
        return [
            f"static const char at_signature[] = {signature};",
            f'__attribute__((section(".at_build_id"))) static const char at_build_id[] = "{digest}";',
            '__attribute__((section(".at_macros"))) static const char at_macros[] =',
            *report,
            '"";',
            'extern "C" __attribute__((section(".at_identity"), used)) const at_identity variant_identity = {',
            "    AT_ABI_VERSION, (int32_t)sizeof(at_call), at_build_id, at_macros, at_signature, variant_workspace,",
            "    variant_run};",
        ]

    def compiled(self, words: Sequence[str]) -> list[str]:
        return [self.compiler, *words, "-c", self.unit, "-o", UNIT]

    def steps(self, inputs: BuildInputs, binding: Path) -> list[list[str]]:
        # First the unit alone, since all that it calls must exist; Python's functions do not yet.
        alone = [self.compiler, "-shared", "-pthread", "-Wl,-z,defs", *self.objects, "-o", inputs.library]
        linked = self.linked(inputs, binding, *self.objects)
        return [self.compiled(inputs.words), *([alone] if inputs.language.is_binary else []), linked]

    def program_hash(self, folder: Path) -> str:
        return digest_of([object_file.program_hash(folder / each) for each in self.objects])

    def misconduct(self, folder: Path, threads: bool, state: bool) -> str | None:
        parts = [object_file.MATHS, object_file.MEMORY, object_file.COMPILER]
        calls = "|".join([*parts, *([object_file.THREADS] if threads else [])])
        return object_file.misconduct(folder / UNIT, self.disassembly(folder / UNIT), calls, state)

    def resources(self, folder: Path, printed: str) -> dict[str, int]:
        stack = [int(line.split("\t")[1]) for line in (folder / "unit.su").read_text().splitlines()]
        self.list_code(folder, object_file.disassemble(folder / UNIT))
        return {"text_bytes": object_file.text_bytes(folder / UNIT), "stack_bytes": max(stack, default=0)}
