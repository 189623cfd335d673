"""What the gate says on the CPU beyond what it says of each mutant (tests/conformance/test_devices.py), and that the
lists of mutants are whole."""

import math
import platform
import re
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.build import build
from autotuner.forge.family import Family
from autotuner.gate.cases import Matrix
from autotuner.gate.checks import FLOATS_CHANGED
from autotuner.gate.diagnosis import of_type
from autotuner.gate.tolerance import compute_truth
from autotuner.ops.sdpa import OP
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.jobs import RaceJob
from autotuner.run.local import LocalExecutor
from autotuner.tuning.workbench import load_space
from autotuner.values import codes
from autotuner.values.outcome import Heat
from autotuner.values.verdict import Verdict
from autotuner.views.trial_words import outcome_words
from tests.helpers import conduct_driver, preload
from tests.helpers.judging import KERNELS, artifact_of, cpu_line, judged, result
from tests.mutants.expectations import MUTANTS, TABLES, Backend, Expectation, entries, expectations, family, meets

pytestmark = pytest.mark.timed


@pytest.fixture(scope="module")
def judges(toolchain: CpuToolchain) -> Iterator[dict[str, LocalExecutor]]:
    """An executor for each family of mutants; they share one zygote."""
    made = {table: LocalExecutor(cpu_line(toolchain, family(table)), preload=preload.CPU) for table in TABLES}
    yield made
    for executor in made.values():
        executor.close()


SUBNORMALS = [pytest.mark.slow, pytest.mark.sampled(1, "subnormals")]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="SSE is of x86-64")
@pytest.mark.parametrize(
    "what",
    [
        "rounding_later",
        *(pytest.param(f"rounding_{to}", marks=pytest.mark.sampled(1, "rounding")) for to in ("down", "up", "to_zero")),
        *(pytest.param(f"subnormals_{are}", marks=SUBNORMALS) for are in ("flushed", "read_as_zero")),
    ],
)
def test_what_a_launch_does_to_sse_alone_is_seen(toolchain: CpuToolchain, what: str) -> None:
    """The mutant `rounding_mode_left_changed` changes that of the x87 unit as well. Later: after 30 launches."""
    with closing(conduct_driver.judges(toolchain, KERNELS / "conduct", check=30)) as executor:
        outcome = judged(executor, conduct_driver.conduct(f"leaves_sse_{what}"), conduct_driver.CONDITIONS)
    fault, gate = outcome.fault, outcome.gate
    assert (fault.code, fault.verdict) == ("G3.float_env", Verdict.CORRUPTING)
    assert (gate.checks[-1].code == "G1.smoke") == (what != "rounding_later")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="SSE is of x86-64")
def test_what_a_timed_launch_does_to_it_is_seen_too(toolchain: CpuToolchain) -> None:
    conditions, variant = conduct_driver.CONDITIONS, conduct_driver.conduct("leaves_sse_rounding_down")
    built = artifact_of(build(Family.load(KERNELS / "conduct"), variant, conditions.compiled_for, toolchain))
    with closing(conduct_driver.judges(toolchain, KERNELS / "conduct", check=30)) as executor:
        heat = result(executor, RaceJob(artifacts=(built,), conditions=conditions, blocks=2), 120)
    assert isinstance(heat, Heat)
    assert (heat.faults, heat.us) == ({0: FLOATS_CHANGED}, ((),))


@pytest.mark.slow
@pytest.mark.sampled(1, of="right ones anew")
@pytest.mark.parametrize("audited", [True, False])
@pytest.mark.parametrize("expectation", [group[0] for group in expectations("cpu", "right")], ids=str)
def test_a_right_implementation_passes_under_other_seeds_and_is_not_accused_of_cheating(
    judges: dict[str, LocalExecutor], expectation: Expectation, audited: bool
) -> None:
    """benchmarks/gate/mutants.py has many more seeds."""
    outcome = expectation._replace(audited=audited).judge(judges["right"], (100, 101, 102, 103))
    assert meets(outcome, expectation.codes), outcome.fault


@pytest.mark.parametrize(
    ("table", "name", "depends"),
    [
        ("systemic", "accumulator_from_workspace", True),
        pytest.param("systemic", "max_from_workspace", True, marks=pytest.mark.slow),
        pytest.param("numeric", "last_row_unwritten", False, marks=pytest.mark.slow),
        ("numeric", "scale_off", False),
    ],
)
def test_what_depends_on_what_memory_held_is_said_to(
    judges: dict[str, LocalExecutor], table: str, name: str, depends: bool
) -> None:
    found = {group[0].name: group[0] for group in expectations("cpu", table)}
    outcome = found[name].judge(judges[table])
    assert outcome.fault is not None
    assert outcome.gate.checks[-1].stale == (depends and not outcome.fault.code.startswith("G3"))
    assert ("what memory held before" in "\n".join(outcome_words(outcome, OP))) == outcome.gate.checks[-1].stale


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("odd_key_dropped", "right on the same inputs with seq_k even: a tail"),
        pytest.param(
            "drop_ragged_tail", "right on the same inputs with seq_k a multiple of 128", marks=pytest.mark.slow
        ),
        pytest.param(
            "stored_in_16_bits",
            "holds the right numbers as bfloat16, where its type is float32",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "output_truncated_to_bf16", "every number of the output is one of bfloat16", marks=pytest.mark.slow
        ),
        pytest.param("k_and_v_swapped", "every row is off", marks=pytest.mark.slow),
    ],
)
def test_what_experiments_show_of_the_cause_is_said(judges: dict[str, LocalExecutor], name: str, words: str) -> None:
    found = {group[0].name: group[0] for group in expectations("cpu", "numeric")}
    (cause,) = (line for line in outcome_words(found[name].judge(judges["numeric"]), OP) if line.startswith("Likely"))
    assert words in cause


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("where", ["from the beginning", "in each row", "each in its place"])
def test_halves_in_a_float_output_are_seen_wherever_they_lie(dtype: torch.dtype, where: str) -> None:
    """The rest is the poison."""
    right = compute_truth(Matrix(SdpaProblem.parse("(1,2,65,32) float32")).case((1, 2, 5, 7)), 1)
    due = right.outputs[0].reference
    output = torch.full(due.shape, math.nan)
    halves, numbers = output.view(dtype), due.to(dtype)
    if where == "from the beginning":
        halves.flatten()[: due.numel()] = numbers.flatten()
    elif where == "in each row":
        halves[..., : due.shape[-1]] = numbers
    else:
        halves[..., ::2] = numbers
    name = str(dtype).removeprefix("torch.")
    assert of_type((output,), right) == f"the output holds the right numbers as {name}, where its type is float32"
    assert of_type((due.float(),), right) is None


# The lists ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_the_lists_are_long_enough(backend: Backend) -> None:
    found = {table: {entry["name"] for entry in entries(backend, table)} for table in TABLES}
    assert len(found["numeric"]) > 40
    assert len(found["systemic"]) > 12
    assert len(found["right"]) >= 8
    assert len(found["clock"] - {"none"}) >= 20


@pytest.mark.parametrize(("backend", "source"), [("cpu", "clock.cpp"), ("cuda", "clock.cu")])
def test_every_way_to_cheat_the_clock_is_judged(backend: Backend, source: str) -> None:
    judged = {entry["name"] for entry in entries(backend, "clock")} - {"none"}
    written = set(re.findall(r"MUTANT_([A-Z0-9_]+)", (MUTANTS / "clock" / source).read_text())) - {"MEMO", "ROW"}
    assert written - {"NAME_"} == {name.upper() for name in judged}


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_what_only_the_variant_to_use_is_asked_for_is_judged_as_it(backend: Backend) -> None:
    """Whatever is expected of G6.many or of G8 alone would pass as any other."""
    for table in ("numeric", "systemic", "clock"):
        for entry in entries(backend, table):
            late = {code for code in entry["codes"] if code == codes.MANY or code.startswith("G8.")}
            assert not late or "chosen_s" in entry, entry["name"]
            assert late or "chosen_s" not in entry or entry["codes"] == ["crashed"], entry["name"]


@pytest.mark.parametrize(
    "expected", sorted(MUTANTS.rglob("expected*.toml")), ids=lambda each: f"{each.parent.name}/{each.stem}"
)
def test_every_right_implementation_is_audited(expected: Path) -> None:
    right = {entry["name"]: entry["dtype"] for entry in tomllib.loads(expected.read_text())["right"]}
    backend = "cuda" if expected.stem.endswith("cuda") else "cpu"
    audited: list[str] = []
    for path in sorted(expected.parent.glob(f"right_{backend}*.toml")):
        space = load_space(str(path))
        (dtype,) = {problem.facts()["DTYPE"] for problem in space.problems}
        kinds = tomllib.loads(path.read_text())["parameters"]["KIND"]
        assert all(dtype in right[kind] for kind in kinds)
        audited += kinds
    assert sorted(audited) == sorted(right)


def test_every_numeric_mutant_is_judged_on_cuda_too_or_said_to_be_unseen() -> None:
    """By name: in what dtype and mask, each backend's file says."""
    cpu, cuda = (
        {entry["name"] for table in ("numeric", "unseen") for entry in entries(backend, table)}
        for backend in ("cpu", "cuda")
    )
    assert cpu == cuda
