"""The store of tests of tuning: one without a study."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.store import Store


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(str(path)) as opened:
        yield opened
