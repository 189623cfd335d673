"""The table [gate] of kernel.toml: stricter at will, looser with a written reason that is never lost."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.family import Family
from autotuner.store import Store
from autotuner.values.errors import KernelError
from autotuner.values.gate_report import CaseResult, GateReport
from autotuner.values.outcome import Outcome
from autotuner.values.verdict import Verdict
from tests.helpers.command_line import autotuner
from tests.helpers.files import refusals
from tests.helpers.judging import cpu_judge, judged
from tests.helpers.kernel_toml import GOOD, family
from tests.helpers.recorded import CALIBRATION, study_record
from tests.mutants.expectations import MUTANTS, Expectation

REASON = "exp is a polynomial of degree 4; good enough for what we do with it"
Judge = Callable[[str, str, str, str], Outcome]

# What may be written ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gate", "message"), refusals("gate"))
def test_what_is_wrong_in_the_gate_table_is_told_in_one_line(tmp_path: Path, gate: str, message: str) -> None:
    folder = family(tmp_path, f"{GOOD}\n{gate}\n")
    with pytest.raises(KernelError, match=message) as raised:
        Family.load(folder)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(f"{folder}/kernel.toml: ")


@pytest.mark.parametrize(
    ("gate", "looser"),
    [
        ("", ()),
        ("[gate.tolerance]\ntimes = 0.25", ()),
        ("[gate.tolerance]\nstrict = true", ()),
        ("[[gate.cases]]\nshape = [1, 1, 7, 900]\ndistribution = 'huge'", ()),
        (f"[gate.tolerance]\ntimes = 3\nreason = '{REASON}'", (f"tolerances times 3: {REASON}",)),
        (
            '[[gate.without]]\ndistribution = "big_v"\nreason = "V is normalised before"',
            ("not judged on inputs big_v: V is normalised before",),
        ),
    ],
)
def test_only_what_takes_something_away_is_called_looser(tmp_path: Path, gate: str, looser: tuple[str, ...]) -> None:
    assert Family.load(family(tmp_path, f"{GOOD}\n{gate}\n")).document.gate.looser == looser


# What it does to the judgement --------------------------------------------------------------------------------------


def changed(folder: Path, table: str, gate: str) -> Family:
    """A copy of the mutants' family of that table whose kernel.toml ends with this [gate]."""
    copy = folder / Family.load(MUTANTS / table).document.family
    shutil.copytree(MUTANTS / "common", folder / "common")
    shutil.copytree(MUTANTS / table, copy)
    with (copy / "kernel.toml").open("a") as text:
        text.write(f"\n{gate}\n")
    return Family.load(copy)


@pytest.fixture(scope="module")
def judge(toolchain: CpuToolchain, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Judges one of the mutants or right implementations under a [gate] of its family."""

    def under(table: str, name: str, dtype: str, gate: str) -> Outcome:
        kernel = changed(tmp_path_factory.mktemp("family"), table, gate)
        with cpu_judge(toolchain, kernel) as here:
            wanted = Expectation("cpu", table, name, dtype, False, 64, ("pass",))
            return judged(here, wanted.variant, wanted.conditions(), soak="never")

    return under


def report(outcome: Outcome) -> GateReport:
    assert outcome.gate is not None
    return outcome.gate


def cases(outcome: Outcome) -> list[CaseResult]:
    return [result for check in report(outcome).checks for result in check.cases]


def code(outcome: Outcome) -> str | None:
    return outcome.fault.code if outcome.fault else None


@pytest.mark.slow
def test_a_tighter_tolerance_rejects_what_passes_otherwise(judge: Judge) -> None:
    usual = judge("right", "two_pass", "float32", "")
    assert report(usual).passed, usual.fault
    worst = max(result.errors.worst_ratio for result in cases(usual))
    assert 0 < worst < 1
    tighter = judge("right", "two_pass", "float32", f"[cpu.right.tolerance]\ntimes = {worst / 2}")
    assert tighter.verdict == Verdict.INCORRECT
    assert code(tighter) in ("G2.T1", "G2.T2", "G2.T3", "G5.T1", "G5.T2", "G5.T3")
    assert report(tighter).policy.looser == ()


@pytest.mark.slow
def test_strict_rejects_scores_in_16_bits(judge: Judge) -> None:
    """The resolution of bfloat16 hides them from the gate's own tolerance."""
    usual = judge("numeric", "scores_in_bf16", "bfloat16", "")
    assert report(usual).passed, usual.fault
    strict = judge("numeric", "scores_in_bf16", "bfloat16", "[gate.tolerance]\nstrict = true")
    assert code(strict) == "G5.T1"
    worst = cases(strict)[-1].errors
    assert worst.peer_ratio is not None
    assert worst.peer_ratio > 2


@pytest.mark.slow
def test_own_cases_run_and_what_is_left_out_does_not(judge: Judge) -> None:
    gate = """
    [[gate.cases]]
    shape = [1, 1, 7, 900]
    distribution = "huge"
    [[gate.without]]
    distribution = "one_hot"
    reason = "no query of ours matches one key"
    """
    outcome = judge("right", "double", "float32", gate)
    assert report(outcome).passed, outcome.fault
    found = [result.case for result in cases(outcome)]
    assert found.count("own 1x1x7x900 huge") == 2
    assert [case for case in found if "one_hot" in case] == []
    assert [case for case in found if "big_v" in case] != []
    assert report(outcome).policy.looser == ("not judged on inputs one_hot: no query of ours matches one key",)


@pytest.mark.slow
def test_an_own_case_can_reject(judge: Judge) -> None:
    """Without a causal mask no case of the gate has more than 2,048 keys."""
    outcome = judge("numeric", "at_most_2048_keys", "float32", "[[gate.cases]]\nshape = [1, 1, 16, 2200]")
    assert code(outcome) == "G5.T1"
    assert cases(outcome)[-1].case == "own 1x1x16x2200 randn"


@pytest.mark.slow
def test_what_equals_baseline_needs_a_reason(judge: Judge) -> None:
    """Without one it is a mutant (tests/mutants/expected.toml)."""
    reasoned = judge(
        "systemic", "calls_sdpa", "float32", '[gate]\nequals_baseline = "it is PyTorch itself, to compare"'
    )
    (check,) = (each for each in report(reasoned).checks if each.code == "G2.baseline")
    assert check.status == "pass"
    assert "bitwise that of the baseline" in (check.note or "")
    assert report(reasoned).policy.looser == (
        "may give bitwise what a baseline gives: it is PyTorch itself, to compare",
    )


# Where the reason is shown ------------------------------------------------------------------------------------------

LOOSER = f'[gate.tolerance]\ntimes = 40\nreason = "{REASON}"'
SAID = f"tolerances times 40: {REASON}"


@pytest.fixture(scope="module")
def accepted(judge: Judge) -> Outcome:
    """A mutant that passes because its family's tolerance is looser, measured to the end."""
    return judge("numeric", "exp_degree_4", "float32", LOOSER)


@pytest.fixture(scope="module")
def folder(accepted: Outcome, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store in which that is the only trial."""
    folder = tmp_path_factory.mktemp("looser")
    with Store.open(str(folder / "studies.db")) as store:
        store.ensure_study(study_record())
        session = store.start_session("scalar-abc", CALIBRATION, {"torch": "2.11"})
        store.record("scalar-abc", session, 0, accepted)
    return folder


@pytest.mark.slow
def test_a_looser_tolerance_accepts_what_is_a_mutant_otherwise(accepted: Outcome) -> None:
    assert accepted.verdict == Verdict.MEASURED, accepted.fault
    assert report(accepted).policy.looser == (SAID,)
    assert max(result.errors.worst_ratio for result in cases(accepted)) < 1


def test_the_reason_is_in_the_export_and_shown_with_it(folder: Path) -> None:
    exported = autotuner(folder, "export", "--estimates")
    assert exported.returncode == 0, exported.stderr
    assert f"loosens the gate: {SAID}" in exported.stdout
    assert json.loads((folder / "best.json").read_text())["gate"]["looser"] == [SAID]
