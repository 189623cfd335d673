"""Tables at the width of a terminal: shared parameters stand once, rows show differences, signs beside colours."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from autotuner.store import Store, queries
from autotuner.tuning.finals import standings
from autotuner.values.ratio import Speedup
from autotuner.values.variant import Value, Variant
from autotuner.values.verdict import Verdict
from autotuner.views.finals_table import finals_table
from autotuner.views.leaderboard import leaderboard as leaderboard_table
from autotuner.views.points import compared
from autotuner.views.terminal import printed
from autotuner.views.trials_table import trials_of
from tests.helpers.recorded import study_record
from tests.helpers.stores import sample_store

NAMES = [f"PARAMETER_{place}" for place in range(14)]


def shown(view: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_what_all_share_is_said_once_and_of_the_others_what_differs() -> None:
    found = compared(
        [
            {"IMPL": "simd", "TILE": 8, "MODE": "a"},
            {"IMPL": "simd", "TILE": 16, "MODE": "a"},
            {"IMPL": "simd", "TILE": 8},
            {"IMPL": "simd", "TILE": 8, "MODE": "a", "WIDTH": 2},
            {"IMPL": "simd", "TILE": 8, "MODE": "a"},
        ]
    )
    assert found.shared == "IMPL=simd"
    assert found.rows == ("TILE=8 MODE=a", "TILE=16", "no MODE", "WIDTH=2", "as the first")
    assert compared([{"IMPL": "simd"}]) == ("", ("IMPL=simd",))


def entries(count: int = 10) -> list[standings.Entry]:
    """Neighbours with fourteen parameters each."""

    def entry(rank: int) -> standings.Entry:
        parameters: dict[str, Value] = {}
        parameters |= dict.fromkeys(NAMES, 128) | {NAMES[rank % 14]: rank, NAMES[0]: rank}
        return standings.Entry(
            rank=rank,
            number=100 + rank,
            variant=Variant(family="sdpa", backend="cpu", impl="simd", parameters=parameters),
            verdict=Verdict.MEASURED,
            median_us=12345.6,
            baseline_us=23456.7,
            speedup=Speedup(low=1.8, mid=1.9, high=2.0),
            censored=rank == 3,
            tied=rank < 3,
        )

    return [entry(rank) for rank in range(1, count + 1)]


@pytest.mark.parametrize("width", [80, 120])
def test_ten_rows_of_a_leaderboard_fit_a_screen(width: int) -> None:
    lines = shown(printed(leaderboard_table(entries(), study_record())), width)
    assert max(map(len, lines)) <= width
    assert len(lines) < 45
    text = " ".join(" ".join(lines).split())
    assert text.count("IMPL=simd") == 1
    assert text.count(f"{NAMES[13]}=128") == 1
    assert ("12,345.6" in text, "SDPA us" in text) == (True, width == 120)
    assert "~1.900x" in text
    assert "= ties for the lead." in text


def test_figures_over_several_problems_are_labelled() -> None:
    several = study_record().model_copy(update={"problems": study_record().problems * 3})
    worst = several.model_copy(update={"space_document": '{"objective": "max"}'})
    text = [" ".join(" ".join(shown(printed(leaderboard_table(entries(), of)), 80)).split()) for of in (several, worst)]
    assert "geometric means over 3 problems" in text[0]
    assert "those of the worst of 3 problems" in text[1]
    assert "problems" not in " ".join(shown(printed(leaderboard_table(entries(), study_record())), 80))


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
