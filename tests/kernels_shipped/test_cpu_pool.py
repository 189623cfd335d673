"""How the threads of a CPU variant meet: they are their own, or those on which torch's operators run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autotuner.forge.build import build
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.variant import Variant
from tests.helpers.judging import artifact_of, launched

PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=64, seq_k=64, head_dim=64, dtype="float32")


@pytest.fixture
def torch_on_two_threads() -> Iterator[None]:
    """torch has run an operator on two threads, which wait for the next one."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.ones(1 << 20).sin().sum()
    yield
    torch.set_num_threads(before)


def threads() -> int:
    """Of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def computed(policy: int) -> torch.Tensor:
    """What a variant of two threads gives for a call."""
    here = Workbench(load_space("sdpa_cpu"))
    parameters = {"BLOCK_N": 64, "EXP": "poly5", "UNROLL": 4, "THREADS": 2, "SYNC_POLICY": policy}
    variant = Variant(family="sdpa", backend="cpu", impl="scalar", parameters=parameters)
    made = artifact_of(build(here.family, variant, PROBLEM, here.toolchain))
    loaded = LoadedVariant(made)
    found = torch.empty_like(INPUTS[0])
    for _ in range(3):
        launched(loaded, PROBLEM, INPUTS, (found,))
    return found


INPUTS = Q, K, V = torch.randn(3, 1, 2, 64, 64).unbind()
RIGHT = torch.nn.functional.scaled_dot_product_attention(Q, K, V)


@pytest.mark.usefixtures("torch_on_two_threads")
@pytest.mark.parametrize(("policy", "more"), [(0, 0), (1, 1), (4, 0)])
def test_threads_are_made_or_torchs(policy: int, more: int) -> None:
    before = threads()
    found = computed(policy)
    assert threads() - before == more
    torch.testing.assert_close(found, RIGHT)


def test_of_torchs_threads_one_alone_does_all_parts() -> None:
    assert torch.get_num_threads() == 1
    torch.testing.assert_close(computed(4), RIGHT)
