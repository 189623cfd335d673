"""What every language must do: a library says what it was built from, and another source is another build."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from autotuner.forge.build import build
from autotuner.forge.build_inputs import BuildInputs
from autotuner.forge.family import Family
from autotuner.forge.languages import LANGUAGES, language_of
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.forge.toolchain import Toolchain
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.variant import Variant
from tests.helpers.judging import artifact_of

TESTS = Path(__file__).parent.parent
SAMPLES = {
    "c++": (
        TESTS / "kernels" / "tiny",
        Variant(family="tiny", backend="cpu", impl="plain", parameters={"SIZE": 1, "MODE": "a", "DEAD": 0}),
    ),
    "cuda": (
        TESTS / "mutants" / "views",
        Variant(family="views", backend="cuda", impl="mutant", parameters={"MUTANT": "none"}),
    ),
    "python": (
        TESTS / "kernels" / "of_python",
        Variant(family="of_python", backend="cpu", impl="rows", parameters={"ROWS": 16, "WRONG": "nothing"}),
    ),
    "triton": (
        TESTS / "mutants" / "of_triton",
        Variant(
            family="of_triton",
            backend="cuda",
            impl="mutant",
            parameters={"MUTANT": "none", "BLOCK_M": 64, "BLOCK_N": 64, "NUM_WARPS": 4, "STAGES": 2},
        ),
    ),
}
"""A family in each language, and a right variant of it."""


@pytest.mark.parametrize("name", [each.name for each in LANGUAGES])
def test_a_library_says_what_it_is_and_another_source_is_another_build(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if name == "triton" and find_spec("triton") is None:
        pytest.skip("no Triton")
    folder, variant = SAMPLES[name]
    shutil.copytree(folder, tmp_path / folder.name)
    family = Family.load(tmp_path / folder.name)
    used: Toolchain = request.getfixturevalue("nvcc" if variant.backend == "cuda" else "toolchain")
    implementation = family.implementation(variant.backend, variant.impl)
    assert language_of(implementation).name == name
    assert language_of(implementation.model_copy(update={"language": name})).name == name
    dtype = implementation.dtypes[0]
    problem = SdpaProblem(batch=1, heads=2, seq_q=64, seq_k=64, head_dim=64, dtype=dtype)
    built = artifact_of(build(family, variant, problem, used))
    identity = LoadedVariant(built).identity()
    assert identity.build_id == built.digest
    parameters = {each: str(value) for each, value in variant.parameters.items()}
    assert identity.macros == built.macros == {**identity.macros, **parameters}
    language = language_of(implementation)
    source = next(iter(language.files(family, implementation)), language.source(family, implementation))
    with source.open("a") as stream:
        stream.write("\n" * 2)
    assert BuildInputs.of(family, variant, problem, used).digest != built.digest
