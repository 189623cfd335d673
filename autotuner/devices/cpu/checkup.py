"""What a bug report needs of the CPU and its compiler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from autotuner.devices.cpu.machine import cpu_facts
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.environment import usable_cpus
from autotuner.devices.kind import Finding
from autotuner.forge.build import require_compilers
from autotuner.forge.toolchain import ask
from autotuner.values.errors import InputError


def findings(name: str) -> Iterator[Finding]:
    """Of the processor of that name, its compiler, which is tried, and the compiler's sanitizers."""
    yield Finding("processor", f"{name}; {cpu_facts(usable_cpus())['CPU_VECTOR_BYTES']} bytes a vector")
    try:
        toolchain = CpuToolchain.discover()
        require_compilers(toolchain)
    except InputError as error:
        yield Finding.refused("C++ compiler", error)
        return
    yield Finding("C++ compiler", f"{toolchain.compiler}: {toolchain.version}, for {toolchain.architecture}; it works")
    names = ("libasan.so", "libubsan.so", "libtsan.so")
    lacks = [
        each for each in names if not Path(ask(toolchain.compiler, f"-print-file-name={each}").strip()).is_absolute()
    ]
    remedy = "install those of this compiler (apt-get install gcc); without them G8 is left out"
    said = f"without {', '.join(lacks)}" if lacks else "address, undefined and thread"
    yield Finding("sanitizers", said, remedy if lacks else "", blocks=False)
