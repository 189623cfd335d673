"""A place to build the family tiny in, with the real compiler."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.build import build
from autotuner.forge.build_inputs import BuildInputs
from autotuner.forge.family import Family
from autotuner.values import config
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault
from tests.helpers.judging import KERNELS, PROBLEM, artifact_of, compiler, runs, tiny, wrapper


@dataclasses.dataclass
class Workshop:
    """A cache of its own, a copy of the family tiny, and a compiler whose runs are counted."""

    folder: Path
    toolchain: CpuToolchain

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def family(self) -> Path:
        return self.folder / "tiny"

    def compiler_does(self, body: str) -> None:
        """That first from now on: shell."""
        compiler(self.folder, body, Path(self.toolchain.compiler))

    def inputs(self, variant: Variant | None = None, problem: Problem = PROBLEM) -> BuildInputs:
        return BuildInputs.of(Family.load(self.family), variant or tiny(), problem, self.toolchain)

    def build(self, variant: Variant | None = None, problem: Problem = PROBLEM) -> Artifact | Fault:
        return build(Family.load(self.family), variant or tiny(), problem, self.toolchain)

    def library(self, variant: Variant | None = None, problem: Problem = PROBLEM) -> Artifact:
        return artifact_of(self.build(variant, problem))

    def fault(self, variant: Variant | None = None) -> Fault:
        built = self.build(variant)
        assert isinstance(built, Fault)
        return built

    def compiled(self) -> int:
        """How often the compiler was run on a variant."""
        return sum("unit.cpp" in run for run in runs(self.folder))

    def half_made(self) -> list[Path]:
        return list(self.cache.rglob(".building-*"))

    def forget_objects(self) -> None:
        """What every build needs is compiled by the next one."""
        shutil.rmtree(self.cache / "objects")


def set_up(folder: Path, monkeypatch: pytest.MonkeyPatch, compiler: Path | None = None) -> Workshop:
    """A workshop there. With a path for the compiler that others had too, what every build by it needs is there."""
    shutil.copytree(KERNELS / "tiny", folder / "tiny")
    monkeypatch.setenv("CXX", str(wrapper(folder, "", monkeypatch, compiler)))
    toolchain = CpuToolchain.discover()
    if compiler is not None:
        provide(toolchain, folder / "cache")
        (folder / "runs").unlink()
    monkeypatch.setenv(config.CACHE, str(folder / "cache"))
    return Workshop(folder, toolchain)


def provide(toolchain: CpuToolchain, cache: Path) -> None:
    """Puts into a cache what every build of the toolchain needs: it is compiled once, in the cache of all tests."""
    artifact_of(build(Family.load(KERNELS / "tiny"), tiny(), PROBLEM, toolchain))
    shutil.copytree(config.cache_dir() / "objects", cache / "objects")
