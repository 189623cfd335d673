"""A database server for the tests of sweeps."""

from collections.abc import Iterator

import pytest

from tests.helpers import postgresql


@pytest.fixture(scope="session")
def server() -> Iterator[postgresql.Server]:
    """A PostgreSQL server; where none is installed the test is skipped."""
    with postgresql.running() as found:
        yield found
