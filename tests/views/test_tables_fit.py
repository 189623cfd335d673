"""Tables at the width of a terminal: shared parameters stand once, rows show differences, signs beside colours."""

import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from autotuner.views.finals_table import finals_table
from autotuner.views.terminal import printed
from autotuner.views.trials_table import trials_of
from tests.helpers.stores import sample_store


def shown(view: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_every_table_of_a_study_fits(path: Path, width: int) -> None:
    name = sample_store(path)
    with Store.open(str(path)) as store:
        of, finals = queries.study(store, name), standings.finals(store, name)
        assert finals is not None
        trials = shown(printed(trials_of(store, name)), width)
        tables = [*trials, *shown(printed(finals_table(finals, of.problems[0])), width)]
    assert max(map(len, tables)) <= width
    (revoked,) = (line for line in trials if line.split()[:1] == ["5"])
    (rejected,) = (line for line in trials if line.split()[:1] == ["1"])
    assert "x revoked" in revoked
    assert "x G2.T1" in rejected
    assert "x rejected, or revoked since." in " ".join(" ".join(trials).split())
