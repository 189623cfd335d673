"""A function of Python as a variant: judged like any other, and refused in one line where nobody could call it."""

import ctypes
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import autotuner
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.devices.python_function import Call, caller
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.ops import OPS
from autotuner.ops.functions import wrong_answer
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.local import LocalExecutor
from autotuner.tuning.trial_report import GateSummary
from autotuner.values.errors import AutotunerError, InputError, KernelError
from autotuner.values.variant import Variant
from tests.helpers.judging import KERNELS, artifact_of, briefly, cpu_judge, cuda_line, judged
from tests.helpers.refusing import refused

PROBLEM = SdpaProblem(batch=1, heads=2, seq_q=33, seq_k=64, head_dim=64, dtype="float32", causal=True)
CONDITIONS = briefly(PROBLEM)
VERDICTS = {"nothing": "measured", "raises": "launch_failed"}


def variant(wrong: str, rows: int = 16) -> Variant:
    return Variant(family="of_python", backend="cpu", impl="rows", parameters={"ROWS": rows, "WRONG": wrong})


@pytest.fixture(scope="module")
def family() -> Family:
    return Family.load(KERNELS / "of_python")


@pytest.fixture(scope="module")
def judges(family: Family, toolchain: CpuToolchain) -> Iterator[LocalExecutor]:
    with cpu_judge(toolchain, family) as executor:
        yield executor


def test_a_right_one_is_measured_and_what_no_tool_can_look_at_is_said(judges: LocalExecutor) -> None:
    outcome = judged(judges, variant("nothing"), CONDITIONS, soak="never")
    assert outcome.verdict == "measured", outcome.fault
    assert outcome.gate.passed
    missing = {check.code: check.note for check in outcome.gate.checks if check.status == "unavailable"}
    said = "it calls attention:attention, a function of Python: it has no machine code to look at"
    assert missing == {"G0.conduct": said, "G0.effect": said}
    report: Any = outcome.gate
    assert GateSummary.of(report).unavailable == ("G0.conduct", "G0.effect")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        ("raises", "G1.status", "the function raised ValueError: no such luck"),
        ("is_a_view", "G1.status", "the function returned a view of its input"),
        ("is_float64", "G1.status", "the function returned a tensor of dtype torch.float64, expected torch.float32"),
        ("ignores_the_mask", "G2.T1", ""),
        ("remembers", "G3.", ""),
        ("sets_torch", "G7.guard", "process that judges it: torch.are_deterministic_algorithms_enabled"),
        ("slows_the_baseline", "G7.guard", "has changed the process that judges it: autotuner"),
        ("undoes_it_in_time", "G7.guard", "process that judges it: autotuner"),
        ("takes_an_operator", "G7.guard", "process that judges it: operators of torch.library"),
        ("finds_all_equal", "G", ""),
        ("computes_when_read", "G7.strays", "when the last call of a timed sample returned, its output was not there"),
    ],
)
def test_a_wrong_one_is_rejected_with_what_it_did(judges: LocalExecutor, wrong: str, code: str, said: str) -> None:
    fault = judged(judges, variant(wrong), CONDITIONS).fault
    assert fault.code.startswith(code)
    assert said in fault.detail


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("torch.use_deterministic_algorithms(True)", "changes torch.are_deterministic_algorithms_enabled for all"),
        (
            "kept = torch.library.Library('aten', 'IMPL'); kept.impl('equal', lambda *_: True, 'CPU')",
            "changes operators of torch.library for all",
        ),
        ("checks.broken = lambda *_: None", "has changed the process that judges it: autotuner"),
        ("import builtins; builtins.ascii = repr", "has changed the process that judges it: builtins"),
    ],
)
def test_what_a_module_changes_as_it_is_imported_is_told(
    tmp_path: Path, toolchain: CpuToolchain, line: str, said: str
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "kernel.toml").write_text(
        'family = "mine"\nabi = 2\nop = "sdpa"\n[cpu.rows]\npython = "meddling:f"\ndtypes = ["float32"]\n'
    )
    (folder / "meddling.py").write_text(
        f"import torch\nfrom autotuner.gate import tolerance as checks\n{line}\n"
        "def f(query, key, value, *, is_causal):\n"
        "    scores = query @ key.transpose(2, 3) * query.shape[3] ** -0.5\n"
        "    hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1) & is_causal\n"
        "    return torch.softmax(scores.masked_fill(hidden, -torch.inf), 3) @ value\n"
    )
    mine = Variant(family="mine", backend="cpu", impl="rows", parameters={})
    with cpu_judge(toolchain, Family.load(folder)) as judges:
        try:
            found = str(judged(judges, mine, CONDITIONS, soak="never").fault)
        except InputError as error:
            found = str(error)
    assert said in found


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("wrong", "code"), [("nothing", None), ("is_a_view", "G1.status"), ("ignores_the_mask", "G2.T1")]
)
def test_on_a_gpu_the_same_checks_judge_it(family: Family, wrong: str, code: str | None, device: CudaToolchain) -> None:
    problem = PROBLEM.model_copy(update={"dtype": "bfloat16"})
    artifact = artifact_of(build(family, variant(wrong).model_copy(update={"backend": "cuda"}), problem, device))
    conditions = CONDITIONS.model_copy(update={"problems": (problem,)})
    report = cuda_line(device, family)().check(artifact, conditions, lambda _: None)
    assert (report.fault and report.fault.code) == code, report.fault
    assert ("G4.capture" in [check.code for check in report.checks]) == (code is None)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda q: q * 2, None),
        (lambda q: (q * 2,), None),
        (lambda q: q.double(), "a tensor of dtype torch.float64, expected torch.float32"),
        (lambda q: q[:, :1] * 2, "a tensor of shape (1, 1, 33, 64), expected (1, 2, 33, 64)"),
        (lambda q: q.to("meta"), "a tensor of device meta, expected cpu"),
        (lambda q: q.view(1, 2, 33, 64), "a view of its input"),
        (lambda q: None, "returned NoneType, expected 1 of torch's tensors"),
        (lambda q: (q * 2, q * 2), "returned Tensor, Tensor, expected 1"),
    ],
)
def test_an_answer_that_is_none_is_said_in_one_line(answer: Callable[[Any], Any], said: str | None) -> None:
    inputs = OPS["sdpa"].tensors().inputs(PROBLEM, "randn", 1)
    found = wrong_answer(answer(inputs[0]), PROBLEM, inputs)
    assert (found is None) == (said is None)
    assert (said or "") in (found or "")
    assert "\n" not in (found or "")


def test_a_function_is_given_the_numbers_of_its_call(module: ModuleType, family: Family) -> None:
    problem = SdpaProblem.parse("(1,1,8,64) float32 causal window=5 softcap=30")
    said = {"python": "attention:windowed", "path": str(family.folder), "device": "cpu", "op": "sdpa", "parameters": {}}
    compiled = {name: str(value) for name, value in problem.compiled.items()}
    tensors = [torch.zeros(1, 1, 8, 64) for _ in range(4)]
    call = Call()
    call.dim[: len(problem.shape)], call.scalar[: len(problem.scalars)] = problem.shape, problem.scalars
    call.inputs[:3], call.outputs[0] = [each.data_ptr() for each in tensors[:3]], tensors[3].data_ptr()
    for strides in (*call.input_strides[:3], call.output_strides[0]):
        strides[:4] = tensors[0].stride()
    launch = caller(json.dumps({**said, "compiled": compiled}))
    assert launch(ctypes.addressof(call)) == 0
    assert module.WINDOWS == [((5, 0), 30.0)]


def test_each_point_is_a_program_of_its_own_and_so_is_each_source(
    family: Family, toolchain: CpuToolchain, tmp_path: Path
) -> None:
    def program(of: Family, rows: int) -> str:
        made = artifact_of(build(of, variant("nothing", rows), PROBLEM, toolchain))
        return made.digest + made.program_hash

    copy = tmp_path / "of_python"
    copy.mkdir()
    for each in family.folder.glob("*.*"):
        (copy / each.name).write_bytes(each.read_bytes())
    (copy / "attention.py").write_text((family.folder / "attention.py").read_text() + "\n# other\n")
    assert len({program(family, 8), program(family, 16), program(Family.load(copy), 16)}) == 3


def test_a_module_that_is_not_there_is_refused_before_any_build(tmp_path: Path, toolchain: CpuToolchain) -> None:
    (tmp_path / "lost").mkdir()
    text = 'family = "lost"\nabi = 2\nop = "sdpa"\n[cpu.rows]\npython = "nowhere:f"\ndtypes = ["float32"]\n'
    (tmp_path / "lost" / "kernel.toml").write_text(text)
    with pytest.raises(KernelError, match="there is no module nowhere"):
        build(
            Family.load(tmp_path / "lost"),
            Variant(family="lost", backend="cpu", impl="rows", parameters={}),
            PROBLEM,
            toolchain,
        )


# From a program -----------------------------------------------------------------------------------------------------


@pytest.fixture
def module(family: Family, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(family.folder)
    return importlib.import_module("attention")


@pytest.mark.parametrize(
    ("function", "changed", "said"),
    [
        (lambda q, k, v: q, {}, "<lambda> is not"),
        (None, {"space": {"ROW": [1]}}, "no parameter 'ROW'"),
        (None, {"space": {}}, "attention needs ROWS"),
        (None, {"space": {"ROWS": []}}, "ROWS: found [], expected a list"),
        (None, {"space": "sdpa_cpu"}, "over values of its parameters"),
        (None, {"problems": ()}, "a function is tuned for problems"),
        (None, {"problems": "(1,8,512,64) float32 causal bottom_right"}, "no argument corner"),
        (None, {"op": "spda"}, "did you mean sdpa"),
        ("(1,8,512,64) float32", {"problems": ()}, "a space of values is one of a function's parameters"),
    ],
)
def test_what_nobody_could_call_is_refused_in_one_line(
    module: ModuleType, tmp_path: Path, function: Callable[..., Any] | str | None, changed: dict[str, Any], said: str
) -> None:
    asked = {"problems": "(1,8,512,64) float32", "space": {"ROWS": [16]}, "store": tmp_path / "s.db", **changed}
    with refused(InputError, says=said):
        autotuner.tune(module.attention if function is None else function, **asked)
    assert not (tmp_path / "s.db").exists()


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.sampled(1, of="judged by a program")
def test_a_program_tunes_a_function_and_exports_its_parameters(module: ModuleType, tmp_path: Path) -> None:
    study = autotuner.tune(
        module.attention,
        problems="(1,2,64,64) float32",
        space={"ROWS": [16, 64], "WRONG": ["nothing", "raises"]},
        trials=4,
        finals=False,
        store=tmp_path / "s.db",
    )
    verdicts = {(row["ROWS"], row["WRONG"]): row["verdict"] for row in study.rows()}
    assert verdicts == {(rows, wrong): verdict for rows in (16, 64) for wrong, verdict in VERDICTS.items()}
    assert study.export(tmp_path / "best.json").exists()
    with pytest.raises(AutotunerError):
        study.export(tmp_path / "package", format="package")
