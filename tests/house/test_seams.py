"""The seams of the house: no room but its own names an op, a dimension of one, or a kind of device."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import autotuner
from autotuner.devices import DEVICES
from autotuner.ops import OPS

PACKAGE = Path(autotuner.__file__ or "").parent
OLD_NAMES = PACKAGE / "values" / "first_documents.py"
"""Reads what earlier versions wrote, who knew one op."""
DIMENSIONS = sorted({name for op in OPS.values() for name in (*op.problem.DIMS, *op.problem.COMPILED)})
COMMON = {"dtype", "batch", "op"}
OPS_WORDS = re.compile(rf"\b({'|'.join([*OPS, 'attention', *({*DIMENSIONS} - COMMON)])})\b")


def modules(*without: str) -> list[Path]:
    """The modules of all rooms but these."""
    found = sorted(path for path in PACKAGE.rglob("*.py") if path != OLD_NAMES)
    return [path for path in found if path.relative_to(PACKAGE).parts[0] not in without]


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", modules("ops"), ids=named)
def test_no_room_but_ops_names_an_op_or_a_dimension_of_one(path: Path) -> None:
    assert [found.group() for found in OPS_WORDS.finditer(path.read_text())] == []


@pytest.mark.parametrize("path", modules("ops", "devices"), ids=named)
def test_no_room_but_devices_asks_for_a_kind_of_device(path: Path) -> None:
    """Comparisons, and the keys that `match` or a subscript asks for; a torch device may be named as a default."""
    kinds = {*DEVICES}
    asked: list[ast.expr] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            asked += [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            asked.append(node.slice)
        elif isinstance(node, ast.MatchValue):
            asked.append(node.value)
    inner = [each for node in asked for each in ast.walk(node) if isinstance(each, ast.Constant)]
    assert [each.lineno for each in inner if each.value in kinds] == []


OF_TORCH = r"torch\.(?:cuda|xpu|mps|backends|version\.)|is_cuda\b|cublas"
OF_THE_SYSTEM = r"\w+_VISIBLE_DEVICES|LD_LIBRARY_PATH|CUDA_\w+"
ONE_KINDS_OWN = re.compile(f"{OF_TORCH}|{OF_THE_SYSTEM}", re.IGNORECASE)
SETTINGS = PACKAGE / "values" / "config.py"
"""Reads the environment, for devices too."""


@pytest.mark.parametrize("path", modules("ops", "devices"), ids=named)
def test_no_room_but_devices_knows_what_is_one_kinds_own(path: Path) -> None:
    """`inference` asks for a kind by what torch calls a tensor's device; no other room looks at that."""
    text = path.read_text()
    assert path == SETTINGS or [found.group() for found in ONE_KINDS_OWN.finditer(text)] == []
    assert named(path).startswith("inference/") or ".device.type" not in text


def reads_of_the_environment(path: Path) -> list[int]:
    """The lines of a module that look a variable up."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.environ.get", "os.getenv"):
            found.append(node.lineno)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            found += [node.lineno] if ast.unparse(node.value) == "os.environ" else []
    return found


def test_no_module_but_one_reads_the_environment() -> None:
    assert [named(path) for path in modules() if reads_of_the_environment(path)] == [named(SETTINGS)]


def test_no_room_but_the_gate_and_ops_writes_the_code_of_a_check() -> None:
    """The others take it from where it stands once."""
    once = PACKAGE / "values" / "codes.py"
    writes = [named(path) for path in modules("gate", "ops") if re.search(r"""["']G\d\.\w+["' ]""", path.read_text())]
    assert writes == [named(once)]


@pytest.mark.parametrize("path", sorted((PACKAGE / "devices").rglob("*.py")), ids=named)
def test_a_device_holds_no_check_of_the_gate(path: Path) -> None:
    """It lends the gate what checks are done with; it runs none, and fails none."""
    names = {
        alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autotuner.gate")
        for alias in node.names
    }
    assert names & {"Check", "Failed", "Launching", "checks", "gate", "invariants"} == set()
