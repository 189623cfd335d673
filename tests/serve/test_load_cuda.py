"""An export in a program that has a GPU."""

import ctypes
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import autotuner
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench
from tests.helpers.judging import default_of
from tests.helpers.points import alone
from tests.helpers.tables import served, table, write


def loaded(impl: str, problem: str, path: Path) -> tuple[SdpaProblem, Any]:
    """An export whose table has the default variant of an implementation, for that problem, or for one of its own."""
    here = Workbench(alone(impl, problem))
    artifact = default_of(here)
    tuned = here.conditions.compiled_for
    assert isinstance(tuned, SdpaProblem)
    document = table([served(artifact)], [(tuned, artifact.digest)], device="cuda")
    return tuned, autotuner.load(write(document, path))


def drawn(problem: SdpaProblem, seed: int) -> list[Tensor]:
    """Q, K and V."""
    draw = torch.Generator("cuda").manual_seed(seed)
    sizes = [(problem.heads, problem.seq_q), *[(problem.heads_kv, problem.seq_k)] * 2]
    dtype = getattr(torch, problem.dtype)
    return [
        torch.randn(problem.batch, *size, problem.head_dim, generator=draw, dtype=dtype, device="cuda")
        for size in sizes
    ]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("impl", "text"),
    [("decode", "(3,8:2,1x700,128) float16 full lengths"), ("mma", "(3,4,96x160,64) float16 full lengths")],
)
def test_one_graph_serves_lengths_that_change_in_place(impl: str, text: str, tmp_path: Path) -> None:
    problem, ours = loaded(impl, text, tmp_path / "best.json")
    (q, k, v), keys = drawn(problem, 0), problem.seq_k
    lengths = torch.full((problem.batch,), keys, dtype=torch.int32, device="cuda")
    ours(q, k, v, enable_gqa=problem.grouped, key_lengths=lengths)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = ours(q, k, v, enable_gqa=problem.grouped, key_lengths=lengths)
    for seed, now in enumerate([(keys, 1, keys // 2), (5, keys, 64), (keys - 9, 17, keys - 1)]):
        for tensor, other in zip((q, k, v), drawn(problem, seed + 1), strict=True):
            tensor.copy_(other)
        lengths.copy_(torch.tensor(now, dtype=torch.int32))
        seen = torch.arange(keys, device="cuda") < lengths.view(-1, 1, 1, 1)
        expected = scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=problem.grouped)
        for tensor in (k, v):
            tensor.masked_fill_(~seen.transpose(2, 3), torch.nan)
        graph.replay()
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=2e-2)
    assert ours.served == 1.0, ours.counters


@pytest.mark.gpu
def test_a_thread_that_has_no_context_yet_is_served(tmp_path: Path) -> None:
    """What torch does in it before the launch comes from its cache of memory, and makes none."""

    problem, ours = loaded("mma", "", tmp_path / "best.json")
    q, k, v = drawn(problem, 0)
    expected = scaled_dot_product_attention(q, k, v, is_causal=problem.causal, enable_gqa=problem.grouped)
    torch.empty_like(q)  # and given back: the result of the call takes its place
    had: list[bool] = []
    found: list[Tensor] = []

    def call() -> None:
        context = ctypes.c_void_p()
        ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
        had.append(context.value is not None)
        found.append(ours(q, k, v, is_causal=problem.causal, enable_gqa=problem.grouped))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert had == [False]
    assert ours.served == 1.0, ours.counters
    torch.testing.assert_close(found[0], expected, atol=2e-2, rtol=2e-2)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("impl", ["mma", "decode", "wgmma"])
def test_tensors_say_which_gpu_computes_whichever_is_current(impl: str, tmp_path: Path) -> None:
    """In calls, in a thread that never chose a GPU, and in a graph; each GPU in turn, the other one current."""
    problem, ours = loaded(impl, "", tmp_path / "best.json")
    arguments: Any = {"is_causal": problem.causal, "enable_gqa": problem.grouped}
    on = [[each.to(f"cuda:{gpu}") for each in drawn(problem, gpu)] for gpu in (0, 1)]
    expected = [scaled_dot_product_attention(q, k, v, **arguments) for q, k, v in on]
    found: list[tuple[int, Tensor]] = []
    for gpu in (1, 0, 1):
        with torch.cuda.device(1 - gpu):
            found.append((gpu, ours(*on[gpu], **arguments)))
            assert torch.cuda.current_device() == 1 - gpu
    thread = threading.Thread(target=lambda: found.append((1, ours(*on[1], **arguments))))
    thread.start()
    thread.join()
    for gpu in (1, 0):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(gpu)):  # torch's own stream is of the GPU that came first
            result = ours(*on[gpu], **arguments)
        result.zero_()
        with torch.cuda.device(1 - gpu):
            graph.replay()
        found.append((gpu, result))
    for gpu in (0, 1):
        torch.cuda.synchronize(gpu)
    for gpu, result in found:
        assert result.device.index == gpu
        torch.testing.assert_close(result, expected[gpu], atol=2e-2, rtol=2e-2)
    assert ours.served == 1.0, ours.counters
