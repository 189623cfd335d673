"""The second op recorded, loaded and written as C by the same code."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import rms_norm

import autotuner
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.ops.rmsnorm import RmsNormProblem
from autotuner.serve.c_source import write_c_folder
from autotuner.serve.folder import Source
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config
from autotuner.values.table import DispatchTable
from tests.helpers.calls import loaded
from tests.helpers.files import text
from tests.helpers.in_c import printed
from tests.helpers.judging import default_of
from tests.helpers.tables import served, table, write

PROBLEM = RmsNormProblem.parse("(6,256) float32 eps=1e-05")


@pytest.fixture(scope="module")
def tuned() -> DispatchTable:
    here = Workbench(load_space("rmsnorm_cpu").model_copy(update={"problems": (PROBLEM,)}))
    made = default_of(here)
    return table([served(made)], [(PROBLEM, made.digest)])


@pytest.fixture
def ours(tuned: DispatchTable, tmp_path: Path) -> Any:
    return loaded(write(tuned, tmp_path / "best.json"))


def drawn(*tokens: int) -> tuple[Tensor, torch.nn.Parameter]:
    return torch.randn(*tokens, 256), torch.nn.Parameter(torch.randn(256))


@pytest.mark.parametrize("tokens", [(6,), (2, 3), (3, 1, 2)])
def test_it_is_served_whatever_dimensions_its_tokens_have(ours: Any, tokens: tuple[int, ...]) -> None:
    x, w = drawn(*tokens)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(ours(x, (256,), w, 1e-5), rms_norm(x, (256,), w, 1e-5))
        assert ours.served == 1.0
        assert sum(ours.counters.values()) == 4
        assert ours._library.asked().total() == 2  # the others were known
        torch.library.opcheck(ours.op, (x, w), {"eps": 1e-5})
    with pytest.raises(RuntimeError, match="it needs a gradient"):
        ours(x, (256,), w, 1e-5)


def test_a_weight_that_is_named_is_told_to_torch_again_and_again(ours: Any) -> None:
    """Beside a shape it is no other tensor's place, though there are as many tensors as unnamed arguments."""
    for shape, eps, dtype in (
        ((6, 128), 1e-5, torch.float32),
        ((6, 256), 1e-3, torch.float32),
        ((6, 256), 1e-5, torch.float64),
    ):
        x, w = torch.randn(shape, dtype=dtype), torch.randn(shape[-1:], dtype=dtype)
        for _ in range(5):
            found = ours(x, w.shape, weight=w, eps=eps)
            torch.testing.assert_close(found, rms_norm(x, w.shape, weight=w, eps=eps))
    assert ours.served == 0


def test_torch_serves_the_rest_and_it_says_why(ours: Any) -> None:
    x, w = drawn(6)
    weight = w.detach()
    calls: list[tuple[tuple[Any, ...], str]] = [
        ((x, (256,), weight, 1e-6), "it was not tuned"),
        ((x, (256,), weight), "no_eps is not supported"),
        ((x, (256,), None, 1e-5), "no_weight, normalized_shape is not supported"),
        ((x[:, ::2], (128,), weight[:128], 1e-5), "must be dense"),
        ((x.double(), (256,), weight.double(), 1e-5), "float32, bfloat16 and float16"),
        ((torch.randn(5, 256), (256,), weight, 1e-5), "it was not tuned"),
    ]
    for given, why in calls:
        for _ in range(3):
            torch.testing.assert_close(ours(*given), rms_norm(*given))
        assert why in ours.explain(*given).why
    assert ours.served == 0.0
    assert sum(ours.counters.values()) == 3 * len(calls)
    with pytest.raises(TypeError, match=r"^normalized_shape must be a tuple .*, not int"):
        ours(x, 256, weight)


def test_it_is_recorded() -> None:
    x, w = drawn(2, 3)
    with torch.no_grad(), autotuner.record() as calls:
        rms_norm(x, (256,), w, 1e-5)
        autotuner.function("rms_norm")(x, (256,), w, 1e-5)
        autotuner.function("rmsnorm")(x, (256,), None, 1e-5)
    assert {str(problem): count for problem, count in calls.problems.items()} == {str(PROBLEM): 2}
    assert [each.why for each in calls.refused] == ["no_weight is not supported: there is always a weight"]


@pytest.mark.slow
def test_a_program_without_python_and_torch_computes_it(tuned: DispatchTable, tmp_path: Path) -> None:
    write_c_folder(tuned, Source(CpuToolchain.discover(), config.spaces_dir()), tmp_path / "demo")
    found = printed(tmp_path, text("rms_norm.c"))
    assert found.strip() == "it was not tuned, and no variant is proven and timed around it"


@pytest.mark.slow
@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports what torch calls deprecated
def test_the_norms_of_a_decoder_are_recorded_and_served(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from examples.gpt import gpt as model_of, norms as example

    model, inputs = model_of.gpt(layers=2, heads=4), model_of.texts((6,), 3)
    example.use_norms(model, autotuner.function("rms_norm"))
    with autotuner.record() as calls:
        model_of.generate(model, inputs[0], 3, model_of.cache_of(model, 32))
    counted = {str(problem): count for problem, count in calls.problems.items() if problem.op == "rmsnorm"}
    assert counted == {"(1,256) float32": 10, "(6,256) float32": 5}
    problems = [RmsNormProblem.parse(each) for each in counted]
    here = Workbench(load_space("rmsnorm_cpu").model_copy(update={"problems": tuple(problems)}))
    made = default_of(here)
    found = autotuner.load(
        write(table([served(made)], [(each, made.digest) for each in problems]), tmp_path / "best.json")
    )
    result = example.compare(model, found, inputs, 3, 32, rounds=1)
    for way in ("eager", "compiled"):
        assert result[way]["served"] == 1.0
        assert result[way]["largest_difference"] < 1e-4
