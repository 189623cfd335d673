"""The tensor maps that the host sides of mma and wgmma make, by a libcuda that notes them: no device is needed."""

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from torch import Tensor

from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import OUTSIDE_DOMAIN
from autotuner.ops.sdpa import OP
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.sdpa.tensors import inputs
from autotuner.tuning.workbench import Workbench
from autotuner.values import config
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from tests.emulator.emulator import HERE, cuda_include
from tests.helpers.judging import artifact_of
from tests.helpers.points import alone
from tests.mutants.warpgroups import POINT, Mutant, mutants

pytestmark = pytest.mark.skipif(
    config.nvcc() is None or config.cxx() is None or cuda_include() is None, reason="needs the CUDA toolkit"
)

CHILD = """
import ctypes, json, sys
given = json.loads(sys.stdin.read())
driver = ctypes.CDLL(given["driver"], ctypes.RTLD_GLOBAL)
driver.recorded.restype = ctypes.c_char_p
driver.record_words(*given["words"])
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values.outcome import Artifact

class Device:
    type = "cuda"

class Lies:
    device = Device()
    def __init__(self, dtype, address, shape, stride):
        self.dtype, self.shape = dtype, tuple(shape)
        self.data_ptr, self.stride = (lambda: address), (lambda: tuple(stride))

variant = LoadedVariant(Artifact.model_validate(given["artifact"]))
for problem, tensors in given["calls"]:
    lying = [Lies(*each) for each in tensors]
    status = variant.run(SdpaProblem.parse(problem), tuple(lying[:3]), tuple(lying[3:]), 1 << 30, 64)
    print(json.dumps([status, driver.recorded().decode()]))
"""
FROM_HEADS = (556, 5)
"""Where the words of wgmma_args from `heads` on begin, and how many: heads, lse, which are two, group, expanded."""
VIEWS = "(2,4:2,150x91,64) float16 bshd"
CALLS = (
    (VIEWS, "randn"),
    (VIEWS, "gaps"),
    ("(3,2,70x91,64) float16 bshd", "expanded"),
    ("(2,8:1,64,64) float16 packed", "randn"),
    ("(1,1,1x1,64) float16 bshd", "gaps"),
)
DENSE = "(2,4:2,150x91,64) float16"
MMA: dict[str, int | str] = {
    **{"WARPS_M": 2, "ROW_TILES": 1, "WARPS_N": 1, "BLOCK_N": 32, "STAGES": 2, "SPLIT": 1, "MULTICAST": 1},
    **{"LOAD": "tma", "EXP": "ex2", "Q_FROM": "registers", "FIXED": 0, "SYNC_POLICY": 0},
}
POINTS = {"wgmma": POINT, "mma": MMA}


class Map(NamedTuple):
    """Sizes and box of a tensor map, innermost first, and its strides in bytes."""

    base: list[int]
    sizes: list[int]
    strides: list[int]
    box: list[int]


class Noted(NamedTuple):
    """What was noted of a call."""

    status: int
    maps: list[Map]
    words: list[int]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libcuda that notes."""
    made = tmp_path_factory.mktemp("recorder") / "libcuda.so.1"
    flags = ["-std=c++17", "-shared", "-fPIC", f"-Wl,-soname,{made.name}", f"-I{cuda_include()}"]
    subprocess.run([str(config.cxx()), *flags, str(HERE / "recorder.cpp"), "-o", str(made)], check=True)
    return made


@cache
def workbench() -> Workbench:
    return Workbench(alone("wgmma"), "sm_90")


def built(impl: str, text: str, family: Family | None = None) -> Artifact:
    """The variant of POINTS, for that problem."""
    variant = Variant(family="sdpa", backend="cuda", impl=impl, parameters=POINTS[impl])
    here = workbench()
    return artifact_of(build(family or here.family, variant, SdpaProblem.parse(text), here.toolchain))


def tensors_of(text: str, distribution: str) -> list[Tensor]:
    """Q, K, V and O."""
    problem = SdpaProblem.parse(text)
    given = inputs(problem, distribution, 1)
    return [*given, *OP.tensors().outputs(problem, given)]


def noted(driver: Path, artifact: Artifact, calls: Sequence[tuple[str, Sequence[Tensor]]]) -> list[Noted]:
    """What the variant's host side makes of each call."""
    told = [
        (text, [(str(x.dtype).removeprefix("torch."), x.data_ptr(), [*x.shape], [*x.stride()]) for x in tensors])
        for text, tensors in calls
    ]
    words = FROM_HEADS if artifact.variant.impl == "wgmma" else (0, 0)
    given = {"driver": str(driver), "artifact": artifact.model_dump(mode="json"), "calls": told, "words": words}
    done = subprocess.run([sys.executable, "-c", CHILD], input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [read(*json.loads(line)) for line in done.stdout.splitlines()]


def read(status: int, said: str) -> Noted:
    """The lines of recorder.cpp."""
    lines = [line.split() for line in said.splitlines()]
    fields = [[int(number) for number in words] for name, *words in lines if name in Map._fields]
    maps = [Map(*fields[place : place + 4]) for place in range(0, len(fields), 4)]
    return Noted(status, maps, [int(line[1]) for line in lines if line[0] == "word"])


def step(tensor: Tensor, along: int) -> int:
    """Elements; 0 along a dimension of size 1, as the ABI has it."""
    return tensor.stride(along) if tensor.shape[along] > 1 else 0


def expected(impl: str, tensors: Sequence[Tensor], strided: bool) -> list[Map]:
    """The maps of all four tensors or, of mma, those of K and V."""
    found = []
    for place, tensor in enumerate(tensors):
        batch, heads, length, dim = tensor.shape
        sizes, strides = [dim, length, heads * batch], [2 * dim, 2 * dim * length]
        if strided:
            sizes, strides = [dim, length, heads, batch], [2 * step(tensor, along) or 16 for along in (2, 1, 0)]
        rows = int(POINTS[impl]["BLOCK_N"]) if place in (1, 2) else 64
        found.append(Map([tensor.data_ptr()], sizes, strides, [64, rows, 1, 1][: len(sizes)]))
    return found if impl == "wgmma" else found[1:3]


@pytest.mark.slow
@pytest.mark.parametrize("impl", POINTS)
def test_the_maps_of_views_have_their_strides(driver: Path, impl: str) -> None:
    calls = [(text, tensors_of(text, distribution)) for text, distribution in CALLS]
    for (text, tensors), found in zip(calls, noted(driver, built(impl, VIEWS), calls), strict=True):
        assert (found.status, found.maps) == (0, expected(impl, tensors, strided=True)), text


@pytest.mark.parametrize("impl", ["mma", pytest.param("wgmma", marks=pytest.mark.slow)])
def test_the_maps_of_dense_tensors_have_all_slices(driver: Path, impl: str) -> None:
    tensors = tensors_of(DENSE, "randn")
    (found,) = noted(driver, built(impl, DENSE), [(DENSE, tensors)])
    assert (found.status, found.maps) == (0, expected(impl, tensors, strided=False))


@pytest.mark.parametrize(
    ("impl", "places"), [("wgmma", (0, 1, 2)), pytest.param("mma", (1, 2), marks=pytest.mark.slow)]
)
def test_one_row_for_all_is_refused(driver: Path, impl: str, places: tuple[int, ...]) -> None:
    """A box of a map has several rows."""
    calls = [(VIEWS, tensors_of(VIEWS, "randn")) for _ in places]
    for place, (_, tensors) in zip(places, calls, strict=True):
        tensors[place] = tensors[place][:, :, :1].expand(tensors[place].shape)
    assert noted(driver, built(impl, VIEWS), calls) == [(OUTSIDE_DOMAIN, [], [])] * len(places)


OF_THE_HOST = [each for each in mutants() if all(name == "wgmma_host.cpp" for name, *_ in each.edits)]


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("mutant", OF_THE_HOST, ids=lambda each: each.name)
def test_a_mutant_of_the_host_side_makes_other_maps(driver: Path, mutant: Mutant, tmp_path: Path) -> None:
    text, distribution = str(mutant.problem.problem()), mutant.problem.distribution
    tensors = tensors_of(text, distribution)
    (found,) = noted(driver, built("wgmma", text, mutant.family(tmp_path)), [(text, tensors)])
    assert found.status == 0
    assert found.maps != expected("wgmma", tensors, strided=True)
