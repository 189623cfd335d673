"""`autotuner doctor`: its table of parameters, what a bug report needs, and a remedy for what is wrong."""

import json
from pathlib import Path

import pytest
import typer

from autotuner.cli import machine
from autotuner.devices import DEVICES, cuda
from autotuner.devices.cuda.probe import CudaFacts
from autotuner.devices.cuda.toolchain import CudaToolchain, require_driver
from autotuner.devices.kind import Cage
from autotuner.forge import landlock
from autotuner.run import cage
from autotuner.values.errors import ToolchainError
from autotuner.views.space_tables import cage_lines
from tests.helpers.files import text

SPACE = text("unused.toml")


def test_the_lines_of_the_cage_name_each_wall_that_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cage_lines([]) == ["The cage around variants is whole on this machine."]
    monkeypatch.setattr(landlock, "version", lambda: 0)
    lines = cage_lines(cage.missing(Cage(memory=False)))
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == ["files", "memory"]
    assert all(line.startswith("The cage around variants lacks a wall here: ") for line in lines)


@pytest.mark.slow
def test_the_doctor_says_what_the_cage_lacks_in_words_and_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    family = Path(__file__).parent.parent.parent / "examples" / "own_kernel" / "rows"
    (tmp_path / "rows").symlink_to(family)
    (tmp_path / "space.toml").write_text(SPACE)
    monkeypatch.setattr(landlock, "version", lambda: 0)
    walls = DEVICES["cpu"].cage

    def said(as_json: bool) -> str:
        try:
            machine.doctor(str(tmp_path / "space.toml"), seed=0, as_json=as_json)
        except typer.Exit:
            pytest.fail("a parameter is dead")
        return capsys.readouterr().out

    text = " ".join(said(False).split())
    for line in ["1 parameters, none dead.", *cage_lines(cage.missing(walls))]:
        assert line in text
    document = json.loads(said(True))
    assert [(each["parameter"], each["state"]) for each in document["parameters"]] == [("BLOCK_N", "alive")]
    assert document["cage"] == {"has": cage.summary(walls), "lacks": cage.missing(walls)}
    assert document["cage"]["lacks"][0].startswith("files: ")


# Without a space: what a bug report needs -----------------------------------------------------------------------------


def found(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, object]]]:
    """The exit code, and each point by its name."""
    code = 0
    try:
        machine.doctor(None, as_json=True)
    except typer.Exit as ended:
        code = ended.exit_code
    return code, {each["what"]: each for each in json.loads(capsys.readouterr().out)}


def test_it_says_what_a_bug_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    code, points = found(capsys)
    needed = {"versions", "CPUs", "memory", "cache", "temporary files", "store", "C++ compiler", "nvcc", "cage of cpu"}
    assert needed <= set(points)
    assert str(points["C++ compiler"]["said"]).endswith("it works")
    assert code == any(point["blocks"] for point in points.values())


def test_a_compiler_that_does_not_work_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    code, points = found(capsys)
    assert code == 1
    assert str(broken) in str(points["C++ compiler"]["said"])
    assert points["C++ compiler"]["remedy"]


@pytest.mark.parametrize(("driver", "built", "wrong"), [("13.0", "13.0", False), ("12.8", "13.0", True)])
def test_a_torch_for_a_newer_cuda_than_the_drivers(
    monkeypatch: pytest.MonkeyPatch, driver: str, built: str, wrong: bool
) -> None:
    gpu = CudaFacts(name="a GPU", uuid="GPU-0", sm=90, multiprocessors=1, l2_bytes=1, driver=driver)
    monkeypatch.setattr(cuda, "probe_all", lambda: (gpu,))
    monkeypatch.setattr(cuda, "torch_cuda", lambda: built)
    monkeypatch.setenv("AUTOTUNER_CACHE", "/nowhere")
    points = {each.what: each for each in cuda.findings()}
    assert bool(points["torch's CUDA"].remedy) == wrong


def test_a_driver_that_is_older_than_the_toolkit() -> None:
    toolchain = CudaToolchain(
        compiler="g++", version="nvcc release 13.0, V13.0.88; g++ 12", architecture="sm_90", nvcc="nvcc", headers=()
    )
    require_driver(toolchain, "13.1")
    require_driver(toolchain, None)
    with pytest.raises(ToolchainError, match=r"the driver is for CUDA 12\.8.*; update the driver, or set CUDA_HOME"):
        require_driver(toolchain, "12.8")
