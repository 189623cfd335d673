"""What CPU variants of attention give for numbers at the end of their range: torch's answer, or no number where it has
none."""

import math
import os
import signal

import pytest
import torch
from torch import Tensor

from autotuner.devices.cpu.machine import cpu_facts
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.variant import Value, Variant
from tests.helpers.builds import artifact_of
from tests.helpers.tables import FOLDER

SCALAR: dict[str, Value] = {"BLOCK_N": 64, "EXP": "poly5", "UNROLL": 4, "THREADS": 1, "SYNC_POLICY": 0}


def loaded(problem: SdpaProblem, impl: str, **parameters: Value) -> LoadedVariant:
    """A variant of the shipped family; of `simd` the default point of a CPU space with these parameters."""
    here = Workbench(load_space("sdpa_cpu", problems=[str(problem)]))
    point = dict(here.variant(here.space.default_index).parameters) if impl == "simd" else dict(SCALAR)
    variant = Variant(family="sdpa", backend="cpu", impl=impl, parameters={**point, **parameters})
    made = artifact_of(build(here.family, variant, problem, here.toolchain))
    return LoadedVariant(made)


def tutorial(problem: SdpaProblem) -> LoadedVariant:
    """The kernel of docs/my-kernel.md."""
    here = Workbench(load_space("sdpa_cpu"))
    parameters: dict[str, Value] = {"BLOCK_N": 16, "EXP": "poly", "ROWS": 4}
    variant = Variant(family="rows", backend="cpu", impl="plain", parameters=parameters)
    made = artifact_of(build(Family.load(FOLDER / "rows"), variant, problem, here.toolchain))
    return LoadedVariant(made)


def computed(variant: LoadedVariant, problem: SdpaProblem, inputs: tuple[Tensor, ...]) -> Tensor:
    wanted = variant.workspace_bytes(problem)
    workspace = torch.zeros(wanted + 64, dtype=torch.uint8)
    found = torch.empty_like(inputs[0])
    assert variant.run(problem, inputs, (found,), -(-workspace.data_ptr() // 64) * 64, wanted) == 0
    return found


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_no_number_does_not_become_one(bad: float, place: int) -> None:
    problem = SdpaProblem.parse("(1,1,8,64) float32")
    inputs = torch.randn(3, 1, 1, 8, 64).unbind()
    inputs[place][0, 0, 0, 0] = bad
    q, k, v = inputs
    right = torch.softmax(q @ k.transpose(2, 3) / 8, -1) @ v
    found = computed(loaded(problem, "scalar"), problem, inputs)
    assert (found.isnan() == right.isnan()).all()


@pytest.mark.parametrize("impl", ["simd", "tutorial"])
def test_where_all_scores_are_minus_infinity_no_later_key_is_seen(impl: str) -> None:
    problem = SdpaProblem.parse("(1,1,64,64) float32 causal")
    q, k, v = torch.full((1, 1, 64, 64), 1e19), torch.full((1, 1, 64, 64), -1e19), torch.randn(1, 1, 64, 64)
    variant = tutorial(problem) if impl == "tutorial" else loaded(problem, impl)
    found = computed(variant, problem, (q, k, v))
    assert found.isnan().all()


def test_large_scores_of_bfloat16_stay_numbers() -> None:
    """Each query is one of the keys: the softmax is 1 there, and O is a row of V."""
    problem = SdpaProblem.parse("(1,1,64,64) bfloat16")
    q, v = (scale * torch.randn(1, 1, 64, 64).to(torch.bfloat16) for scale in (3e4, 1))
    for dot in (0, 1) if cpu_facts(1)["CPU_BF16_DOT"] else (0,):
        found = computed(loaded(problem, "simd", BF16_DOT=dot, PACK_K=2, PACK_V=1), problem, (q, q.clone(), v))
        assert (found == v).all()


def test_a_forked_child_does_not_wait_for_torchs_threads() -> None:
    """Those of the OpenMP runtime are not there."""
    problem = SdpaProblem.parse("(1,2,64,64) float32")
    variant = loaded(problem, "scalar", THREADS=2, SYNC_POLICY=4)
    inputs = torch.randn(3, 1, 2, 64, 64).unbind()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    right = computed(variant, problem, inputs)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        os._exit(0 if (computed(variant, problem, inputs) == right).all() else 1)
    torch.set_num_threads(before)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
