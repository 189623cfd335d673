"""Exports of CUDA variants, compiled without a device: cubins inside, and on a machine without CUDA torch serves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.devices import DEVICES
from autotuner.devices.cuda import triton
from autotuner.forge.family import Family
from autotuner.serve.c_source import write_c_folder
from autotuner.serve.folder import Source, require_nothing
from autotuner.serve.package import write_folder
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.ratio import BIASED
from autotuner.values.table import DispatchTable, TableEntry
from tests.helpers.builds import default_of
from tests.helpers.files import text
from tests.helpers.points import alone
from tests.helpers.tables import RATIO, served

TRITON = Path(__file__).parent.parent / "mutants" / "of_triton.toml"
PROGRAM = text("no_device.c")


@pytest.fixture(scope="module")
def workbenches() -> list[Workbench]:
    """One whose kernels are launched by the op's own launcher, one with a host side of its own, this on views, and one
    of Triton where it is installed."""
    if config.nvcc() is None:
        pytest.skip("needs nvcc")
    dense = [Workbench(file, "sm_90") for file in (load_space("sdpa_cuda_smoke"), alone("wgmma"))]
    of_triton = [Workbench(load_space(str(TRITON)), "sm_90")] if triton.is_usable() else []
    return [*dense, Workbench(alone("wgmma", "(2,8:2,256,64) float16 causal bshd"), "sm_90"), *of_triton]


@pytest.fixture(scope="module")
def exported(workbenches: list[Workbench]) -> tuple[DispatchTable, Source]:
    """Each default variant serves the first problem of its space."""
    variants, entries = [], []
    for place, each in enumerate(workbenches):
        artifact = default_of(each)
        variants.append(served(artifact, place))
        problem = each.conditions.compiled_for
        entries.append(
            TableEntry(problem=problem, use=artifact.digest, why="its own best", speedup=RATIO, baseline="flash")
        )
    table = DispatchTable(
        op="sdpa",
        device="cuda",
        proven_on={"SM": 90, "MULTIPROCESSORS": 132},
        environment={},
        allowed_loss=0.03,
        estimates=True,
        variants=tuple(variants),
        entries=tuple(entries),
    )
    return table, Source(workbenches[0].toolchain, config.spaces_dir())


@pytest.mark.slow
def test_a_package_has_the_cubins_and_leaves_calls_to_torch_where_there_is_no_cuda(
    exported: tuple[DispatchTable, Source], workbenches: list[Workbench], tmp_path: Path
) -> None:
    write_folder(*exported, tmp_path / "demo")
    (folder,) = (tmp_path / "demo" / "build").iterdir()
    assert folder.name.startswith("torch-stable-abi210-cu1")
    library = (folder / "_autotuner_demo.so").read_bytes()
    for each in workbenches:
        artifact = default_of(each)
        assert (Path(artifact.path).parent / "variant.cubin").read_bytes() in library
    said = json.loads((folder / "metadata.json").read_text())
    assert said["backend"] == {"type": "cuda", "archs": ["9.0"]}
    assert said["autotuner"]["estimates"] is True
    assert BIASED in (tmp_path / "demo" / "README.md").read_text()
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from torch import randn
from torch.nn.functional import scaled_dot_product_attention as sdpa
from inside import attention
inputs = [randn(1, 8, 512, 64).half() for _ in range(3)]
assert attention.explain(*inputs) == (None, "the variants are for cuda")
assert (attention(*inputs) == sdpa(*inputs)).all()
"""
    folder.rename(tmp_path / "inside")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_program_with_the_c_file_links_and_says_that_there_is_no_such_device(
    exported: tuple[DispatchTable, Source], tmp_path: Path
) -> None:
    folder = tmp_path / "demo"
    write_c_folder(*exported, folder)
    (tmp_path / "main.c").write_text(PROGRAM)
    flags = ["-Wall", "-Wextra", "-Werror", f"-I{folder}"]
    sources = [[*flags, "-c", "main.c"], [*flags, "-std=c++17", "-c", str(folder / "autotuner_demo.cpp")]]
    for compiler, words in zip(("gcc", "g++"), sources, strict=True):
        subprocess.run([compiler, *words], cwd=tmp_path, check=True)
    objects = ["main.o", "autotuner_demo.o", str(folder / "autotuner_demo_variants.o")]
    subprocess.run(["g++", *objects, "-pthread", "-ldl", "-o", "it"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "it"], capture_output=True, text=True)
    assert done.stdout.strip().startswith("proven on a device with SM 90, MULTIPROCESSORS 132")


def test_a_variant_that_needs_cublas_is_refused() -> None:
    """By its sources: neither nvcc nor the headers of cuBLAS are needed to say so."""
    family, kind = Family.find("sdpa"), DEVICES["cuda"].packaging
    assert kind is not None
    for name, implementation in family.table("cuda").items():
        if name == "cublas":
            with pytest.raises(InputError, match="needs cuBLAS at run time: export json"):
                require_nothing(family.host(implementation), kind, "trial 1 of s")
        else:
            require_nothing(family.host(implementation), kind, "trial 1 of s")
