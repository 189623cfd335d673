"""The gate against mutants and right implementations, through the real compiler and real processes.

tests/mutants/expected.toml says what the gate must say of each. One dtype and mask of every mutant is judged in the
fast tests, the others in the slow ones.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from autotuner.backends.settings import CpuSettings, make_cpu_backend
from autotuner.executors.local import Deadlines, LocalExecutor
from autotuner.kernel import Kernel
from autotuner.outcome import Outcome
from autotuner.problem import Problem
from autotuner.terms import Terms
from autotuner.toolchain import Toolchain
from autotuner.variant import Variant
from tests.conformance.judging import judged

MUTANTS = Path(__file__).parent / "mutants"
EXPECTED = tomllib.loads((MUTANTS / "expected.toml").read_text())
NEVER_BEST = -1e9


class Expectation(NamedTuple):
    """One implementation in one dtype, mask and head dim, and the codes of first failure that are acceptable."""

    table: str
    name: str
    dtype: str
    causal: bool
    head_dim: int
    codes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}-{'causal' if self.causal else 'full'}-{self.head_dim}"


def expectations(table: str) -> list[list[Expectation]]:
    """For each entry of a table all its settings."""
    return [
        [
            Expectation(table, entry["name"], dtype, causal, head_dim, tuple(entry.get("codes", ("pass",))))
            for dtype in entry["dtype"]
            for causal in entry["causal"]
            for head_dim in entry.get("head_dim", [64])
        ]
        for entry in EXPECTED[table]
    ]


def settings(table: str) -> list[object]:
    """The first setting of each entry is fast, the others are slow; which one is first goes round."""
    chosen: list[object] = []
    for index, group in enumerate(expectations(table)):
        first = index % len(group)
        for place, expectation in enumerate(group):
            marks = [] if place == first else [pytest.mark.slow]
            chosen.append(pytest.param(expectation, id=str(expectation), marks=marks))
    return chosen


@pytest.fixture(scope="module")
def judges(toolchain: Toolchain) -> Iterator[dict[str, LocalExecutor]]:
    """An executor for each family of mutants; they share one zygote."""
    made = {}
    for table in ("numeric", "systemic", "right"):
        kernel = Kernel.load(MUTANTS / table)
        factory = partial(make_cpu_backend, CpuSettings(toolchain=toolchain, kernel=kernel, cache_bytes=1 << 20))
        deadlines = Deadlines(check=4 if table == "systemic" else 30)
        made[table] = LocalExecutor(factory, preload=("autotuner.backends.cpu",), deadlines=deadlines)
    yield made
    for executor in made.values():
        executor.close()


def judge(judges: dict[str, LocalExecutor], expectation: Expectation) -> Outcome:
    """The outcome of a job on a small problem; the soak runs only where it is what must find the mutant."""
    table = expectation.table
    parameter = "KIND" if table == "right" else "MUTANT"
    kernel = Kernel.load(MUTANTS / table)
    variant = Variant(
        family=kernel.document.family,
        backend="cpu",
        impl=next(iter(kernel.document.cpu)),
        parameters={parameter: expectation.name},
    )
    problem = Problem(
        batch=1,
        heads=2,
        seq_q=64,
        seq_k=64,
        head_dim=expectation.head_dim,
        dtype=expectation.dtype,
        causal=expectation.causal,
    )
    terms = Terms(
        problems=(problem,),
        cache="warm",
        seeds=(11, 22, 33, 44),
        baselines=("flash",),
        min_blocks=2,
        max_blocks=2,
    )
    soaked = "G6.soak" in expectation.codes
    return judged(judges[table], variant, terms, best=None if soaked else NEVER_BEST)


def said(outcome: Outcome) -> set[str]:
    """Code and verdict of the fault; "pass" without one."""
    return {outcome.fault.code, str(outcome.verdict)} if outcome.fault else {"pass"}


@pytest.mark.parametrize("expectation", settings("numeric"))
def test_a_numeric_mutant_is_rejected_for_the_right_reason(
    judges: dict[str, LocalExecutor], expectation: Expectation
) -> None:
    outcome = judge(judges, expectation)
    assert said(outcome) & set(expectation.codes), outcome.fault
    assert (outcome.measurement is None) == ("pass" not in expectation.codes)


@pytest.mark.parametrize("expectation", settings("systemic"))
def test_a_systemic_mutant_costs_its_own_trial_only(judges: dict[str, LocalExecutor], expectation: Expectation) -> None:
    outcome = judge(judges, expectation)
    assert said(outcome) & set(expectation.codes), outcome.fault


@pytest.mark.parametrize("expectation", settings("right"))
def test_a_right_implementation_passes(judges: dict[str, LocalExecutor], expectation: Expectation) -> None:
    outcome = judge(judges, expectation)
    assert outcome.fault is None, outcome.fault
    assert outcome.gate is not None
    assert outcome.gate.passed
    assert outcome.measurement is not None


def test_the_lists_are_long_enough() -> None:
    assert len({entry["name"] for entry in EXPECTED["numeric"]}) > 40
    assert len({entry["name"] for entry in EXPECTED["systemic"]}) > 12
    assert len(EXPECTED["right"]) >= 8
