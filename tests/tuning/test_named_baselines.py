"""Functions that a user names as baselines: judged as the op's own, pinned by identity, refused in one line."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.devices.kind import Cage
from autotuner.forge.family import Family
from autotuner.forge.languages import python
from autotuner.ops import OPS
from autotuner.ops.functions import baseline
from autotuner.ops.sdpa import libraries
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.cage import CageParts
from autotuner.run.executor import ask
from autotuner.run.jobs import CalibrationJob
from autotuner.run.local import LocalExecutor
from autotuner.tuning import workbench
from autotuner.tuning.of_function import baselines
from autotuner.values.conditions import Conditions
from autotuner.values.errors import InputError
from autotuner.values.outcome import Calibration
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from tests.helpers import preload
from tests.helpers.judging import KERNELS, briefly, cpu_line, judged
from tests.helpers.refusing import refused

PROBLEM = SdpaProblem.parse("(1,2,33x64,64) float32 causal")
HERE = Path(__file__).parent.parent / "kernels" / "baselines"
WRONG = {
    "scaled": "theirs:scaled breaks T1 on ",
    "in_float64": "returned a tensor of dtype torch.float64, expected torch.float32",
    "a_view": "returned a view of its input",
    "raises": "it raised ValueError: no such luck",
    "sees_all": "it has no argument is_causal",
}


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(HERE)
    return importlib.import_module("theirs")


def test_a_right_one_is_timed_beside_the_ops_own_and_a_wrong_one_is_said_and_left_out(
    theirs: ModuleType, toolchain: CpuToolchain
) -> None:
    named = baselines([getattr(theirs, name) for name in ("right", *WRONG)], "sdpa")
    line = replace(cpu_line(toolchain, Family.load(KERNELS / "of_python")), baselines=named)
    conditions = Conditions(problems=(PROBLEM,), cache="warm", seeds=(11, 22, 33, 44))
    with closing(LocalExecutor(line, preload=preload.CPU)) as executor:
        found = ask(executor, CalibrationJob(conditions=conditions))
    assert isinstance(found, Calibration)
    assert {each.backend for each in found.timings} == {"flash", "math", "theirs:right"}
    assert found.versions["theirs:right"] == named[0].digest
    for name, said in WRONG.items():
        assert said in found.left_out[f"theirs:{name}"]
        assert "\n" not in found.left_out[f"theirs:{name}"]


def test_one_that_writes_machine_code_does_so_in_the_cage(theirs: ModuleType, toolchain: CpuToolchain) -> None:
    line = cpu_line(toolchain, Family.load(KERNELS / "of_python"))
    variant = Variant(family="of_python", backend="cpu", impl="rows", parameters={"ROWS": 16, "WRONG": "nothing"})
    conditions = briefly(PROBLEM).model_copy(update={"baselines": ("theirs:writes_code",)})
    line = replace(line, baselines=baselines([theirs.writes_code], "sdpa"))
    with closing(LocalExecutor(line, preload=preload.CPU, cage=CageParts.of(Cage()))) as executor:
        outcome = judged(executor, variant, conditions, soak="never")
    assert outcome.verdict is Verdict.MEASURED, outcome


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda q, k, v: q, "<lambda> is not"),
        ("cudnn_please", "expected module:function, or flash_attn, flashinfer"),
        ("nowhere:f", "nowhere:f cannot be imported"),
        ("theirs:left", "theirs:left cannot be imported"),
        ("theirs:torch", "theirs:torch is no function but module"),
        ("flashinfer", "flashinfer is not installed: pip install flashinfer-python"),
    ],
)
def test_what_cannot_be_found_is_refused_in_one_line(
    theirs: ModuleType, given: str | Callable[..., Any], said: str
) -> None:
    with refused(InputError, says=said):
        baselines([given], "sdpa")


def test_one_that_was_changed_is_another_baseline_and_another_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "changing.py"
    source.write_text((HERE / "theirs.py").read_text())
    spaces = workbench.load_spaces("sdpa_cpu", 1, [str(PROBLEM)])
    file, other = (workbench.with_baselines(spaces, names)[0] for names in (["changing:right"], []))
    source.write_text(source.read_text() + "\n# faster\n")
    (later,) = workbench.with_baselines(spaces, ["changing:right"])
    names = [workbench.Workbench(each).plan().record.name for each in (file, later, other)]
    assert len(set(names)) == 3
    with pytest.raises(InputError, match="changing:right is no longer the baseline"):
        python.imported(Family.load(KERNELS / "of_python"), "cpu", file.baselines)


def test_a_library_is_called_as_it_wants_and_refuses_what_it_masks_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flash_attn.py").write_text(
        "from torch.nn.functional import scaled_dot_product_attention as sdpa\n"
        "def flash_attn_func(q, k, v, causal=False, softcap=0.0):\n"
        "    q, k, v = (x.transpose(1, 2) for x in (q, k, v))\n"
        "    return sdpa(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    called = baseline(libraries.flash_attn)
    tensors, square = OPS["sdpa"].tensors(), SdpaProblem.parse("(2,4:2,40,64) float32 causal")
    inputs = tensors.inputs(square, "randn", 3)
    (found,), (exact,) = called.answer(square, inputs), tensors.reference(square, inputs)
    assert torch.allclose(found.double(), exact, atol=1e-5)
    with pytest.raises(RuntimeError, match="bottom right"):
        called.answer(PROBLEM, tensors.inputs(PROBLEM, "randn", 3))


@pytest.mark.gpu
def test_one_that_breaks_the_device_is_named() -> None:
    broken = "import sys; sys.path.insert(0, sys.argv[1]); import breaks; breaks.main()"
    said = subprocess.run([sys.executable, "-c", broken, str(HERE)], capture_output=True, text=True, timeout=120)
    assert "breaks:reads_far breaks the device on (1,2,33,64) bfloat16 full" in said.stdout, said.stderr
