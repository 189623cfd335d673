"""One graph, captured once, serves lengths of keys that change in a tensor on the GPU, with other keys and values each
time: beside torch's attention with the mask that says the same."""

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors, moved
from autotuner.tuning.workbench import Workbench
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Value
from benchmarks.attention.interleaved import variant_forward
from tests.helpers.points import alone, chosen

FULL, CAUSAL = "(3,4,96x160,64) float16 full lengths", "(3,4,96x160,64) float16 causal bottom_right lengths"
GROUPS = "(3,8:2,33x700,128) bfloat16 full lengths bshd lse"
ONE, FEW = "(3,8:2,1x700,128) float16 full lengths", "(3,8:2,4x700,64) float16 causal bottom_right lengths bshd lse"
CASES: tuple[tuple[str, str, Mapping[str, Value]], ...] = (
    ("mma", FULL, {"FIXED": 0}),
    ("mma", FULL, {"FIXED": 1, "WARPS_N": 4, "STAGES": 1}),
    ("mma", CAUSAL, {"FIXED": 0, "WARPS_N": 2, "Q_FROM": "shared"}),
    ("mma", GROUPS, {"FIXED": 0, "STAGES": 3}),
    ("decode", ONE, {"MERGE": "device", "SPLIT": 8, "PACK_GQA": 1}),
    ("decode", ONE, {"SPLIT": 1, "PACK_GQA": 0}),
    ("decode", FEW, {"MERGE": "device", "SPLIT": 4, "PACK_GQA": 1}),
)
"""An implementation, a problem with lengths, and what its point has; the rest is near the default point."""
CLUSTERS: tuple[tuple[str, str, Mapping[str, Value]], ...] = (
    ("mma", CAUSAL, {"FIXED": 0, "SPLIT": 2}),
    ("decode", FEW, {"MERGE": "cluster", "SPLIT": 4, "PACK_GQA": 0}),
)
"""Those that only devices with clusters have."""
LEAST = {"float16": 2e-3, "bfloat16": 1.6e-2}
"""By how much an output may be off where it is near 0."""


def series(keys: int) -> list[tuple[int, int, int]]:
    """Lengths of three batches at each replay: all and hardly any, no key at all, and what is no whole tile."""
    return [(keys, 1, keys // 2), (7, keys, 64), (0, 33, keys - 1), (keys - 1, 65, 0), (keys, keys, keys)]


def fill(inputs: Tensors, lengths: tuple[int, ...], seed: int) -> None:
    """Writes new numbers into Q, K and V, where they lie, and new lengths. Past the lengths lies what is no number."""
    draw = torch.Generator().manual_seed(seed)
    for tensor in inputs[:3]:
        tensor.copy_(torch.randn(tensor.shape, generator=draw))
    inputs[3].copy_(torch.tensor(lengths, dtype=torch.int32))
    for batch, length in enumerate(lengths):
        for tensor in inputs[1:3]:
            tensor[batch, :, length:] = math.nan


def mask_of(problem: SdpaProblem, lengths: tuple[int, ...]) -> Tensor:
    """True where a row sees a key, (batch, 1, seq_q, seq_k): row after row."""
    seen = torch.zeros(problem.batch, 1, problem.seq_q, problem.seq_k, dtype=torch.bool)
    for batch, length in enumerate(lengths):
        for row in range(problem.seq_q):
            last = length if not problem.causal else length - problem.seq_q + row + 1
            seen[batch, 0, row, : max(0, min(length, last))] = True
    return seen


def expected(problem: SdpaProblem, inputs: Tensors, lengths: tuple[int, ...]) -> Tensors:
    """O by torch's attention in float32, and, where they are wanted, the log-sum-exps. A row that sees nothing is 0."""
    seen = mask_of(problem, lengths).to(inputs[0].device)
    q, k, v = (each.float().nan_to_num(0) for each in inputs[:3])
    with sdpa_kernel([SDPBackend.MATH]):
        o = scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=problem.grouped)
    o = o.masked_fill(~seen.any(-1, keepdim=True), 0)
    if not problem.lse:
        return (o,)
    scores = q @ k.repeat_interleave(problem.group, 1).transpose(-1, -2) * problem.scale
    return (o, torch.logsumexp(scores.masked_fill(~seen, -math.inf), -1))


def require_close(problem: SdpaProblem, found: Tensors, inputs: Tensors, lengths: tuple[int, ...]) -> None:
    """Whether outputs are what torch says, rounded."""
    o, *lse = expected(problem, inputs, lengths)
    torch.testing.assert_close(found[0].float(), o, atol=LEAST[problem.dtype], rtol=2e-2)
    for each, of in zip(found[1:], lse, strict=True):
        torch.testing.assert_close(each, of, atol=1e-2, rtol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize(("impl", "text", "wanted"), [*CASES, *CLUSTERS])
def test_one_graph_serves_lengths_that_change(impl: str, text: str, wanted: Mapping[str, Value]) -> None:
    if (impl, text, wanted) in CLUSTERS and torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("there are clusters from sm_90 on")
    here = Workbench(alone(impl, text))
    problem = here.conditions.compiled_for
    assert isinstance(problem, SdpaProblem)
    (artifact,) = here.build_all([chosen(here.space, wanted)])
    assert isinstance(artifact, Artifact), artifact
    inputs = moved(op_of(problem).tensors().inputs(problem, "randn", 1), "cuda")
    forward, outputs = variant_forward(artifact, problem, [inputs])
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        forward(0)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            forward(0)
    for seed, lengths in enumerate(series(problem.seq_k)):
        fill(inputs, lengths, seed)
        replays: list[Tensors] = []
        for _ in range(2):
            for each in outputs:
                each.fill_(math.nan)
            torch.cuda.synchronize()
            graph.replay()
            torch.cuda.synchronize()
            replays.append(tuple(each.clone() for each in outputs))
        require_close(problem, replays[0], inputs, lengths)
        for first, again in zip(*replays, strict=True):
            assert torch.equal(first, again), "what a replay leaves behind changes the next"


# What the tests above compare with, where there is no GPU ------------------------------------------------------------


@pytest.mark.parametrize("text", [FULL, CAUSAL, GROUPS, ONE, FEW])
def test_torch_with_the_mask_says_what_the_reference_says(text: str) -> None:
    problem = SdpaProblem.parse(text)
    tensors = op_of(problem).tensors()
    inputs = tensors.inputs(problem, "randn", 1)
    for seed, lengths in enumerate(series(problem.seq_k)):
        fill(inputs, lengths, seed)
        reference = tensors.reference(problem, inputs)
        require_close(problem, tuple(each.float() for each in reference), inputs, lengths)
