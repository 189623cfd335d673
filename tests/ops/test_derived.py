"""An op that is made from its formula: judged for real with kernels in C++, compiled for CUDA, refused in one line."""

import importlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

import autotuner
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.gate.cases import Matrix
from autotuner.gate.references import reference_checks
from autotuner.gate.tolerance import Degenerate, compute_truth
from autotuner.ops import OPS
from autotuner.run.local import LocalExecutor
from autotuner.values.errors import InputError
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from tests.helpers import preload
from tests.helpers.judging import briefly, cpu_line, judged

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "own_op"
WRONG = {
    "right": ("", "", None),
    "forgets_the_tail": ("i < dim; ++i) y[i]", "i < dim / LANES * LANES; ++i) y[i]", "G1.unwritten"),
    "takes_the_row_before": ("call->in[SOFTMAX_X] + row * dim", "call->in[SOFTMAX_X] + (row & ~1) * dim", "G2.T1"),
    "rounds_before_the_exponential": (
        "expf((to_float(x[i]) - largest) / temperature) / sum",
        "expf(to_float(from_float(to_float(x[i]) / temperature)) - largest / temperature) / sum",
        "G2.T",
    ),
}
"""What is replaced in the source, by what, and the code that the gate ends with, or its beginning."""


@pytest.fixture(scope="module", autouse=True)
def made_here() -> Iterator[None]:
    """What is made here is no op of the tests that the process runs next."""
    before = {*OPS}
    yield
    for name in {*OPS} - before:
        del OPS[name]


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Family]:
    """The example's family, and wrong ones beside it."""
    folder, found = tmp_path_factory.mktemp("own_op"), {}
    shutil.copy(EXAMPLE / "softmax.py", folder)
    for name, (what, instead, _) in WRONG.items():
        shutil.copytree(EXAMPLE / "softmax_rows", folder / name)
        source, toml = folder / name / "rows.cpp", folder / name / "kernel.toml"
        assert what in source.read_text()
        source.write_text(source.read_text().replace(what, instead) if what else source.read_text())
        toml.write_text(toml.read_text().replace('family = "softmax_rows"', f'family = "{name}"'))
        found[name] = Family.load(folder / name)
    return found


@pytest.fixture(
    params=["right", *(pytest.param(each, marks=pytest.mark.sampled(1, "wrong")) for each in WRONG if each != "right")]
)
def judges(
    request: pytest.FixtureRequest, families: dict[str, Family], toolchain: CpuToolchain
) -> Iterator[tuple[str, LocalExecutor]]:
    line = cpu_line(toolchain, families[request.param])
    with closing(LocalExecutor(line, preload=preload.CPU)) as executor:
        yield request.param, executor


def test_a_right_kernel_passes_and_a_wrong_one_is_rejected(judges: tuple[str, LocalExecutor]) -> None:
    name, executor = judges
    problem = OPS["softmax"].problem.parse("(64,300) bfloat16 temperature=0.7")
    variant = Variant(family=name, backend="cpu", impl="plain", parameters={"LANES": 8})
    outcome = judged(executor, variant, briefly(problem, baseline="float32"), "never")
    code = WRONG[name][2]
    if code is None:
        assert outcome.verdict == "measured", outcome.fault
    else:
        assert outcome.fault is not None
        assert outcome.fault.code.startswith(code), outcome.fault


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_kernel_for_cuda_compiles_with_the_launcher_that_was_made(
    dtype: str, families: dict[str, Family], nvcc: CudaToolchain
) -> None:
    variant = Variant(family="right", backend="cuda", impl="block", parameters={"THREADS": 256})
    made = build(families["right"], variant, OPS["softmax"].problem.parse(f"(64,300) {dtype}"), nvcc)
    assert isinstance(made, Artifact), made


def test_an_op_says_where_right_outputs_are_alike() -> None:
    """Where each number is rounded once, and where attention has so few keys that one product holds them."""
    doubled = autotuner.op("doubled", {"a": "rows x dim", "b": "dim"}, lambda a, b: a * b)
    sums = autotuner.op("sums", {"a": "rows x dim"}, lambda a: a.cumsum(-1))
    said = [
        op.equals_baseline(op.problem.parse(f"({sizes}) float16")) is not None
        for op, sizes in ((doubled, "4,8"), (sums, "4,8"), (OPS["sdpa"], "2,3,509x16,64"), (OPS["sdpa"], "2,3,17,64"))
    ]
    assert said == [True, False, True, False]


def test_the_examples_have_few_lines() -> None:
    assert all(len(each.read_text().splitlines()) <= 25 for each in EXAMPLE.glob("*.py"))


def refused(**changed: Any) -> str:
    said: dict[str, Any] = {"name": "tried", "inputs": {"a": "rows x dim"}, "formula": lambda a: 2 * a, **changed}
    with pytest.raises(InputError) as raised:
        autotuner.op(said.pop("name"), said.pop("inputs"), said.pop("formula"), **said)
    assert "\n" not in str(raised.value)
    assert "tried" not in OPS
    return str(raised.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "sdpa"}, "there is an op sdpa already"),
        ({"name": "Tried it"}, "'Tried it' is no name"),
        ({"inputs": {"a": "rows x dim", "b": "dim x rows"}}, 'b: found "dim x rows", expected "rows x dim" or "dim"'),
        ({"inputs": {"a": "dim"}}, "expected two sizes of its first input"),
        ({"inputs": {}}, "expected two sizes of its first input"),
        ({"inputs": {"rows": "rows x dim"}}, "rows stands for two things"),
        ({"output": "dim"}, 'output: expected "rows x dim" or "rows"'),
        ({"formula": lambda b, c: b}, "missing 1 required positional argument"),
        ({"formula": lambda a: a.sum(-1)}, "it gives (6,), expected (6, 35)"),
        ({"formula": lambda a: a - a.mean()}, "a row of its result depends on other rows"),
        ({"formula": lambda a: 0 * a}, "it gives no numbers but 0"),
        ({"formula": lambda a: a.log()}, "numbers that are not finite"),
        ({"formula": torch.relu}, "expected a function of Python, such as a lambda"),
        ({"formula": lambda a: a.sub_(a.amax(-1, True)).exp_()}, "it changes its inputs"),
        ({"formula": lambda a: a + 1e-9 * torch.randn_like(a)}, "it gives another result the second time"),
        ({"distributions": {"none": lambda a: 0 * a}}, "of its distribution none it gives no number but 0"),
        ({"distributions": {"lost": lambda a: a * torch.nan}}, "of its distribution lost it gives no number but 0"),
        ({"distributions": {"odd": lambda a: a[:, 1:]}}, "odd: it gives [(6, 34)], expected [(6, 35)]"),
    ],
)
def test_what_is_no_op_of_rows_is_refused_in_one_line(changed: dict[str, Any], said: str) -> None:
    assert said in refused(**changed)


@pytest.mark.parametrize(
    "formula",
    [
        lambda a: torch.softmax(a, -1),
        lambda a: a - a.mean(-1, keepdim=True),
        lambda a: a / a.var(-1, keepdim=True),
        lambda a: torch.nn.functional.layer_norm(a, a.shape[-1:]),
    ],
)
def test_the_emulation_sums_as_the_textbook_does(formula: Callable[..., torch.Tensor]) -> None:
    op = autotuner.op("emulated", {"a": "rows x dim"}, formula)
    problem, tensors = op.problem.parse("(3,20000) float32"), op.tensors()
    inputs = tensors.inputs(problem, "sizes", 1)
    (exact,), (low,) = tensors.reference(problem, inputs), tensors.emulation(problem, inputs)
    (quick,) = tensors.BASELINES["float32"].answer(problem, inputs)
    assert torch.allclose(low, exact, rtol=1e-3, atol=1e-6)
    assert (low - exact).norm() > (quick.double() - exact).norm()


def test_a_case_of_which_an_op_makes_nothing_but_0_is_left_out_for_baselines() -> None:
    """A single number has no variance."""
    op = autotuner.op("varied", {"a": "rows x dim"}, lambda a: a.square().mean(-1) - a.mean(-1).square(), output="rows")
    problem = op.problem.parse("(256,1000) float32")
    with pytest.raises(Degenerate, match="nowhere a number other than 0"):
        compute_truth(Matrix(problem).case((5, 1)), 1)
    found = reference_checks([problem], ["torch"], compute_truth, 1, 1, lambda _: None)
    assert {each.errors is not None and each.errors.failed_rule is None for each in found} == {True}
    assert not any("x1 " in each.case for each in found)


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(1, of="judged by a program")
def test_a_function_is_tuned_for_such_an_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "kernels" / "baselines")
    OPS.look_beside("softmax", EXAMPLE)
    asked: dict[str, Any] = {
        "problems": "(64,300) float32 temperature=0.7",
        "op": "softmax",
        "trials": 1,
        "finals": False,
    }
    function = importlib.import_module("of_rows").softmax
    study = autotuner.tune(function, space={"HALVES": [2]}, minutes=1.9, store=tmp_path / "s.db", **asked)
    assert [(row["verdict"], row["detail"]) for row in study.rows()] == [("measured", None)]
