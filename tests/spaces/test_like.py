"""Space files that begin from another one."""

from pathlib import Path

import pytest

from autotuner.spaces.space import SpaceFile
from autotuner.values.errors import SpaceError
from tests.helpers.limited import LIMITS, TEXT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.toml").write_text(TEXT)
    (tmp_path / "inner").mkdir()
    return tmp_path


def load(path: Path, text: str) -> SpaceFile:
    path.write_text(text)
    return SpaceFile.load(path, lambda family, device, near: LIMITS)


def test_what_a_file_does_not_say_is_the_other_ones(folder: Path) -> None:
    base = load(folder / "base.toml", TEXT)
    found = load(folder / "x.toml", 'title = "x"\nlike = "base"\ncache = "warm"\n[parameters]\nBLOCK = [16, 32]\n')
    assert (found.title, found.cache, found.name) == ("x", "warm", "x")
    assert list(found.parameters) == list(base.parameters)
    assert found.parameters["BLOCK"] == (16, 32)
    assert found.parameters["WIDTH"] == base.parameters["WIDTH"]
    assert (found.problems, found.branches[0].constraints) == (base.problems, base.branches[0].constraints)
    assert found.default == {"IMPL": "plain", "BLOCK": 16}


def test_a_default_is_taken_over_value_by_value_or_with_its_implementation_afresh(folder: Path) -> None:
    text = TEXT.replace('[default]\nIMPL = "plain"', '[default]\nIMPL = "split"\nBLOCK = 16\nPARTS = 2')
    (folder / "base.toml").write_text(text)
    found = load(folder / "x.toml", 'title = "x"\nlike = "base"\n[default]\nPARTS = 4\n')
    assert found.default == {"IMPL": "split", "BLOCK": 16, "WIDTH": 4, "PARTS": 4}
    found = load(folder / "x.toml", 'title = "x"\nlike = "base"\n[default]\nIMPL = "plain"\n')
    assert found.default == {"IMPL": "plain", "BLOCK": 8}


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ('"bas"', r"x\.toml: like: there is no .*/bas\.toml and no .*/bas\.toml"),
        ('"bas.toml"', r"x\.toml: like: there is no .*/bas\.toml$"),
        ("3", r"x\.toml: like: found 3, expected the name of a space or the path of its file"),
        ('"chained"', r"x\.toml: like: .*/chained\.toml is itself like 'base'; name a file that is like no other"),
        ('"broken"', r"broken\.toml: not TOML"),
    ],
)
def test_what_cannot_be_begun_from(folder: Path, like: str, message: str) -> None:
    (folder / "chained.toml").write_text('title = "c"\nlike = "base"\n')
    (folder / "broken.toml").write_text("[")
    with pytest.raises(SpaceError, match=message):
        load(folder / "x.toml", f'title = "x"\nlike = {like}\n')


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[default]\nIMPL = 3", "default.IMPL: found 3, expected one of"),
        ('title = "x"\n[parameters]\nBLOCK = []', "parameters.BLOCK: found no values"),
        ('title = "x"\n[parameters]\nIMPL = ["wide"]', "default.IMPL: found 'plain', expected one of 'wide'"),
    ],
)
def test_messages_name_both_files(folder: Path, more: str, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        load(folder / "x.toml", f'like = "base"\n{more}\n')
    assert str(caught.value).startswith(f"{folder}/x.toml (like {folder}/base.toml): {message}")
