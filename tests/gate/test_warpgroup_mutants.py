"""The mutants of IMPL = wgmma: each edit still fits the sources, and the emulator sees what it can see."""

import re
from pathlib import Path

import pytest

from autotuner.gate.cases import Case
from tests.emulator.emulator import EmulationError, judged
from tests.helpers import needs
from tests.mutants.warpgroups import Mutant, mutants

SEEDS = 6


def seen(mutant: Mutant, folder: Path) -> str:
    """What the emulator says of it: its complaint, "tolerance" or "pass"."""
    on = mutant.problem.problem()
    case = Case(name=str(on), problem=on, distribution=mutant.problem.distribution)
    try:
        errors = judged(mutant.write(folder) / "wgmma.cu", mutant.parameters, case, SEEDS)
    except EmulationError as error:
        return str(error)
    return "pass" if errors.failed_rule is None else "tolerance"


def test_there_are_enough_of_them_and_each_fits_the_sources(tmp_path: Path) -> None:
    found = mutants()
    assert len(found) >= 20
    assert len({mutant.name for mutant in found}) == len(found)
    for mutant in found:
        mutant.write(tmp_path)
        assert (mutant.emulator is None) == (mutant.why is not None), mutant.name


@pytest.mark.slow
@pytest.mark.sampled(2)
@needs.emulator
@pytest.mark.parametrize(
    "mutant", [each for each in mutants() if each.emulator is not None], ids=lambda each: each.name
)
def test_the_emulator_sees_it(mutant: Mutant, tmp_path: Path) -> None:
    assert mutant.emulator is not None
    said = seen(mutant, tmp_path)
    assert re.search(mutant.emulator, said), f"{mutant.what}: {said}"
