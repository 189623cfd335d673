"""A loaded variant from Python: tensors in, status out, and nothing unfit gets through."""

import importlib.machinery
import importlib.util
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.values.outcome import Artifact
from tests.helpers.judging import KERNELS, PROBLEM, artifact_of, tiny

ROOM = 4096


class Buffers(NamedTuple):
    """Tensors, and the address of a workspace that is aligned to 64 bytes."""

    inputs: tuple[Tensor, Tensor, Tensor]
    outputs: tuple[Tensor]
    workspace: int


@pytest.fixture(scope="module")
def artifact(toolchain: CpuToolchain) -> Artifact:
    return artifact_of(build(Family.load(KERNELS / "tiny"), tiny(MODE="half-up"), PROBLEM, toolchain))


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


def test_another_library_in_its_place_is_not_loaded(artifact: Artifact, tmp_path: Path) -> None:
    """Whoever loads it: a race, a heat and an audit do long after the gate has looked at it."""
    path = Path(shutil.copy(artifact.path, tmp_path))
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ImportError, match="is not the library that was built"):
        LoadedVariant(artifact.model_copy(update={"path": str(path)}))


room = torch.zeros(ROOM + 64, dtype=torch.uint8)


def zeros(length: int) -> Tensor:
    """A tensor of PROBLEM's other sizes."""
    return torch.zeros(PROBLEM.batch, PROBLEM.heads, length, PROBLEM.head_dim)


@pytest.fixture
def buffers() -> Buffers:
    q, k, v, output = (zeros(n) for n in (PROBLEM.seq_q, PROBLEM.seq_k, PROBLEM.seq_k, PROBLEM.seq_q))
    q.view(-1)[0] = 2.0
    return Buffers((q, k, v), (output,), -(-room.data_ptr() // 64) * 64)


def test_a_forward_reads_and_writes_the_given_memory(variant: LoadedVariant, buffers: Buffers) -> None:
    wanted = variant.workspace_bytes(PROBLEM)
    assert wanted == 3 * PROBLEM.seq_k
    assert variant.run(PROBLEM, buffers.inputs, buffers.outputs, buffers.workspace, wanted) == 0
    assert float(buffers.outputs[0].view(-1)[0]) == 7.0  # (3 + 1/2) * 2


def test_the_variants_status_comes_back(variant: LoadedVariant, buffers: Buffers) -> None:
    wanted = variant.workspace_bytes(PROBLEM)
    assert variant.run(PROBLEM, *buffers, wanted - 1) == 2
    outside = PROBLEM.model_copy(update={"seq_q": 7})
    (_, k, v), output = buffers.inputs, zeros(7)
    assert variant.run(outside, (zeros(7), k, v), (output,), buffers.workspace, wanted) == 1
    assert not output.any()


def moved(tensor: Tensor, offset: int) -> Tensor:
    """The tensor `offset` bytes past a multiple of 64."""
    raw = torch.zeros(tensor.numel() * 4 + 128, dtype=torch.uint8)
    start = -raw.data_ptr() % 64 + offset
    return raw[start : start + tensor.numel() * 4].view(torch.float32).view(tensor.shape).copy_(tensor)


UNFIT: list[tuple[Callable[[Tensor], Tensor], type[Exception], str]] = [
    (lambda x: moved(x, 4), ValueError, "is not aligned to 16 bytes"),
    (lambda x: moved(x, 8), ValueError, "is not aligned to 16 bytes"),
    (lambda x: x.half(), TypeError, "is torch.float16, expected float32"),
    (lambda x: x.double(), TypeError, "is torch.float64, expected float32"),
    (lambda x: x.to("meta"), TypeError, "is on meta, expected cpu"),
    (lambda x: x[:, :1], ValueError, r"has shape torch.Size\(\[1, 1, \d+, 64\]\), expected \(1, 2, \d+, 64\)"),
    (lambda x: x[0], ValueError, "has shape"),
    (
        lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        ValueError,
        "has strides .*, expected those of a contiguous",
    ),
]


@pytest.mark.parametrize(("change", "error", "message"), UNFIT)
@pytest.mark.parametrize("place", ["Q", "K", "V", "O"])
def test_unfit_tensors_are_refused_before_anything_runs(
    variant: LoadedVariant,
    buffers: Buffers,
    place: str,
    change: Callable[[Tensor], Tensor],
    error: type[Exception],
    message: str,
) -> None:
    tensors = {**dict(zip("QKV", buffers.inputs, strict=True)), "O": buffers.outputs[0]}
    tensors[place] = change(tensors[place])
    q, k, v, output = tensors.values()
    for run in (variant.run, variant.prepared):
        with pytest.raises(error, match=f"^{place} {message}"):
            run(PROBLEM, (q, k, v), (output,), buffers.workspace, variant.workspace_bytes(PROBLEM))
    assert place == "O" or not output.any()


VIEWS = PROBLEM.model_copy(update={"layout": "bshd", "batch": 2})


@pytest.fixture(scope="module")
def of_views(toolchain: CpuToolchain) -> LoadedVariant:
    built = artifact_of(build(Family.load(KERNELS / "tiny"), tiny(MODE="half-up"), VIEWS, toolchain))
    return LoadedVariant(built)


STRIDES: list[tuple[Callable[[Tensor], Tensor], str | None]] = [
    (lambda x: x, None),
    (lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), None),
    (lambda x: torch.nn.functional.pad(x, (0, 4))[..., :64], None),
    (lambda x: x[:1].expand(2, -1, -1, -1), "inputs alone"),
    (lambda x: torch.nn.functional.pad(x, (0, 2))[..., :64], "multiples of 16 bytes"),
    (lambda x: x.transpose(2, 3).contiguous().transpose(2, 3), "dense rows"),
]


@pytest.mark.parametrize(("change", "message"), STRIDES)
def test_strides_that_are_the_callers(
    of_views: LoadedVariant, buffers: Buffers, change: Callable[[Tensor], Tensor], message: str | None
) -> None:
    inputs = q, k, v = tuple(torch.zeros(2, *x.shape[1:]) for x in buffers.inputs)
    output = torch.zeros_like(q)
    calls = [((change(q), k, v), output, "Q"), ((q, k, change(v)), output, "V"), (inputs, change(output), "O")]
    for given, written, name in calls:
        run = partial(of_views.run, VIEWS, given, (written,), buffers.workspace, 1000)
        if message is None or (message == "inputs alone" and name != "O"):
            assert run() == 0
        else:
            said = "no two elements in one place" if message == "inputs alone" else message
            with pytest.raises(ValueError, match=f"^{name} has strides .*{said}"):
                run()


@pytest.mark.parametrize(
    ("inputs", "outputs", "dims", "scalars", "message"),
    [
        ((), (), (1,), (), "found 0 inputs, expected 3"),
        ((0,) * 3, (), (1,), (), "found 0 outputs, expected 1"),
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
