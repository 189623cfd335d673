"""The options and arguments that several commands share, and the checks of what they were given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotuner.values import config
from autotuner.values.errors import InputError

if TYPE_CHECKING:
    from autotuner.store import Store

SpaceName = Annotated[str, typer.Argument(help="a space file, or the name of one that is shipped")]
AnySpaceName = Annotated[str | None, typer.Argument(help="a space file or name; this machine's default if left out")]
StudyName = Annotated[str | None, typer.Argument(help="a study, by name or unique prefix; the latest when left out")]
StoreOption = Annotated[str | None, typer.Option("--store", help=f"path or URL of the study store [${config.STORE}]")]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="threads both sides may use, instead of the file's")]
ArchOption = Annotated[
    str | None, typer.Option("--arch", help="GPU architecture, such as sm_89, instead of that of the GPU here")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]


def open_store(store: str | None) -> Store:
    """The store that is there. Raises StoreError when there is none: a question makes none."""
    from autotuner.store import Store

    return Store.open(store or config.store_url(), create=False)


def check_writable(path: Path, option: str = "--out") -> None:
    """Refuses, before any work, a file that could not be written after it. Raises InputError."""
    folder = path.resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{path}: its folder {folder} does not exist or cannot be written; choose another {option}")
