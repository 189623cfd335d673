"""Compilers are tried before the first variant: what they refuse then is no variant's fault, and is told with the
remedy."""

from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.architecture import architecture
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import require_cache, require_compilers
from autotuner.values import config
from autotuner.values.errors import ToolchainError
from tests.helpers.refusing import refused

TOO_NEW = 'case "$*" in *__CUDACC__*) set -- "$@" -D__GNUC__=99;; esac'
"""For nvcc's header this g++ is version 99."""
BROKEN = 'case "$*" in *" -c "*) echo "cc1plus: error: bad value for -march" >&2; exit 1;; esac'


@pytest.fixture
def wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A g++ that is found first and calls the real one; what it does before is appended by the test."""
    real = config.cxx()
    script = tmp_path / "bin" / "g++"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("AUTOTUNER_CACHE", str(tmp_path / "cache"))
    script.with_name("real").write_text(f'exec {real} "$@"\n')
    return script


def behave(script: Path, first: str = "") -> None:
    script.write_text(f"#!/bin/sh\n{first}\n{script.with_name('real').read_text()}")
    require_cache()


def test_a_host_compiler_that_nvcc_does_not_know(wrapped: Path) -> None:
    if config.nvcc() is None:
        pytest.skip("there is no nvcc")
    behave(wrapped, TOO_NEW)
    toolchain = CudaToolchain.discover(architecture("sm_80"))
    with refused(ToolchainError, r"refuses the host compiler .*bin/g\+\+.* set CXX to an older one"):
        require_compilers(toolchain)
    behave(wrapped)
    require_compilers(toolchain)


def test_a_compiler_that_is_mended_is_tried_again_and_one_that_works_is_not(wrapped: Path) -> None:
    behave(wrapped)
    toolchain = CpuToolchain.discover()
    behave(wrapped, BROKEN)
    with pytest.raises(ToolchainError, match=r"cannot compile an empty kernel: .*bad value.*; set CXX"):
        require_compilers(toolchain)
    behave(wrapped)
    require_compilers(toolchain)
    behave(wrapped, BROKEN)
    require_compilers(toolchain)


def test_no_objdump_is_told_before_the_first_variant(
    wrapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behave(wrapped)
    toolchain = CpuToolchain.discover()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"no objdump on the PATH; install"):
        require_compilers(toolchain)
