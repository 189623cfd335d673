"""An export in a program that has a GPU."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import autotuner
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact
from tests.helpers.tables import served, table, write


@pytest.mark.gpu
def test_a_thread_that_has_no_context_yet_is_served(tmp_path: Path) -> None:
    """What torch does in it before the launch comes from its cache of memory, and makes none."""
    from autotuner.devices.cuda.serving import has_context

    here = Workbench(load_space("sdpa_cuda_smoke"))
    (artifact,) = here.build_all([here.space.default_index])
    assert isinstance(artifact, Artifact), artifact
    problem = here.conditions.compiled_for
    assert isinstance(problem, SdpaProblem)
    ours = autotuner.load(write(table([served(artifact)], [(problem, artifact.digest)], device="cuda"), tmp_path / "b"))
    dtype = getattr(torch, problem.dtype)
    q, k, v = (
        torch.randn(problem.batch, heads, length, problem.head_dim, dtype=dtype, device="cuda")
        for heads, length in (
            (problem.heads, problem.seq_q),
            (problem.heads_kv, problem.seq_k),
            (problem.heads_kv, problem.seq_k),
        )
    )
    expected = scaled_dot_product_attention(q, k, v, is_causal=problem.causal, enable_gqa=problem.grouped)
    torch.empty_like(q)  # and given back: the result of the call takes its place
    had: list[bool] = []
    found: list[Tensor] = []

    def call() -> None:
        had.append(has_context())
        found.append(ours(q, k, v, is_causal=problem.causal, enable_gqa=problem.grouped))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert had == [False]
    assert ours.served == 1.0, ours.counters
    torch.testing.assert_close(found[0], expected, atol=2e-2, rtol=2e-2)
