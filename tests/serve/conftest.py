"""The variant that most exports here have."""

import pytest

from autotuner.values.outcome import Artifact
from tests.helpers.tables import built, problem


@pytest.fixture(scope="session")
def artifact() -> Artifact:
    return built(problem(32))
