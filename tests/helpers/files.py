"""The files in tests/files: programs in C and documents in TOML that tests build, read and damage."""

from pathlib import Path

FILES = Path(__file__).parent.parent / "files"


def text(name: str) -> str:
    """What a file says."""
    return (FILES / name).read_text()
