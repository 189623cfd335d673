"""What a compiler may do while it builds a variant, with the real compilers: attacks by flags and by sources."""

import shutil
from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.devices.kind import Cage
from autotuner.forge import build_inputs, compiler_files, landlock
from autotuner.forge.build import build, require_compilers
from autotuner.forge.compiling import NotCompiled, run_compiler
from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run import cage
from autotuner.values import config
from autotuner.values.errors import KernelError
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault
from tests.helpers.judging import KERNELS
from tests.helpers.workshop import Workshop, provide, set_up

SYSTEMIC = Path(__file__).parent.parent / "mutants" / "systemic"
CAGED = pytest.mark.skipif(not landlock.version(), reason="Landlock is not in this kernel")


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toolchain: CpuToolchain) -> Workshop:
    shutil.copytree(KERNELS / "tiny", tmp_path / "tiny")
    made = Workshop(tmp_path, toolchain)
    provide(toolchain, made.cache)
    monkeypatch.setenv(config.CACHE, str(made.cache))
    (tmp_path / "studies.db").write_text("#define SECRET 1\n")
    (made.family / "more.h").write_text("")
    source = made.family / "plain.cpp"
    source.write_text(f'#include "more.h"\n{source.read_text()}')
    return made


@pytest.mark.parametrize(
    "flags",
    [
        ["-wrapper", "evil.sh"],
        ["-fplugin=evil.so"],
        ["-B."],
        ["-specs=evil"],
        ["@evil"],
        ["-Wa,-I/"],
        ["-include", "/etc/passwd"],
        ["-fuse-ld=evil"],
        ["-flto"],
        ["-O0"],
        ["-O3", "-save-temps"],
    ],
)
def test_a_flag_that_does_more_than_change_the_program_is_refused(workshop: Workshop, flags: list[str]) -> None:
    told = workshop.family / "kernel.toml"
    told.write_text(told.read_text().replace("[cpu.plain]", f"[cpu.plain]\nflags = {flags}"))
    with pytest.raises(KernelError, match=r"kernel\.toml: cpu\.plain\.flags: .* remove it, or write"):
        workshop.build()


@CAGED
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "taken",
    [
        pytest.param('asm(".incbin \\"{}\\"");', id="incbin"),
        pytest.param('#include "{}"', id="include"),
        pytest.param('#define THERE "{}"\n#include THERE', id="include of a macro"),
    ],
)
@pytest.mark.parametrize("name", ["/studies.db", "../studies.db", "link.h", "link.db"])
def test_a_source_reads_no_file_outside_of_its_digest(workshop: Workshop, taken: str, name: str) -> None:
    """By its path, by one from the family's folder, or by a link in that."""
    (workshop.family / "link.h").symlink_to(workshop.folder / "studies.db")
    (workshop.family / "link.db").symlink_to(workshop.folder / "studies.db")
    path = f"{workshop.folder}{name}" if name.startswith("/") else f"{workshop.family}/{name}"
    (workshop.family / "more.h").write_text(f"{taken.format(path)}\n")
    fault = workshop.fault()
    assert "studies.db" in fault.detail or "link" in fault.detail
    assert "a build reads its toolchain" in fault.detail


@CAGED
@pytest.mark.sampled(6)
@pytest.mark.parametrize("taken", ['asm(".incbin \\"{}\\"");', '#include "{}"', "#include <../{}>"])
@pytest.mark.parametrize("of", ["share/*/*", "bin/*", "lib/*/*.so.*", "lib/python3*/*.py", "lib/*"])
def test_of_usr_a_source_reads_no_more_than_headers_and_the_compiler(workshop: Workshop, of: str, taken: str) -> None:
    """Of each folder the last file that no program of the compiler's needs: none may be taken in."""
    readable = [path.resolve() for path in compiler_files.needed()]
    others = (
        path
        for path in sorted(Path("/usr").glob(of), reverse=True)
        if path.is_file() and not any(path.resolve().is_relative_to(each) for each in readable)
    )
    if (other := next(others, None)) is None:
        pytest.skip("there is no such file")
    (workshop.family / "more.h").write_text(
        taken.format(other if "<" not in taken else other.relative_to("/usr")) + "\n"
    )
    assert "a build reads its toolchain" in workshop.fault().detail


@CAGED
@pytest.mark.skipif(not Path("/usr/bin/perl").exists(), reason="no perl")
def test_a_compiler_that_needs_more_programs_gets_them_once_it_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that calls a program which no list has: it works, and doctor says so."""
    made = set_up(tmp_path, monkeypatch)
    made.compiler_does('case "$*" in *unit.cpp*) /usr/bin/perl -v || exit 1;; esac')
    assert "Permission denied" in made.fault().detail
    lacks = cage.missing(Cage())
    require_compilers(made.toolchain)
    assert isinstance(made.build(), Artifact)
    assert [each[:7] for each in cage.missing(Cage()) if each not in lacks] == ["builds:"]


def test_whatever_a_source_takes_in_is_in_its_digest(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    (workshop.family / "more.h").write_text(
        '#define PART "part.inc"\n#include PART\nasm(".pushsection .rodata; .incbin \\"blob\\"; .popsection");\n'
    )
    digests = []
    for part, blob in (("", b"1"), ("", b"2"), ("// more", b"2")):
        (workshop.family / "part.inc").write_text(part)
        (workshop.family / "blob").write_bytes(blob)
        digests.append(workshop.library().digest)
    installed = workshop.folder / "include" / "Library"
    installed.mkdir(parents=True)
    monkeypatch.setattr(build_inputs, "INSTALLED", installed.parent)
    (workshop.family / "part.inc").write_text("#include <Library/All>\n")
    for text in ("", "// more"):
        (installed / "All").write_text(text)
        digests.append(workshop.inputs().digest)
    assert len({*digests}) == 5


@CAGED
@pytest.mark.parametrize(
    ("does", "said"),
    [
        ('echo harm > "{}/harm"', "Permission denied"),
        ('cat "{}/studies.db"', "Permission denied"),
        ("python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)'", "Permission denied"),
    ],
)
def test_a_compiler_that_runs_a_script_cannot_do_harm(tmp_path: Path, does: str, said: str) -> None:
    (tmp_path / "studies.db").write_text("mine")
    (tmp_path / "build").mkdir()
    with pytest.raises(NotCompiled, match=said):
        run_compiler(["/bin/sh", "-ec", does.format(tmp_path)], tmp_path / "build", ())
    assert not (tmp_path / "harm").exists()
    (tmp_path / "harm").write_text("what starts the compiler has given up nothing")


@CAGED
def test_nvcc_reads_no_file_outside_of_its_digest(tmp_path: Path, nvcc: CudaToolchain) -> None:
    shutil.copytree(SYSTEMIC.parent, tmp_path / "families", dirs_exist_ok=True)
    (tmp_path / "studies.db").write_text("// secret\n")
    source = tmp_path / "families" / "systemic" / "systemic.cu"
    values = {"MUTANT": "none", "BLOCK_N": 32, "DEAD": 1, "FIXED": 0}
    variant = Variant(family="systemic", backend="cuda", impl="fixed", parameters=values)
    text = source.read_text()
    source.write_text(f'#include "{tmp_path}/studies.db"\n{text}')
    fault = build(Family.load(source.parent), variant, SdpaProblem.parse("(1,2,64,64) float16"), nvcc)
    assert isinstance(fault, Fault)
    assert "studies.db" in fault.detail


def test_without_landlock_a_build_works_all_the_same(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert isinstance(workshop.build(), Artifact)
