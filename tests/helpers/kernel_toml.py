"""A kernel.toml that is right, for tests of what may be wrong in one."""

from pathlib import Path

from tests.helpers.files import text

GOOD = text("kernel.toml")


def family(folder: Path, text: str = GOOD, name: str = "mine") -> Path:
    """A family's folder with that kernel.toml and an empty source."""
    (folder / name).mkdir(parents=True)
    (folder / name / "kernel.toml").write_text(text)
    (folder / name / "fast.cpp").touch()
    return folder / name
