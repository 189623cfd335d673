"""How a search begins that knows what another study has measured."""

from __future__ import annotations

import math

import numpy as np
import optuna
import pytest

from autotuner.search.settings import DEFAULT
from autotuner.values.known_points import KNOWN_POINTS, KnownPoints
from tests.helpers.searching import SPACE, ask, objective, study_of

TRUTH = np.array([objective(SPACE, point) for point in range(len(SPACE))])
RANK = TRUTH.argsort(kind="stable").argsort()
PLACES = np.random.default_rng(3).permutation(len(SPACE))[:100]
KNOWN = KnownPoints(
    study="another",
    points=tuple(PLACES.tolist()),
    objectives=tuple(math.log(3) + each if math.isfinite(each) else None for each in TRUTH[PLACES].tolist()),
)
IN_FLIGHT = 24


def warm(seed: int) -> optuna.Study:
    study, _ = study_of(seed)
    study.set_user_attr(KNOWN_POINTS, KNOWN.model_dump(mode="json"))
    return study


def asked(study: optuna.Study, count: int) -> list[int]:
    """The places of `count` points that are asked for while none has ended."""
    places = [SPACE.index_of(ask(study, SPACE)[1]) for _ in range(count)]
    assert None not in places
    return [place for place in places if place is not None]


def test_what_is_believed_the_best_is_judged_first() -> None:
    first = asked(warm(0), DEFAULT.starts_known)
    assert SPACE.default_index not in first
    assert max(RANK[first]) < len(SPACE) / 50


@pytest.mark.parametrize("seed", range(3))
def test_many_in_flight_begin_among_what_is_believed_to_be_good(seed: int) -> None:
    """And far from each other, where those of a search that knows nothing are anywhere."""
    study, _ = study_of(seed)
    places, anywhere = asked(warm(seed), IN_FLIGHT), asked(study, IN_FLIGHT)
    assert len({*places}) == IN_FLIGHT
    assert SPACE.default_index == places[DEFAULT.starts_known]
    assert np.median(RANK[places]) < len(SPACE) / 3 < np.median(RANK[anywhere])
    rows = SPACE.rows[places[DEFAULT.starts_known :]]
    differ = (rows[:, None] != rows).sum(axis=2) + len(SPACE.parameters) * np.eye(len(rows), dtype=np.int64)
    assert np.median(differ.min(axis=1)) >= 2
