"""Exports of CUDA variants on a GPU: what a package and the C file compute, in graphs, on streams and in threads."""

import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.serve.c_source import write_c_folder
from autotuner.serve.folder import Source
from autotuner.serve.package import write_folder
from autotuner.tuning.workbench import Workbench
from autotuner.values import config
from autotuner.values.table import DispatchTable, TableVariant
from tests.helpers.builds import default_of
from tests.helpers.files import text
from tests.helpers.points import alone
from tests.helpers.tables import served, table

IMPLEMENTATIONS = ("mma", "wgmma")
"""One whose kernels are launched by the op's own launcher, and one with a host side of its own."""
TORCH = """
import sys
import threading
sys.path.insert(0, PLACE)
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
from inside import load

ours = load(strict=True)
SHAPES = [(1, 8, 512, 64), (1, 32, 2048, 128)]

def inputs(shape, seed=0):
    draw = torch.Generator("cuda").manual_seed(seed)
    return [torch.randn(shape, generator=draw, dtype=torch.float16, device="cuda") for _ in range(3)]

def close(found, expected):
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=2e-2)

for shape in SHAPES:
    given = inputs(shape)
    expected = sdpa(*given)
    close(ours(*given), expected)
    torch.library.opcheck(ours.op, given)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        close(ours(*given), expected)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = ours(*given)
    for tensor, other in zip(given, inputs(shape, 1)):
        tensor.copy_(other)
    graph.replay()
    close(found, sdpa(*given))

    model = torch.compile(lambda q, k, v: ours(q, k, v) + 1, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        for seed in range(4):
            given = inputs(shape, seed)
            close(model(*given), sdpa(*given) + 1)

worst = []
def call(seed):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        given = inputs(SHAPES[0], seed)
        found = [ours(*given) for _ in range(50)]
        expected = sdpa(*given)
        worst.append(max(float((each - expected).abs().max()) for each in found))
threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(worst) == 4 and max(worst) < 2e-3, worst

try:
    ours(*inputs((1, 8, 500, 64)))
except RuntimeError as error:
    assert "not tuned" in str(error), error
else:
    raise AssertionError
other = load()
other.reset_counters()
given = inputs((1, 8, 500, 64))
assert (other(*given) == sdpa(*given)).all() and not other.served
"""
DECODE = """
import sys
sys.path.insert(0, PLACE)
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
from inside import load

ours = load(strict=True)

def inputs(seed):
    draw = torch.Generator("cuda").manual_seed(seed)
    sizes = [(1, 32, 1, 128), (1, 8, 4096, 128), (1, 8, 4096, 128)]
    return [torch.randn(size, generator=draw, dtype=torch.float16, device="cuda") for size in sizes]

def captured(given):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [ours(*given, enable_gqa=True) for _ in range(50)]
    return graph, found

given = [inputs(seed) for seed in range(2)]
streams = [torch.cuda.Stream() for _ in given]
graphs = [captured(each) for each in given]
torch.cuda.synchronize()
for _ in range(20):
    for stream, (graph, _) in zip(streams, graphs):
        with torch.cuda.stream(stream):
            graph.replay()
torch.cuda.synchronize()
for each, (_, found) in zip(given, graphs):
    expected = sdpa(*each, enable_gqa=True)
    for one in found:
        torch.testing.assert_close(one, expected, atol=2e-3, rtol=2e-2)
"""
VIEWS = """
import sys
sys.path.insert(0, PLACE)
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
from inside import load

ours = load(strict=True)
BATCH, HEADS, HEADS_KV, ROWS, DIM = 2, 8, 2, 256, 64

def inputs(seed, gap, shared):
    draw = torch.Generator("cuda").manual_seed(seed)
    found = []
    for heads in (HEADS, HEADS_KV, HEADS_KV):
        batch = 1 if shared and heads == HEADS_KV else BATCH
        whole = torch.randn(batch, ROWS, heads + gap, DIM + 8 * gap, generator=draw, dtype=torch.float16, device="cuda")
        found.append(whole[:, :, :heads, :DIM].transpose(1, 2).expand(BATCH, -1, -1, -1))
    return found

for seed, (gap, shared) in enumerate([(0, False), (1, False), (3, True)]):
    given = inputs(seed, gap, shared)
    found = ours(*given, is_causal=True, enable_gqa=True)
    expected = sdpa(*given, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=2e-2)
"""
"""Of views, with gaps and without, and of K and V that the batches share."""
PROGRAM = text("attention.cu")


@pytest.fixture(scope="module")
def exported() -> tuple[DispatchTable, Source]:
    return exported_of(*IMPLEMENTATIONS)


def exported_of(*impls: str, problem: str = "") -> tuple[DispatchTable, Source]:
    """Each implementation's default variant serves a problem that it is made for, or that one, on this device."""
    made = [Workbench(alone(impl, problem)) for impl in impls]
    variants: list[TableVariant] = []
    entries: list[tuple[SdpaProblem, str | None]] = []
    for place, each in enumerate(made):
        artifact = default_of(each)
        variants.append(served(artifact, place))
        served_here = each.conditions.compiled_for
        assert isinstance(served_here, SdpaProblem)
        entries.append((served_here, artifact.digest))
    return table(variants, entries, device="cuda"), Source(made[0].toolchain, config.spaces_dir())


@pytest.mark.gpu
def test_a_package_serves_graphs_streams_threads_and_compiled_models(
    exported: tuple[DispatchTable, Source], tmp_path: Path
) -> None:
    tried_with_torch(exported, TORCH, tmp_path)


@pytest.mark.gpu
def test_blocks_that_merge_through_the_workspace_may_overlap_with_those_of_another_stream(tmp_path: Path) -> None:
    tried_with_torch(exported_of("decode"), DECODE, tmp_path)


@pytest.mark.gpu
def test_a_package_serves_views_and_groups_by_warpgroup_products(tmp_path: Path) -> None:
    tried_with_torch(exported_of("wgmma", problem="(2,8:2,256,64) float16 causal bshd"), VIEWS, tmp_path)


def tried_with_torch(exported: tuple[DispatchTable, Source], script: str, folder: Path) -> None:
    write_folder(*exported, folder / "demo")
    (inside,) = (folder / "demo" / "build").iterdir()
    inside.rename(folder / "inside")
    command = [sys.executable, "-c", script.replace("PLACE", repr(str(folder)))]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_a_program_without_python_and_torch_computes_attention(
    exported: tuple[DispatchTable, Source], tmp_path: Path
) -> None:
    folder, nvcc = tmp_path / "demo", config.nvcc()
    write_c_folder(*exported, folder)
    assert nvcc is not None
    (tmp_path / "main.cu").write_text(PROGRAM)
    parts = ["main.cu", str(folder / "autotuner_demo.cpp"), str(folder / "autotuner_demo_variants.o")]
    command = [str(nvcc), "-std=c++17", f"-I{folder}", *parts, "-Xcompiler", "-pthread", "-ldl", "-o", "it"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([tmp_path / "it"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "well")
