"""The program hash tells programs apart, and only programs."""

import shutil
import subprocess
from pathlib import Path

import pytest

from autotuner.devices.cpu.object_file import program_hash
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.toolchain import Forged
from autotuner.values import config
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from tests.helpers.families import PROBLEM, tiny


def compiled(folder: Path, text: str, *flags: str, name: str = "unit") -> Path:
    """The object file of a source text."""
    folder.mkdir(exist_ok=True)
    source, target = folder / f"{name}.cpp", folder / f"{name}.o"
    source.write_text(text)
    command = ["g++", "-O2", "-fPIC", "-fvisibility=hidden", *flags, "-c", source.name, "-o", target.name]
    subprocess.run(command, cwd=folder, check=True)
    return target


IDENTITY = """
__attribute__((section(".at_build_id"))) static const char at_build_id[] = "{}";
extern __attribute__((section(".at_identity"))) const char *const variant_identity = at_build_id;
"""
"""As a build writes it after the source."""

PUSHED = 'asm(".pushsection .at_build_id,\\"a\\"%s; .long 7; .popsection");'


def hash_of(folder: Path, text: str, *flags: str) -> str:
    return program_hash(compiled(folder, text, *flags))


ADDS = 'extern "C" int variant_run(int x) { return x + 1; }'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(ADDS, ADDS.replace("+ 1", "+ 2"), id="an immediate operand"),
        pytest.param(ADDS, ADDS.replace("+ 1", "* 3"), id="an instruction"),
        pytest.param(
            "double f(double x) { return x * 1.5; }",
            "double f(double x) { return x * 1.25; }",
            id="a floating constant",
        ),
        pytest.param(
            "static const int t[4] = {1, 2, 3, 4}; int f(int i) { return t[i]; }",
            "static const int t[4] = {1, 2, 3, 5}; int f(int i) { return t[i]; }",
            id="a table",
        ),
        pytest.param(
            "extern int a(), b(); int f() { return a(); }",
            "extern int a(), b(); int f() { return b(); }",
            id="a function called",
        ),
        pytest.param(
            "extern int a, b; int f() { return a; }", "extern int a, b; int f() { return b; }", id="a variable read"
        ),
        pytest.param(
            "int a = 1, b = 2; int f() { return a; }", "int b = 1, a = 2; int f() { return a; }", id="what a name holds"
        ),
        pytest.param(
            "static int t[8]; int *f() { return t; }", "static int t[9]; int *f() { return t; }", id="a size of scratch"
        ),
        pytest.param(
            'extern "C" int variant_run() { return 1; } int other() { return 2; }',
            'int other() { return 1; } extern "C" int variant_run() { return 2; }',
            id="which function is the entry",
        ),
        pytest.param(
            'const char *f() { return "poly"; }', 'const char *f() { return "libm"; }', id="the text of a string"
        ),
        pytest.param(
            "extern int a(), b(); int x = a();", "extern int a(), b(); int x = b();", id="what runs when it is loaded"
        ),
    ],
)
def test_different_programs_differ(tmp_path: Path, one: str, other: str) -> None:
    assert hash_of(tmp_path, one) != hash_of(tmp_path, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            ADDS,
            "/* the same */\n\n\n" + ADDS.replace("int x", "int y").replace("x +", "y +"),
            id="names of locals and comments",
        ),
        pytest.param(ADDS + IDENTITY.format("one"), ADDS + IDENTITY.format("another"), id="identity"),
        pytest.param(
            "extern int a(int); static __attribute__((noinline)) int p(int x) { return a(x) + a(1); } "
            "int f() { return p(1) + p(2); }",
            "extern int a(int); static __attribute__((noinline)) int q(int x) { return a(x) + a(1); } "
            "int f() { return q(1) + q(2); }",
            id="the name of an inner function",
        ),
    ],
)
def test_equal_programs_are_equal_whatever_they_are_called(tmp_path: Path, one: str, other: str) -> None:
    assert hash_of(tmp_path, one) == hash_of(tmp_path, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            'static const int t[2] __attribute__((section(".at_t"))) = {1, 2}; int f(int i) { return t[i]; }',
            'static const int t[2] __attribute__((section(".at_t"))) = {1, 3}; int f(int i) { return t[i]; }',
            id="a table in a section with a name like ours",
        ),
        pytest.param(
            'static const int t[2] __attribute__((section(".note.t"))) = {1, 2}; int f(int i) { return t[i]; }',
            'static const int t[2] __attribute__((section(".note.t"))) = {1, 3}; int f(int i) { return t[i]; }',
            id="a table among the notes",
        ),
        pytest.param(
            'asm(".pushsection .eh_frame; t: .long 1; .popsection"); extern int t; int f() { return t; }',
            'asm(".pushsection .eh_frame; t: .long 2; .popsection"); extern int t; int f() { return t; }',
            id="a table among what unwinds",
        ),
        pytest.param(
            "static int a() { return 1; } static int b() { return 2; } extern int (*const variant_identity)();"
            ' __attribute__((section(".at_identity"))) int (*const variant_identity)() = a; int (*g)() = b;',
            "static int a() { return 1; } static int b() { return 2; } extern int (*const variant_identity)();"
            ' __attribute__((section(".at_identity"))) int (*const variant_identity)() = b; int (*g)() = b;',
            id="whom the identity names as the entry",
        ),
        pytest.param(
            "int one() { return 1; } int two() { return 2; }",
            "int two() { return 1; } int one() { return 2; }",
            id="which function has the name that another object calls",
        ),
    ],
)
def test_nothing_is_left_out_for_the_name_of_its_section(tmp_path: Path, one: str, other: str) -> None:
    assert hash_of(tmp_path, one) != hash_of(tmp_path, other)


@pytest.mark.parametrize(
    "stolen",
    [
        pytest.param(
            'static const int t[2] __attribute__((section(".at_build_id"), used)) = {1, 2};', id="beside the constant"
        ),
        pytest.param(PUSHED % "", id="bytes without a name"),
        pytest.param(PUSHED % ",@progbits,unique,1", id="a second section"),
        pytest.param(
            "extern const char *const variant_identity; char f(int i) { return variant_identity[i]; }", id="read"
        ),
        pytest.param('extern const char s[] asm("_ZL11at_build_id"); char f() { return s[0]; }', id="read by name"),
    ],
)
def test_a_source_that_uses_the_place_of_the_identity_is_refused(tmp_path: Path, stolen: str) -> None:
    with pytest.raises(Forged, match="is the build's own"):
        hash_of(tmp_path, stolen + IDENTITY.format("one"))


def test_the_folder_and_the_file_name_do_not_matter(tmp_path: Path) -> None:
    assert hash_of(tmp_path / "a", ADDS) == program_hash(compiled(tmp_path / "b", ADDS, name="other"))


def test_debug_information_is_not_the_program(tmp_path: Path) -> None:
    assert hash_of(tmp_path, ADDS) == hash_of(tmp_path, ADDS, "-g")


def test_variants_that_differ_in_a_dead_parameter_are_one_program(kernel_root: Path, toolchain: CpuToolchain) -> None:
    kernel = Family.load(kernel_root / "tiny")

    def artifact(variant: Variant) -> Artifact:
        built = build(kernel, variant, PROBLEM, toolchain)
        assert isinstance(built, Artifact)
        return built

    one, dead, live = artifact(tiny(DEAD=1)), artifact(tiny(DEAD=2)), artifact(tiny(MODE="half-up"))
    assert one.digest != dead.digest
    assert one.library_sha256 != dead.library_sha256
    assert one.program_hash == dead.program_hash
    assert one.program_hash != live.program_hash


def test_builds_in_two_places_are_one_program(
    kernel_root: Path, toolchain: CpuToolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for place in ("a", "b"):
        shutil.copytree(kernel_root / "tiny", tmp_path / place / "tiny")
        monkeypatch.setenv(config.CACHE, str(tmp_path / place / "cache"))
        built = build(Family.load(tmp_path / place / "tiny"), tiny(), PROBLEM, toolchain)
        assert isinstance(built, Artifact)
        found.append((built.digest, built.program_hash, built.library_sha256))
    assert found[0] == found[1]
