"""Exports of CUDA variants: compiled without a device, and on a GPU what a package and the C file compute."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
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
from autotuner.values.table import DispatchTable
from autotuner.values.variant import Value
from tests.helpers.files import text
from tests.helpers.in_c import printed, run
from tests.helpers.judging import default_of
from tests.helpers.points import alone
from tests.helpers.tables import served, table

TRITON = Path(__file__).parent.parent / "mutants" / "of_triton.toml"


@pytest.fixture(scope="module")
def workbenches() -> list[Workbench]:
    """One whose kernels are launched by the op's own launcher, one on views with a host side of its own, and one of
    Triton where it is installed."""
    if config.nvcc() is None:
        pytest.skip("needs nvcc")
    dense = Workbench(load_space("sdpa_cuda_smoke"), "sm_90")
    of_triton = [Workbench(load_space(str(TRITON)), "sm_90")] if triton.is_usable() else []
    return [dense, Workbench(alone("wgmma", "(2,8:2,256,64) float16 causal bshd"), "sm_90"), *of_triton]


@pytest.fixture(scope="module")
def exported(workbenches: list[Workbench]) -> tuple[DispatchTable, Source]:
    found, source = exported_of(workbenches, {"SM": 90, "MULTIPROCESSORS": 132})
    return found.model_copy(update={"estimates": True}), source


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
    write_c_folder(*exported, tmp_path / "demo")
    found = printed(tmp_path, text("no_device.c"))
    assert found.strip().startswith("proven on a device with SM 90, MULTIPROCESSORS 132")


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


# On a GPU: in graphs, on streams and in threads -----------------------------------------------------------------------


IMPLEMENTATIONS = ("mma", "wgmma")
"""One whose kernels are launched by the op's own launcher, and one with a host side of its own."""
PRELUDE = """
import sys
import threading
sys.path.insert(0, PLACE)
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
from inside import load

ours = load(strict=True)
"""
TORCH = """
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
FP8 = """
sizes = [(2, 4, 24, 64), (2, 2, 40, 64), (2, 2, 40, 64)]
drawn = [torch.randn(size, device="cuda") for size in sizes]
descale = torch.full((2, 2), 1 / 64, device="cuda")
q, k, v = [(each / descale[0, 0]).clamp(-448, 448).to(torch.float8_e4m3fn) for each in drawn]
expected = sdpa(*drawn, is_causal=True, enable_gqa=True)
for query, of_q in ((q, descale), (drawn[0].bfloat16(), torch.ones_like(descale))):
    found = ours(query, k, v, is_causal=True, q_descale=of_q, k_descale=descale, v_descale=descale)
    noise = torch.linalg.vector_norm(found.float() - expected) / torch.linalg.vector_norm(expected)
    assert noise < 0.056, noise  # 25 dB
"""
"""All in FP8, and queries in 16 bits on a cache of FP8."""
FP8_PROBLEMS = "(2,4:2,24x40,64) fp8 bfloat16 causal", "(2,4:2,24x40,64) fp8 bfloat16 causal cache"


@pytest.fixture(scope="module")
def on_this_gpu() -> tuple[DispatchTable, Source]:
    return exported_of([Workbench(alone(impl)) for impl in IMPLEMENTATIONS])


def exported_of(
    made: Sequence[Workbench], facts: Mapping[str, Value | bool] | None = None
) -> tuple[DispatchTable, Source]:
    """Each default variant serves the first problem of its space."""
    artifacts = [default_of(each) for each in made]
    variants = [served(artifact, place) for place, artifact in enumerate(artifacts)]
    entries = [(one.conditions.compiled_for, artifact.digest) for one, artifact in zip(made, artifacts, strict=True)]
    found = table(variants, entries, device="cuda", facts=facts)
    return found, Source(made[0].toolchain, config.spaces_dir())


@pytest.mark.gpu
def test_a_package_serves_graphs_streams_threads_and_compiled_models(
    on_this_gpu: tuple[DispatchTable, Source], tmp_path: Path
) -> None:
    tried_with_torch(on_this_gpu, TORCH, tmp_path)


@pytest.mark.gpu
def test_blocks_that_merge_through_the_workspace_may_overlap_with_those_of_another_stream(tmp_path: Path) -> None:
    tried_with_torch(exported_of([Workbench(alone("decode"))]), DECODE, tmp_path)


@pytest.mark.gpu
def test_a_package_serves_views_and_groups_by_warpgroup_products(tmp_path: Path) -> None:
    of_views = Workbench(alone("wgmma", "(2,8:2,256,64) float16 causal bshd"))
    tried_with_torch(exported_of([of_views]), VIEWS, tmp_path)


@pytest.mark.gpu
def test_attention_from_fp8_is_served_by_a_package_and_in_c(tmp_path: Path) -> None:
    made = exported_of([Workbench(load_space("sdpa_fp8_cuda", problems=[each])) for each in FP8_PROBLEMS])
    tried_with_torch(made, FP8, tmp_path)
    *served, refused = printed_by_nvcc(made, text("fp8.c"), tmp_path).splitlines()
    assert served == ["served, 1.0"] * 2
    assert "or K and V beside Q in bfloat16" in refused


def tried_with_torch(on_this_gpu: tuple[DispatchTable, Source], script: str, folder: Path) -> None:
    write_folder(*on_this_gpu, folder / "demo")
    (inside,) = (folder / "demo" / "build").iterdir()
    inside.rename(folder / "inside")
    command = [sys.executable, "-c", PRELUDE.replace("PLACE", repr(str(folder))) + script]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_a_program_without_python_and_torch_computes_attention(
    on_this_gpu: tuple[DispatchTable, Source], tmp_path: Path
) -> None:
    assert printed_by_nvcc(on_this_gpu, text("attention.cu"), tmp_path).strip() == "well"


def printed_by_nvcc(exported: tuple[DispatchTable, Source], program: str, place: Path) -> str:
    folder, nvcc = place / "in_c", config.nvcc()
    write_c_folder(*exported, folder)
    assert nvcc is not None
    (place / "main.cu").write_text(program.replace("autotuner_demo", "autotuner_in_c"))
    parts = ["main.cu", str(folder / "autotuner_in_c.cpp"), str(folder / "autotuner_in_c_variants.o")]
    run(place, str(nvcc), "-std=c++20", f"-I{folder}", *parts, "-Xcompiler", "-pthread", "-ldl", "-o", "it")
    return run(place, "./it")
