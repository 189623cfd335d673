"""Builds, with the real compiler: identity, caching, everything that can go wrong on the way to a library, and what
surrounds a compiler: the disk that it writes to, and the environment that it reads."""

import hashlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from autotuner.devices.cpu.toolchain import FLAGS, CpuToolchain
from autotuner.forge import build as building, compiling
from autotuner.forge.build import build
from autotuner.forge.build_inputs import BuildInputs, abi_dir, binding, built_from
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.values import config
from autotuner.values.errors import DiskFullError, KernelError, ToolchainError
from autotuner.values.outcome import Artifact
from autotuner.values.verdict import Verdict
from tests.helpers.judging import PROBLEM, runs, tiny
from tests.helpers.processes import gone, using
from tests.helpers.refusing import refused
from tests.helpers.workshop import Workshop, set_up


@pytest.mark.timed
def test_what_two_builders_make_at_once_is_one_file(
    tmp_path: Path, toolchain: CpuToolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A linker may read that very file: under the path of one that took its place it would be refused."""
    monkeypatch.setenv(config.CACHE, str(tmp_path))
    together, real = threading.Barrier(2), compiling.run_compiler

    def compile_together(*arguments: Any) -> str:
        said = real(*arguments)
        together.wait(60)
        return said

    def made(delay_s: float) -> tuple[Path, int]:
        time.sleep(delay_s)
        path = building.shared_object(toolchain, binding(), (abi_dir(),))
        return path, path.stat().st_ino

    monkeypatch.setattr(building, "run_compiler", compile_together)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(made, (0.0, 0.1))
    assert one == other == (one[0], one[0].stat().st_ino)


# Identity ---------------------------------------------------------------------------------------------------------


def test_every_variant_can_be_imported_under_a_name_of_its_own(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = [workshop.library(variant) for variant in (tiny(), tiny(DEAD=2))]
    assert len({artifact.name for artifact in artifacts}) == 2
    for artifact in artifacts:
        monkeypatch.syspath_prepend(str(Path(artifact.path).parent))
        module = importlib.import_module(artifact.name)
        assert module.__file__ == artifact.path
        assert module.identity()[2] == artifact.digest
        del sys.modules[artifact.name]


@pytest.mark.parametrize("changed", ["outer.h", "inner.h", "plain.cpp"])
def test_a_changed_source_is_another_artifact(workshop: Workshop, changed: str) -> None:
    before = workshop.inputs().digest
    path = workshop.family / changed
    path.write_text(path.read_text() + "\n")
    assert workshop.inputs().digest != before


@pytest.mark.parametrize("edited", ["plain.cpp", "inner.h"])
def test_what_is_edited_while_it_is_compiled_is_not_kept(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    """The compiler may have read the one or the other, and the digest is of the one."""
    path, real = workshop.family / edited, compiling.run_compiler
    before, digest = path.read_text(), workshop.inputs().digest

    def compile_then_save(*arguments: Any) -> str:
        said = real(*arguments)
        path.write_text(before + "\n")
        return said

    with monkeypatch.context() as patched:
        patched.setattr(building, "run_compiler", compile_then_save)
        with pytest.raises(KernelError, match="edited while it was compiled"):
            workshop.build()
    path.write_text(before)
    assert not building.entry_of(digest).exists()
    assert workshop.library().digest == digest


def test_a_run_builds_nothing_of_sources_that_were_edited_since(workshop: Workshop) -> None:
    """One study has one program, also where the other one is in the cache."""
    family = Family.load(workshop.family)
    made_from = built_from(family, "cpu", workshop.toolchain)
    begun = family.model_copy(update={"built_from": made_from})
    assert isinstance(build(begun, tiny(), PROBLEM, workshop.toolchain), Artifact)
    path = workshop.family / "plain.cpp"
    path.write_text(path.read_text() + "\n")
    assert isinstance(build(family, tiny(), PROBLEM, workshop.toolchain), Artifact)
    with pytest.raises(KernelError, match="edited since this run began; the same command starts a new study"):
        build(begun, tiny(), PROBLEM, workshop.toolchain)


def test_flags_macros_compiler_and_problem_are_part_of_the_identity(workshop: Workshop) -> None:
    family = Family.load(workshop.family)

    def digest(toolchain: CpuToolchain = workshop.toolchain) -> str:
        return BuildInputs.of(Family.load(workshop.family), tiny(), PROBLEM, toolchain).digest

    found = [digest()]
    found += [digest(workshop.toolchain.model_copy(update={each: "other"})) for each in ("version", "architecture")]
    found += [workshop.inputs(variant).digest for variant in (tiny(SIZE=4), tiny(MODE="b"), tiny(DEAD=2))]
    found += [
        workshop.inputs(problem=PROBLEM.model_copy(update={field: value})).digest
        for field, value in (("dtype", "bfloat16"), ("head_dim", 128), ("causal", True))
    ]
    path = family.folder / "kernel.toml"
    path.write_text(path.read_text().replace('"plain.cpp"', '"plain.cpp"\nflags = ["-O2"]'))
    found.append(digest())
    assert len(set(found)) == len(found)


def test_what_a_variant_does_not_depend_on_is_not_part_of_the_identity(workshop: Workshop) -> None:
    before = workshop.inputs().digest
    (workshop.family / "unrelated.h").write_text("int changed;\n")
    (workshop.family / "redefines.cpp").write_text("int changed;\n")
    assert workshop.inputs(problem=PROBLEM.model_copy(update={"batch": 3, "seq_q": 99})).digest == before
    elsewhere = workshop.folder / "elsewhere"
    elsewhere.mkdir()
    shutil.copytree(workshop.family, elsewhere / "tiny")
    assert BuildInputs.of(Family.load(elsewhere / "tiny"), tiny(), PROBLEM, workshop.toolchain).digest == before


# The cache --------------------------------------------------------------------------------------------------------


def test_the_second_build_runs_no_compiler(workshop: Workshop) -> None:
    workshop.forget_objects()
    first = workshop.library()
    ran = len(runs(workshop.folder))
    second = workshop.library()
    assert len(runs(workshop.folder)) == ran
    assert second == first.model_copy(update={"build_seconds": 0.0})
    workshop.library(tiny(DEAD=2))
    assert sum("binding.cpp" in run for run in runs(workshop.folder)) == 1


@pytest.mark.parametrize("damage", ["flip", "remove", "record"])
def test_a_damaged_library_is_built_again(workshop: Workshop, damage: str) -> None:
    first = workshop.library()
    library = Path(first.path)
    content = library.read_bytes()
    if damage == "remove":
        library.unlink()
    elif damage == "record":
        (library.parent / "artifact.json").write_text("{")
    else:
        library.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    again = workshop.library()
    assert workshop.compiled() == 2
    assert again.path == first.path
    assert LoadedVariant(again).identity().build_id == first.digest
    assert workshop.half_made() == []


def test_a_build_in_the_place_of_another_is_built_again(workshop: Workshop) -> None:
    """As a cache that was copied by hand may have it, or a bundle. What the library says of itself fits."""
    mine, other = (Path(workshop.library(tiny(DEAD=dead)).path).parent for dead in (1, 2))
    shutil.rmtree(mine)
    shutil.copytree(other, mine)
    assert workshop.library().digest == mine.name


def test_a_damaged_binding_is_compiled_again(workshop: Workshop) -> None:
    workshop.library()
    for each in (workshop.cache / "objects").rglob("*.o"):
        each.write_bytes(b"")
    LoadedVariant(workshop.library(tiny(DEAD=2)))


def test_paths_may_hold_any_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b$c:d'e").mkdir()
    LoadedVariant(set_up(tmp_path / "a b$c:d'e", monkeypatch).library())


BUILD_IN_A_PROCESS = """
import os, sys
from pathlib import Path
from autotuner.forge import compiling
from autotuner.forge.build import build
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.variant import Variant
family, variant, problem = sys.argv[1:]
for path in (family, os.environ["CXX"]):  # where the compiler counts its runs, and where it lies
    compiling.WRITES += (str(Path(path).parent),)
given = Variant.model_validate_json(variant), SdpaProblem.model_validate_json(problem)
artifact = build(Family.load(Path(family)), *given, CpuToolchain.discover())
print(artifact.library_sha256, artifact.path, LoadedVariant(artifact).identity().build_id == artifact.digest)
"""


def builder(workshop: Workshop) -> subprocess.Popen[str]:
    """Another process that builds the variant."""
    given = str(workshop.family), tiny().model_dump_json(), PROBLEM.model_dump_json()
    command = [sys.executable, "-c", BUILD_IN_A_PROCESS, *given]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent.parent)


@pytest.mark.timed
@pytest.mark.slow
def test_four_processes_that_build_the_same_variant_get_one_good_library(workshop: Workshop) -> None:
    count = f'$(grep -c unit.cpp "{workshop.folder}/runs")'
    together = f"n={count}; for i in $(seq 200); do test {count} -ge 4 && break; sleep 0.1; done; sleep $((n / 2))"
    workshop.compiler_does(f'case "$*" in *unit.cpp*) {together};; esac')
    processes = [builder(workshop) for _ in range(4)]
    said = {process.communicate(timeout=60)[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    assert workshop.compiled() == 4
    assert len(said) == 1
    digest, path, identical = said.pop().split()
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
    assert identical == "True"
    assert workshop.half_made() == []


@pytest.mark.timed
def test_a_build_after_a_killed_one_is_as_if_it_never_was(workshop: Workshop) -> None:
    workshop.compiler_does(f'case "$*" in *unit.cpp*) test -e "{workshop.folder}/go" || exec sleep 8;; esac')
    process = builder(workshop)
    until = time.monotonic() + 30
    while workshop.compiled() == 0:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.kill()
    process.communicate()
    (workshop.folder / "go").touch()
    LoadedVariant(workshop.library())
    for pid in using(workshop.cache):  # the compiler of the killed process, which has no deadline any more
        os.kill(pid, signal.SIGKILL)


# Faults -----------------------------------------------------------------------------------------------------------


def test_a_compile_error_is_the_variants_fault(workshop: Workshop) -> None:
    """Its flags hold the word error; the detail begins with the compiler's first error all the same."""
    fault = workshop.fault(tiny("broken"))
    assert (fault.verdict, fault.code) == (Verdict.BUILD_FAILED, "build.failed")
    first, *_ = fault.detail.splitlines()
    assert first.startswith(f"{workshop.family}/broken.cpp:4:")
    assert "error: " in first
    assert "no_such_name" in first
    assert "-Werror" not in fault.detail
    assert workshop.half_made() == []


@pytest.mark.timed
def test_a_compiler_that_hangs_is_killed_with_all_it_started(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.compiler_does('case "$*" in *unit.cpp*) sleep 50;; esac')
    monkeypatch.setattr(compiling, "BUILD_DEADLINE_S", 1.5)
    started = time.monotonic()
    fault = workshop.fault()
    assert time.monotonic() - started < 45  # the compiler sleeps for 50
    assert (fault.verdict, fault.code) == (Verdict.BUILD_TIMEOUT, "build.timeout")
    assert workshop.compiled() == 1
    assert gone(workshop.folder)
    assert workshop.half_made() == []


# Our own troubles -------------------------------------------------------------------------------------------------


@pytest.mark.timed
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('case "$*" in *binding.cpp*) echo "x: error: odd" >&2; exit 1;; esac', "cannot make binding.o: .*error: odd"),
        ('case "$*" in *binding.cpp*) sleep 50;; esac', "took longer than"),
    ],
)
def test_a_compiler_that_cannot_do_the_binding_is_told(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    workshop.forget_objects()
    workshop.compiler_does(body)
    monkeypatch.setattr(compiling, "BUILD_DEADLINE_S", 1.5)
    with refused(ToolchainError, message):
        workshop.build()
    assert gone(workshop.folder)


@pytest.mark.parametrize(
    ("kills", "source", "ends"),
    [
        (1, "unit.cpp", '{ echo "g++: fatal error: Killed signal terminated program cc1plus" >&2; exit 1; }'),
        (2, "unit.cpp", "kill -9 $$"),
        (1, "binding.cpp", "kill -9 $$"),
    ],
)
def test_a_compiler_that_is_killed_is_run_once_more(workshop: Workshop, kills: int, source: str, ends: str) -> None:
    """It, or a part of it; that of a variant, or that of what all variants share."""
    if source == "binding.cpp":
        workshop.forget_objects()
    count = f'echo >> "{workshop.folder}/kills"; [ "$(wc -l < "{workshop.folder}/kills")" -gt {kills} ]'
    workshop.compiler_does(f'case "$*" in *{source}*) {{ {count}; }} || {ends};; esac')
    made = workshop.build()
    assert isinstance(made, Artifact) == (kills == 1), made
    assert isinstance(made, Artifact) or made.verdict == Verdict.BUILD_FAILED


def test_no_compiler_is_told_in_one_line_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError) as raised:
        CpuToolchain.discover()
    assert str(raised.value) == "no C++ compiler: g++ is not on the PATH; install one (apt-get install g++)"


@pytest.mark.parametrize("impostor", ["true", "false", "cat"])
def test_what_is_no_compiler_is_told_in_one_line(impostor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", impostor)
    with refused(ToolchainError, "is it a working"):
        CpuToolchain.discover()


def unwritable(folder: Path) -> Path:
    """A folder in which even root cannot write, or an ordinary one without permission."""
    if os.geteuid() == 0:
        return Path("/sys/autotuner")
    folder.mkdir(mode=0o500)
    return folder / "cache"


def test_a_cache_that_cannot_be_written_is_told_in_one_line(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workshop.folder / "file").touch()
    for place in (unwritable(workshop.folder / "closed"), workshop.folder / "file", workshop.folder / "file" / "x"):
        monkeypatch.setenv(config.CACHE, str(place))
        with refused(DiskFullError, r"cannot write builds to .*set AUTOTUNER_CACHE"):
            workshop.build()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("left", [0, 4096, 24576])
def test_a_full_disk_is_told_in_one_line(
    workshop: Workshop, small_disk: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Full before the binding, amid it, or amid the variant's own build; with space again the build works."""
    monkeypatch.setenv(config.CACHE, str(small_disk))
    ballast = small_disk / "ballast"
    free = shutil.disk_usage(small_disk).free
    ballast.write_bytes(b"x" * (free - left))
    with refused(DiskFullError, r"no space left for builds in .*set AUTOTUNER_CACHE"):
        workshop.build()
    ballast.unlink()
    assert workshop.library().path.startswith(str(small_disk))


# What surrounds a compiler --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["No space left on device", "Disk quota exceeded"])
@pytest.mark.parametrize("source", ["unit.cpp", "binding.cpp"])
def test_a_disk_without_space_is_no_fault_of_the_variant(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, words: str, source: str
) -> None:
    """Whatever language the user has: it is said in English to a program that reads it."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    if source == "binding.cpp":
        workshop.forget_objects()
    said = f'[ "$LC_ALL" = C ] && echo "as: Fatal error: x.o: {words}" >&2 || echo "kein Platz" >&2'
    workshop.compiler_does(f'case "$*" in *{source}*) {said}; exit 1;; esac')
    with pytest.raises(DiskFullError, match=r"no space left for builds in .*set AUTOTUNER_CACHE"):
        workshop.build()


def test_no_compiler_needs_space_outside_of_the_cache(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, small_disk: Path
) -> None:
    (small_disk / "ballast").write_bytes(b"x" * shutil.disk_usage(small_disk).free)
    monkeypatch.setenv("TMPDIR", str(small_disk))
    assert workshop.library().path.startswith(str(workshop.cache))
    assert workshop.half_made() == []


NAMED = ("CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "LD_RUN_PATH", "GCC_COMPARE_DEBUG", "DEPENDENCIES_OUTPUT")


def test_what_no_identity_holds_changes_no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here headers, an assembler and a file that would make each build fail, and a folder that a linker would have the
    library look for others in."""
    folder = tmp_path / "found first"
    folder.mkdir()
    (folder / "stdint.h").write_text("#error another one\n")
    (folder / "as").symlink_to("/bin/false")
    for variable in NAMED:
        monkeypatch.setenv(variable, str(folder))
    workshop = set_up(tmp_path, monkeypatch)
    library = workshop.library()
    assert library.flags == FLAGS
    assert os.fsencode(folder) not in Path(library.path).read_bytes()


def test_a_build_does_not_depend_on_the_time(workshop: Workshop) -> None:
    source = workshop.family / "plain.cpp"
    dates = '__DATE__ " " __TIME__ ", " __TIMESTAMP__'
    source.write_text(f"{source.read_text()}extern const char made[];\nconst char made[] = {dates};\n")
    assert b"Jan  1 1970 00:00:00, Jan  1 1970" in Path(workshop.library().path).read_bytes()
