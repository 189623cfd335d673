"""Recipe: all that goes into one artifact, and its identity; and the translation unit that is compiled."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from autotuner.build.family import Implementation, Kernel
from autotuner.devices.toolchain import COMMON_FLAGS, AnyToolchain, CudaToolchain
from autotuner.ops.sdpa.problem import Problem
from autotuner.values import config
from autotuner.values.model import Model
from autotuner.values.variant import Variant, digest_of

ABI_VERSION = 1
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


def abi_dir() -> Path:
    """The folder of the ABI's headers, the binding and the launcher."""
    return config.kernels_dir() / "abi"


class Recipe(Model):
    """All that goes into one artifact, and its identity."""

    variant: Variant
    dtype: str
    head_dim: int
    causal: bool
    lengths: tuple[int, int] | None
    """(seq_q, seq_k) when they are fixed at compile time."""
    toolchain: AnyToolchain
    flags: tuple[str, ...]
    source: Path
    host: Path | None
    """The host side of a CUDA variant."""
    include_dirs: tuple[Path, ...]
    digest: str

    @classmethod
    def of(cls, kernel: Kernel, variant: Variant, problem: Problem, toolchain: AnyToolchain) -> Recipe:
        """Raises KernelError when the family does not take the variant or the problem."""
        kernel.admit(variant, problem)
        implementation = kernel.implementation(variant.backend, variant.impl)
        source, host = kernel.folder / implementation.source, host_source(kernel, variant.backend, implementation)
        include_dirs = (abi_dir(), kernel.folder)
        common = toolchain.device_flags if isinstance(toolchain, CudaToolchain) else COMMON_FLAGS
        flags = (*common, *implementation.flags)
        fixed = implementation.fixed_lengths is not None and variant.parameters[implementation.fixed_lengths] == 1
        lengths = (problem.seq_q, problem.seq_k) if fixed else None
        sources = [source, abi_dir() / "binding.cpp", *([host] if host else [])]
        identity = {
            "variant": variant.model_dump(mode="json"),
            "compiled_for": [problem.op, problem.dtype, problem.head_dim, problem.causal, *(lengths or ())],
            "toolchain": toolchain.model_dump(mode="json"),
            "flags": flags,
            "sources": source_digests(sources, include_dirs),
            "abi": ABI_VERSION,
        }
        return cls(
            variant=variant,
            dtype=problem.dtype,
            head_dim=problem.head_dim,
            causal=problem.causal,
            lengths=lengths,
            toolchain=toolchain,
            flags=flags,
            source=source,
            host=host,
            include_dirs=include_dirs,
            digest=digest_of(identity),
        )

    @property
    def name(self) -> str:
        """The extension's module name: unique to the artifact."""
        return f"{self.variant.family}_{self.variant.impl}_{self.digest[:16]}"

    @property
    def compiled_in(self) -> dict[str, int]:
        """The integer macros that the problem gives."""
        macros = {"HEAD_DIM": self.head_dim, "CAUSAL": int(self.causal)}
        if self.lengths is not None:
            macros |= {"SEQ_Q": self.lengths[0], "SEQ_K": self.lengths[1]}
        return macros

    @property
    def macros(self) -> dict[str, str]:
        """Name and value, as text, of every macro the binary must report."""
        problem = {"DTYPE": self.dtype, **{name: str(value) for name, value in self.compiled_in.items()}}
        return {**{name: str(value) for name, value in self.variant.parameters.items()}, **problem}


def host_source(kernel: Kernel, backend: str, implementation: Implementation) -> Path | None:
    """The host side of a CUDA implementation: its own, or the launcher of the ABI. A CPU variant needs none."""
    if backend != "cuda":
        return None
    return kernel.folder / implementation.host if implementation.host else abi_dir() / "sdpa_launch.cpp"


def built_from(kernel: Kernel, backend: str, toolchain: AnyToolchain) -> str:
    """A digest of what every artifact of a family is made from: its sources, the ABI, the compiler, the machine."""
    sources = [kernel.folder / "kernel.toml", abi_dir() / "binding.cpp"]
    for implementation in kernel.table(backend).values():
        host = host_source(kernel, backend, implementation)
        sources += [kernel.folder / implementation.source, *([host] if host else [])]
    digests = source_digests(sources, (abi_dir(), kernel.folder))
    return digest_of([sorted(digests.items()), toolchain.model_dump(mode="json"), ABI_VERSION])


def source_digests(sources: list[Path], include_dirs: tuple[Path, ...]) -> dict[str, str]:
    """SHA-256 of each source and of every header of ours that it includes, however deep; system headers belong to the
    compiler's version."""
    digests: dict[str, str] = {}
    seen: set[Path] = set()
    waiting = list(sources)
    while waiting:
        path = waiting.pop().resolve()
        if path in seen:
            continue
        seen.add(path)
        text = path.read_bytes()
        key = f"{path.parent.name}/{path.name}"
        while key in digests:  # another file of that name, in another folder of that name
            key += "+"
        digests[key] = hashlib.sha256(text).hexdigest()
        for included in INCLUDE.findall(text):
            for folder in (path.parent, *include_dirs):
                if (folder / os.fsdecode(included)).is_file():
                    waiting.append(folder / os.fsdecode(included))
                    break
    return digests


def macro_lines(parameters: Mapping[str, int | str]) -> Iterator[str]:
    """The #define of each parameter: integers as they are; a string value v of P becomes P_V, defined to 1."""
    for name, value in parameters.items():
        if isinstance(value, str):
            yield f"#define {name}_{re.sub(r'[^A-Z0-9]', '_', value.upper())} 1"
        else:
            yield f"#define {name} {value}"


def _report_lines(recipe: Recipe) -> Iterator[str]:
    """The table of macros as the preprocessor holds them after the variant's source, as NAME=VALUE lines."""
    for name, value in recipe.variant.parameters.items():
        if isinstance(value, str):
            flag = f"{name}_{re.sub(r'[^A-Z0-9]', '_', value.upper())}"
            yield f'#if {flag} == 1\n"{name}={value}\\n"\n#endif'
        else:
            yield f'"{name}=" AT_TEXT({name}) "\\n"'
    yield f'#if DTYPE == AT_{recipe.dtype.upper()}\n"DTYPE={recipe.dtype}\\n"\n#endif'
    for name in recipe.compiled_in:
        yield f'"{name}=" AT_TEXT({name}) "\\n"'


def unit_text(recipe: Recipe) -> str:
    """The translation unit: macros, the variant's source, and what the binary says about itself."""
    head = [
        *macro_lines(recipe.variant.parameters),
        f"#define DTYPE AT_{recipe.dtype.upper()}",
        *(f"#define {name} {value}" for name, value in recipe.compiled_in.items()),
        f'#include "{recipe.source.name}"',
        '#include "identity.h"',
    ]
    identity = _device_identity(recipe) if recipe.host else _host_identity(recipe)
    return "\n".join([*head, *identity, ""])


def _host_identity(recipe: Recipe) -> list[str]:
    """The identity of a CPU variant, in sections that the program hash leaves out."""
    return [
        f'__attribute__((section(".at_build_id"))) static const char at_build_id[] = "{recipe.digest}";',
        '__attribute__((section(".at_macros"))) static const char at_macros[] =',
        *_report_lines(recipe),
        '"";',
        'extern "C" __attribute__((section(".at_identity"), used)) const at_identity variant_identity = {',
        "    AT_ABI_VERSION, (int32_t)sizeof(at_call), at_build_id, at_macros, variant_workspace, variant_run};",
    ]


def _device_identity(recipe: Recipe) -> list[str]:
    """The identity of a CUDA variant: constants of the cubin, which the host side reads there."""
    return [
        f'extern "C" __device__ const char at_build_id[] = "{recipe.digest}";',
        'extern "C" __device__ const char at_macros[] =',
        *_report_lines(recipe),
        '"";',
    ]
