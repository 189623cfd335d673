"""What every kind of device must do: each mutant is rejected for the right reason, costs its own trial alone, and may
not cheat the clock; each right implementation passes; a stale library is found. Through real compilers and processes.

tests/mutants/expected.toml and expected_cuda.toml say what the gate must say of each. Those that the same checks reject
are of a kind. On the CPU one dtype and mask of every eighth systemic and twentieth numeric mutant is judged in the fast
tests, one of a kind, and one of each other kind in the slow ones. Of those that cheat the clock some are in each; of
the right implementations tests/gate/test_gate.py judges one more, under other seeds. On a GPU every systemic mutant is
judged in one setting, and of the other tables a part: `make proof PART=gate` judges all.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from autotuner.devices import DEVICES
from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.run.local import Deadlines, LocalExecutor
from tests.helpers import preload
from tests.helpers.judging import cpu_line, cuda_line
from tests.helpers.stale import STALE, stale
from tests.mutants.expectations import Backend, Expectation, expectations, family, meets

pytestmark = pytest.mark.timed

HUNG_AFTER_S = 2
"""What hangs is known to hang: no test on the CPU waits longer for it. Others have as long as they have in a sweep."""
STALE_OF: dict[Backend, str] = {"cpu": "prints", "cuda": "returns_status_7"}
"""The systemic mutant whose name another library has."""
Judges = Callable[[Backend, str], LocalExecutor]
each_backend = pytest.mark.parametrize("backend", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def settings(backend: Backend, table: str, every: int = 1, together: int | None = None) -> list[object]:
    """All settings of all entries. Of one in `every` entries, where it is the first of its kind, one is fast; of each
    other kind one is drawn. With `together` that number of
    all others are.

    benchmarks/gate/mutants.py judges all settings.
    """
    found: list[object] = []
    groups = expectations(backend, table)
    firsts = {group[0].codes: place for place, group in reversed([*enumerate(groups[::every])])}
    for index, group in enumerate(groups):
        codes, (place, rest) = group[0].codes, divmod(index, every)
        chosen = rest == 0 and (backend == "cuda" or firsts[codes] == place)
        fast = place % len(group) if chosen else None
        if together is not None:
            sampled = pytest.mark.sampled(together, backend)
        else:
            sampled = pytest.mark.sampled(0 if codes in firsts else 1, f"{backend} {codes}")
        for number, each in enumerate(group):
            marks = [pytest.mark.gpu] if backend == "cuda" else []
            marks += [] if number == fast else [pytest.mark.slow, sampled]
            found.append(pytest.param(each, id=f"{backend}-{each}", marks=marks))
    return found


@pytest.fixture(scope="module")
def judges(toolchain: CpuToolchain, request: pytest.FixtureRequest) -> Iterator[Judges]:
    """An executor for each family of mutants, and one for those that hang; those of a device share one zygote."""
    made: dict[tuple[Backend, str], LocalExecutor] = {}
    with ExitStack() as stack:

        def of(backend: Backend, table: str) -> LocalExecutor:
            if (backend, table) not in made:
                kernels = family("systemic" if table == "hung" else table)
                if backend == "cuda":
                    jobs = DEVICES["cuda"].jobs_per_process
                    line = cuda_line(request.getfixturevalue("device"), kernels)
                    new = LocalExecutor(line, preload.CUDA, overlap=True, jobs_per_process=jobs)
                else:
                    deadlines = Deadlines(check=HUNG_AFTER_S) if table == "hung" else Deadlines()
                    new = LocalExecutor(cpu_line(toolchain, kernels), preload=preload.CPU, deadlines=deadlines)
                made[backend, table] = stack.enter_context(closing(new))
            return made[backend, table]

        yield of


def require_met(judges: Judges, expectation: Expectation) -> None:
    hangs = expectation.backend == "cpu" and expectation.codes == ("hung",)
    outcome = expectation.judge(judges(expectation.backend, "hung" if hangs else expectation.table))
    assert meets(outcome, expectation.codes), outcome.fault
    assert outcome.fault is not None or (outcome.gate is not None and outcome.gate.passed)


@pytest.mark.parametrize(
    "expectation", [*settings("cpu", "numeric", every=20), *settings("cuda", "numeric", every=3, together=9)]
)
def test_a_numeric_mutant_is_rejected_for_the_right_reason(judges: Judges, expectation: Expectation) -> None:
    require_met(judges, expectation)


@pytest.mark.parametrize("expectation", [*settings("cpu", "systemic", every=8), *settings("cuda", "systemic")])
def test_a_systemic_mutant_costs_its_own_trial_only(judges: Judges, expectation: Expectation) -> None:
    require_met(judges, expectation)


@pytest.mark.parametrize(
    "expectation", [*settings("cpu", "clock", every=50, together=2), *settings("cuda", "clock", every=2, together=5)]
)
def test_a_mutant_that_cheats_the_clock_is_rejected(judges: Judges, expectation: Expectation) -> None:
    require_met(judges, expectation)


@each_backend
def test_a_right_variant_is_judged_as_usual_after_all_that(judges: Judges, backend: Backend) -> None:
    require_met(judges, next(group[0] for group in expectations(backend, "systemic") if group[0].name == "none"))


@pytest.mark.parametrize(
    "expectation", [*settings("cpu", "right", every=8, together=0), *settings("cuda", "right", every=2, together=4)]
)
def test_a_right_implementation_passes(judges: Judges, expectation: Expectation) -> None:
    require_met(judges, expectation)


@each_backend
@pytest.mark.parametrize("how", STALE)
def test_a_stale_library_under_a_new_name_is_found(judges: Judges, tmp_path: Path, how: str, backend: Backend) -> None:
    known = {group[0].name: group[0] for group in expectations(backend, "systemic")}
    outcome = stale(judges(backend, "systemic"), tmp_path, how, known[STALE_OF[backend]], known["none"])
    assert outcome.fault.code == "G0.identity"
    assert STALE[how][1] in outcome.fault.detail
    assert outcome.measurement is None
