"""A loaded variant from Python: addresses in, status out, and nothing unfit gets through."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from autotuner.build.build import build
from autotuner.build.family import Family
from autotuner.build.loaded_variant import LoadedVariant
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.errors import CUDA_ERRORS
from autotuner.values.outcome import Artifact
from tests.helpers.families import PROBLEM, tiny

ROOM = 4096


class Buffers(NamedTuple):
    """Memory that is aligned to 64 bytes: inputs, outputs, workspace."""

    inputs: tuple[int, int, int]
    outputs: tuple[int]
    workspace: int


@pytest.fixture(scope="module")
def artifact(kernel_root: Path, toolchain: CpuToolchain) -> Artifact:
    built = build(Family.load(kernel_root / "tiny"), tiny(MODE="half-up"), PROBLEM, toolchain)
    assert isinstance(built, Artifact)
    return built


@pytest.fixture(scope="module")
def variant(artifact: Artifact) -> LoadedVariant:
    return LoadedVariant(artifact)


@pytest.fixture(scope="module")
def module(artifact: Artifact) -> ModuleType:
    """The module itself, below LoadedVariant."""
    loader = importlib.machinery.ExtensionFileLoader(artifact.name, artifact.path)
    spec = importlib.util.spec_from_file_location(artifact.name, artifact.path, loader=loader)
    assert spec is not None
    loaded = importlib.util.module_from_spec(spec)
    loader.exec_module(loaded)
    return loaded


memory = ctypes.create_string_buffer(5 * ROOM + 64)


@pytest.fixture
def buffers() -> Buffers:
    ctypes.memset(memory, 0, len(memory))
    start = -(-ctypes.addressof(memory) // 64) * 64
    q, k, v, output, workspace = (start + i * ROOM for i in range(5))
    ctypes.c_float.from_address(q).value = 2.0
    return Buffers((q, k, v), (output,), workspace)


def test_a_forward_reads_and_writes_the_given_memory(variant: LoadedVariant, buffers: Buffers) -> None:
    wanted = variant.workspace_bytes(PROBLEM)
    assert wanted == 3 * PROBLEM.seq_k
    assert variant.run(PROBLEM, buffers.inputs, buffers.outputs, buffers.workspace, wanted) == 0
    assert ctypes.c_float.from_address(buffers.outputs[0]).value == 7.0  # (3 + 1/2) * 2


def test_the_variants_status_comes_back(variant: LoadedVariant, buffers: Buffers) -> None:
    wanted = variant.workspace_bytes(PROBLEM)
    assert variant.run(PROBLEM, *buffers, wanted - 1) == 2
    outside = PROBLEM.model_copy(update={"seq_q": 7})
    assert variant.run(outside, *buffers, wanted) == 1
    assert ctypes.c_float.from_address(buffers.outputs[0]).value == 0.0


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "ok"),
        (1, "outside the variant's domain"),
        (2, "workspace missing or too small"),
        (3, "no threads"),
        (7, "unknown status 7"),
        (-1, "unknown status -1"),
        (1000, "device error 0 (see CUresult in cuda.h)"),
        (1500, "device error 500 (not found)"),
        (1719, "device error 719 (launch failure)"),
        (3014, "cuBLAS status 14 (see cublasStatus_t in cublas_api.h)"),
    ],
)
def test_every_status_has_words(status: int, text: str) -> None:
    assert CUDA_ERRORS.text(status) == text


def test_an_error_outlives_its_call_or_not() -> None:
    assert [status for status in (0, 1, 719, 1001, 1700, 1701, 1719, 2719, 3014) if CUDA_ERRORS.is_sticky(status)] == [
        1700,
        1719,
    ]


@pytest.mark.parametrize("offset", [1, 4, 8])
def test_misaligned_tensors_are_refused_before_anything_runs(
    variant: LoadedVariant, buffers: Buffers, offset: int
) -> None:
    wanted = variant.workspace_bytes(PROBLEM)
    q, k, v = buffers.inputs
    for inputs, name in (((q + offset, k, v), "0"), ((q, k + offset, v), "1"), ((q, k, v + offset), "2")):
        with pytest.raises(ValueError, match=rf"inputs\[{name}\] is not aligned to 16 bytes"):
            variant.run(PROBLEM, inputs, buffers.outputs, buffers.workspace, wanted)
    with pytest.raises(ValueError, match=r"outputs\[0\] is not aligned to 16 bytes"):
        variant.run(PROBLEM, buffers.inputs, (buffers.outputs[0] + offset,), buffers.workspace, wanted)
    assert ctypes.c_float.from_address(buffers.outputs[0]).value == 0.0


def test_the_workspace_is_aligned_to_64_bytes(variant: LoadedVariant, buffers: Buffers) -> None:
    for offset in (16, 32):
        with pytest.raises(ValueError, match="the workspace is not aligned to 64 bytes"):
            variant.run(PROBLEM, buffers.inputs, buffers.outputs, buffers.workspace + offset, 1000)
    assert variant.run(PROBLEM, (buffers.inputs[0] + 16, *buffers.inputs[1:]), *buffers[1:], 1000) == 0


@pytest.mark.parametrize(
    ("inputs", "outputs", "dims", "scalars", "message"),
    [
        ((0,) * 9, (0,), (1,), (), "too many inputs: at most 8"),
        ((), (0,) * 5, (1,), (), "too many outputs: at most 4"),
        ((), (), (1,) * 9, (), "too many dims: at most 8"),
        ((), (), (1,), (1.0,) * 5, "too many scalars: at most 4"),
        ((), (), (4, 0), (), r"dims\[1\] must be at least 1"),
        ((), (), (-1,), (), r"dims\[0\] must be at least 1"),
    ],
)
def test_a_call_that_does_not_fit_the_abi_is_refused(
    module: ModuleType,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
    dims: tuple[int, ...],
    scalars: tuple[float, ...],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        module.run(inputs, outputs, dims, scalars, 0, 0, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ((), (), (), ()),
        (("q",), (), (1,), (), 0, 0, 0),
        ((-1,), (), (1,), (), 0, 0, 0),
        ((1 << 64,), (), (1,), (), 0, 0, 0),
        ((), (), (1 << 63,), (), 0, 0, 0),
        ((), (), ("one",), (), 0, 0, 0),
        ((), (), (1,), ("scale",), 0, 0, 0),
        ([0], [0], [1], [1.0], 0, 0, 0),
    ],
)
def test_arguments_of_another_kind_raise(module: ModuleType, arguments: tuple[object, ...]) -> None:
    with pytest.raises((TypeError, OverflowError, SystemError)):
        module.run(*arguments)


def test_dims_that_are_not_given_are_zero_and_workspace_asks_with_dims_alone(module: ModuleType) -> None:
    assert module.workspace((1, 1, 1, 5), ()) == 15
    assert module.workspace((1,), ()) == 0
    with pytest.raises(ValueError, match="too many dims"):
        module.workspace((1,) * 9, ())


def test_what_is_no_library_does_not_load(artifact: Artifact, tmp_path: Path) -> None:
    broken = tmp_path / Path(artifact.path).name
    broken.write_bytes(b"no library")
    with pytest.raises(ImportError):
        LoadedVariant(artifact.model_copy(update={"path": str(broken)}))
    with pytest.raises(ImportError):
        LoadedVariant(artifact.model_copy(update={"path": str(tmp_path / "absent.so")}))


def test_a_library_loads_under_its_own_name_only(artifact: Artifact, tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="PyInit_another"):
        LoadedVariant(artifact.model_copy(update={"name": "another"}))
