"""A place to build in, for the tests of this folder."""

from pathlib import Path

import pytest

from tests.helpers.workshop import Workshop, set_up


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the compiler of one workshop after another."""
    return tmp_path_factory.mktemp("bench") / "cxx"


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: Path) -> Workshop:
    return set_up(tmp_path, monkeypatch, compiler)
