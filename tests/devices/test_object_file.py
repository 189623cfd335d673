"""The program hash tells programs apart, and only programs."""

import shutil
import subprocess
import tomllib
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
from tests.helpers.files import text
from tests.helpers.judging import KERNELS, PROBLEM, artifact_of, tiny


def compiled(folder: Path, source_text: str, *flags: str, name: str = "unit") -> Path:
    """The object file of a source text."""
    folder.mkdir(exist_ok=True)
    source, target = folder / f"{name}.cpp", folder / f"{name}.o"
    source.write_text(source_text)
    command = ["g++", "-O2", "-fPIC", "-fvisibility=hidden", *flags, "-c", source.name, "-o", target.name]
    subprocess.run(command, cwd=folder, check=True)
    return target


IDENTITY = """
__attribute__((section(".at_build_id"))) static const char at_build_id[] = "{}";
extern __attribute__((section(".at_identity"))) const char *const variant_identity = at_build_id;
"""
"""As a build writes it after the source."""

PUSHED = 'asm(".pushsection .at_build_id,\\"a\\"%s; .long 7; .popsection");'


def hash_of(folder: Path, source_text: str, *flags: str) -> str:
    return program_hash(compiled(folder, source_text, *flags))


ADDS = 'extern "C" int variant_run(int x) { return x + 1; }'


PROGRAMS: dict[str, dict[str, list[str]]] = tomllib.loads(text("programs.toml"))


@pytest.mark.parametrize("what", PROGRAMS["different"])
def test_different_programs_differ(tmp_path: Path, what: str) -> None:
    """Nothing is left out for the name of its section either."""
    one, other = PROGRAMS["different"][what]
    assert hash_of(tmp_path, one) != hash_of(tmp_path, other)


@pytest.mark.parametrize("what", PROGRAMS["equal"])
def test_equal_programs_are_equal_whatever_they_are_called(tmp_path: Path, what: str) -> None:
    one, other = PROGRAMS["equal"][what]
    assert hash_of(tmp_path, one) == hash_of(tmp_path, other)


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


def test_variants_that_differ_in_a_dead_parameter_are_one_program(toolchain: CpuToolchain) -> None:
    kernel = Family.load(KERNELS / "tiny")

    def artifact(variant: Variant) -> Artifact:
        return artifact_of(build(kernel, variant, PROBLEM, toolchain))

    one, dead, live = artifact(tiny(DEAD=1)), artifact(tiny(DEAD=2)), artifact(tiny(MODE="half-up"))
    assert one.digest != dead.digest
    assert one.library_sha256 != dead.library_sha256
    assert one.program_hash == dead.program_hash
    assert one.program_hash != live.program_hash


def test_builds_in_two_places_are_one_program(
    toolchain: CpuToolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for place in ("a", "b"):
        shutil.copytree(KERNELS / "tiny", tmp_path / place / "tiny")
        monkeypatch.setenv(config.CACHE, str(tmp_path / place / "cache"))
        built = artifact_of(build(Family.load(tmp_path / place / "tiny"), tiny(), PROBLEM, toolchain))
        found.append((built.digest, built.program_hash, built.library_sha256))
    assert found[0] == found[1]
