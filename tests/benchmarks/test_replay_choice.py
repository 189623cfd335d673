"""The choice of the sampler's constants by the spaces that are not left out (benchmarks/search/replay_choice.py)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from autotuner.search.evolution import EvolutionarySampler
from autotuner.search.samplers import SAMPLERS
from autotuner.search.settings import DEFAULT, SearchSettings
from autotuner.store import Store
from autotuner.values.errors import InputError
from benchmarks.search import choice_pages, replay_choice
from benchmarks.search.replay_choice import (
    AS_IT_IS,
    CANDIDATES,
    Case,
    Sampled,
    Task,
    best,
    choice,
    left_out,
    registered,
)
from benchmarks.search.replay_run import replay
from benchmarks.search.replay_score import AXES, Yardstick
from benchmarks.search.replay_spaces import Recorded, read, write_t4
from tests.helpers.searching import SPACE

ROOT = Path(__file__).parent.parent.parent
MADE_UP = ROOT / "tests" / "data" / "replay" / "made_up.json"


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return read(MADE_UP)


def scores(table: dict[str, tuple[float, ...]], spaces: tuple[str, ...]) -> dict[str, dict[str, Sampled]]:
    """By candidate and space, with resamples around each score; the same deviations for all."""
    around = np.linspace(-0.1, 0.1, 101)
    return {
        name: {space: Sampled(p, p + around) for space, p in zip(spaces, row, strict=True)}
        for name, row in table.items()
    }


# Choosing -----------------------------------------------------------------------------------------------------------


def test_what_is_left_out_has_no_say() -> None:
    """`special` is the best by far on conv alone, and by that in the mean; `steady` is better everywhere else."""
    made = scores(
        {AS_IT_IS: (0.5, 0.5, 0.5), "special": (0.99, 0.4, 0.4), "steady": (0.4, 0.6, 0.55)}, ("conv", "g", "p")
    )
    by_space = {row["space"]: row for row in left_out(made)}
    assert by_space["conv"]["chosen"] == "steady"
    assert by_space["conv"]["chosen_p"] == 0.4
    assert by_space["conv"]["difference"]["p"] == pytest.approx(-0.1)
    assert (by_space["conv"]["best_in_hindsight"], by_space["conv"]["best_p"]) == ("special", 0.99)
    assert by_space["g"]["chosen"] == by_space["p"]["chosen"] == "special"
    whole = choice(made)
    assert whole["chosen"] == "special"
    assert whole["left_out_mean"]["p"] == pytest.approx((0.4 + 0.4 + 0.4) / 3)
    assert whole["left_out_mean"]["difference"]["p"] == pytest.approx(-0.1)
    assert [row["candidate"] for row in whole["overall"]] == ["special", "steady", AS_IT_IS]


def test_spaces_of_one_operation_are_left_out_together() -> None:
    made = scores({AS_IT_IS: (0.5, 0.5, 0.5), "other": (0.9, 0.9, 0.4)}, ("sdpa_small", "sdpa_long", "gemm__A4000"))
    chosen = {row["space"]: row["chosen"] for row in left_out(made)}
    assert chosen == {"sdpa_small": AS_IT_IS, "sdpa_long": AS_IT_IS, "gemm__A4000": "other"}


@pytest.mark.parametrize(
    ("spaces", "complaint"), [(["sdpa_small", "sdpa_long"], "all spaces are of sdpa"), (["a", "b", "a"], "of one name")]
)
def test_too_few_spaces_are_refused(spaces: list[str], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        replay_choice.check(spaces)


def test_of_equals_the_sampler_as_it_is_stays() -> None:
    assert best(scores({AS_IT_IS: (0.5,), "other": (0.5,)}, ("a",)), ["a"]) == AS_IT_IS


def test_a_difference_is_paired() -> None:
    """Seeds that are good for both do not widen it."""
    noise = np.random.default_rng(0).normal(size=1000)
    difference = Sampled(0.6, 0.6 + noise).less(Sampled(0.5, 0.5 + noise))
    assert (difference["low"], difference["high"]) == pytest.approx((0.1, 0.1))


# Settings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CANDIDATES if name != AS_IT_IS])
def test_a_candidate_differs_from_the_default_in_what_it_says(name: str) -> None:
    said = replay_choice.settings([name])[name]
    assert said
    assert all(each["now"] != each["tried"] for each in said.values())
    assert CANDIDATES[name] == DEFAULT.model_copy(update={key: each["tried"] for key, each in said.items()})


def test_a_candidate_is_a_sampler_in_its_block_alone() -> None:
    with registered(CANDIDATES["8 starts"]) as name:
        made = SAMPLERS[name](SPACE, 0)
        assert isinstance(made, EvolutionarySampler)
        assert made.settings.starts == 8
    assert name not in SAMPLERS


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValidationError, match="start"):
        SearchSettings.model_validate({"start": 50})


# Searches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_flight", [1, 4])
def test_a_search_that_ends_at_the_optimum_has_the_score_of_the_whole(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_flight: int
) -> None:
    yardstick = Yardstick(recorded.ms, recorded.cost)
    monkeypatch.setattr(replay_choice, "SPACES", [(recorded, yardstick)])
    short = replay_choice.run(Task(Case(AS_IT_IS, 0, in_flight), range(2), charge=False, until=time.monotonic() + 600))
    with closing(Store.open(str(tmp_path / "studies.db"))) as store:
        whole = [replay(recorded, yardstick, "evolution", seed, store, in_flight, charge=False) for seed in range(2)]
    assert sum(map(len, short)) < sum(map(len, whole))
    for axis in AXES:
        assert yardstick.score(short, axis)[0] == yardstick.score(whole, axis)[0]


def test_no_search_begins_when_time_is_up(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_choice, "SPACES", [(recorded, Yardstick(recorded.ms, recorded.cost))])
    assert replay_choice.run(Task(Case(AS_IT_IS, 0, 1), range(2), charge=False, until=time.monotonic())) == []


@pytest.mark.slow
def test_the_command_writes_what_the_page_shows(recorded: Recorded, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one.json", "two.json")]
    for path in paths:
        write_t4(recorded, path)

    def command(*more: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", replay_choice.__name__, *map(str, paths), "--seeds", "2", "--in-flight", "1"]
        return subprocess.run([*line, *more], cwd=ROOT, capture_output=True, text=True, check=False)

    result = tmp_path / "choice.json"
    done = command("--candidate", "starts anywhere", "--free-sampler", "--json", str(result))
    assert done.returncode == 0, done.stderr
    document = json.loads(result.read_text())
    assert list(document["candidates"]) == [AS_IT_IS, "starts anywhere"]
    assert document["candidates"]["starts anywhere"] == {
        "start_candidates": {"now": DEFAULT.start_candidates, "tried": 1}
    }
    assert [row["space"] for row in document["choices"][0]["left_out"]] == ["one", "two"]
    assert len(document["rows"]) == 4
    assert document["rows"][0]["time"]["p"] != document["rows"][2]["time"]["p"]  # the change had an effect
    part = choice_pages.brief(document)
    assert f"| {document['choices'][0]['left_out_mean']['p']:.3f} |" in part
    late = command("--minutes", "0")
    assert late.returncode == 1
    assert "give more --minutes" in late.stderr
