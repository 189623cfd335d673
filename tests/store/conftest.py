"""A database server for the tests of the store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.store import Store
from tests.helpers import postgresql


@pytest.fixture
def url(server: postgresql.Server) -> str:
    """An empty database."""
    return server.url()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store may be, on either engine."""
    if request.param == "sqlite":
        return str(tmp_path / "studies.db")
    found: str = request.getfixturevalue("url")
    return found


@pytest.fixture
def opened(place: str) -> Iterator[Store]:
    """A store without studies there."""
    with Store.open(place) as found:
        yield found
