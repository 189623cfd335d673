"""A place to build in, for the tests of this folder."""

from pathlib import Path

import pytest

from tests.helpers.workshop import Workshop, set_up


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return set_up(tmp_path, monkeypatch)
