"""An export read from its file, as a function."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from autotuner.inference.loaded import Explanation as Explanation
from autotuner.inference.loaded import Loaded as Loaded
from autotuner.inference.loaded import NotServed as NotServed
from autotuner.inference.package import load_package
from autotuner.inference.torch_op import registered
from autotuner.inference.variants import ready
from autotuner.ops import OPS
from autotuner.values.errors import InputError
from autotuner.values.files import read_regular, why
from autotuner.values.table import Table, TableFile
from autotuner.values.validation import explanation, no_such
from autotuner.values.variant import digest_of

LARGEST_BYTES = 64 << 20
"""Of a file that is loaded, at most."""


def load(
    path: str | Path,
    *,
    build: bool = False,
    strict: bool = False,
    gradients: Literal["refuse", "torch"] = "refuse",
    copies: bool = False,
) -> Loaded:
    """An export as a function that takes what torch's function takes: a file with a table, or a package's folder.

    Variants come from the cache of builds; with `build` those that are not there are built now, never later. Where no
    variant is proven and confirmed for a call, torch serves it; with `strict` NotServed is raised instead. A call that
    needs a gradient is refused, or with `gradients="torch"` served by torch. With `copies`, strided tensors that no
    variant takes as they lie are copied to dense ones, where a variant serves these; the result is dense then.

    A package has its variants in it: nothing is looked for or built.

    Raises InputError for a file that cannot be read, is damaged, has no table or one of an op that is not installed,
    and where a variant is not built.
    """
    if gradients not in ("refuse", "torch"):
        raise InputError(f'gradients is {gradients!r}, expected "refuse" or "torch"')
    file = Path(path)
    if file.is_dir():
        found: Loaded = load_package(file, strict, gradients, copies)  # it answers as one does, but has no `table`
        return found
    table, digest = _read(file)
    variants = ready(table, file.absolute().parent, build)
    loaded = Loaded(table, variants, strict, gradients, copies)
    settings = [digest, strict, gradients, copies]
    loaded.op = registered(loaded, hashlib.sha256(repr(settings).encode()).hexdigest()[:12])
    loaded.made_by = _again, (file.absolute(), build, strict, gradients, copies)
    return loaded


def _again(file: Path, build: bool, strict: bool, gradients: Literal["refuse", "torch"], copies: bool) -> Loaded:
    return load(file, build=build, strict=strict, gradients=gradients, copies=copies)


class _Named(BaseModel):
    op: str


class _Head(BaseModel):
    """What is asked first of an export: only with its op can the rest be read."""

    table: _Named


def _require_op(file: Path, text: bytes) -> None:
    """Raises InputError where the table's op is not installed. What is no export is not judged here."""
    with suppress(ValidationError):
        op = _Head.model_validate_json(text).table.op
        if op not in OPS:
            raise InputError(f"{file}: {no_such('op', op, OPS)}; install the package that has it")


def _is_without_table(text: bytes) -> bool:
    """Whether it is an export all the same."""
    with suppress(ValueError):
        document = json.loads(text)
        return isinstance(document, dict) and document.get("table", {}) is None
    return False


def _read(file: Path) -> tuple[Table, str]:
    """The table of an export, and its digest. Raises InputError, one line."""
    try:
        text = read_regular(file, LARGEST_BYTES)
        _require_op(file, text)
        found = TableFile.model_validate_json(text)
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {why(error)}") from None
    except ValidationError as error:
        if _is_without_table(text):
            raise InputError(
                f"{file}: it has no table, since there were no finals: run `autotuner finals`, then `autotuner export`"
            ) from None
        said = " ".join(explanation(error, TableFile).split())
        raise InputError(f"{file}: no export with a table: {said}; write one with `autotuner export`") from None
    # A digest is of what stands there: a table of today has fields that an older one had not.
    document = json.loads(text)
    said = document.pop("digest", None)
    if digest_of(document["table"]) != found.table_digest:
        raise InputError(f"{file}: damaged: its table is not the one of its digest; export it again")
    if said is not None and digest_of(document) != said:
        raise InputError(f"{file}: damaged: its proof is not the one of its digest; export it again")
    return found.table, found.table_digest
