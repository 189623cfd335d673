"""The seams of the house: no room but its own names an op, a dimension of one, or a kind of device.

A rule is one test, which tells all that break it: a test for each module would be a thousand, and cost more to hand out
than to run.
"""

import ast
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import autotuner
from autotuner.devices import DEVICES
from autotuner.ops import OPS

PACKAGE = Path(autotuner.__file__ or "").parent
DIMENSIONS = sorted({name for op in OPS.values() for name in (*op.problem.DIMS, *op.problem.COMPILED)})
KINDS = {*DEVICES}
COMMON = {"dtype", "batch", "bias", "op"}
"""Words that other rooms use as well: of statistics, what an estimate is off by is a bias too."""
OPS_WORDS = re.compile(rf"\b({'|'.join([*OPS, 'attention', *({*DIMENSIONS} - COMMON)])})\b")


def modules(*without: str) -> list[Path]:
    """The modules of all rooms but these."""
    found = sorted(path for path in PACKAGE.rglob("*.py"))
    return [path for path in found if path.relative_to(PACKAGE).parts[0] not in without]


def modules_here(*without: str) -> list[Path]:
    """The same without what packages have a copy of: there is no room of devices there."""
    return [path for path in modules(*without) if not named(path).startswith("serve/runtime/")]


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """What a module says, node by node."""
    return tuple(ast.walk(ast.parse(path.read_text())))


def broken(paths: list[Path], rule: Callable[[Path], Iterable[object]]) -> dict[str, list[object]]:
    """What the rule finds in each of the modules that break it. There are modules at all."""
    assert paths
    found = {named(path): [*rule(path)] for path in paths}
    return {name: faults for name, faults in found.items() if faults}


def test_no_room_but_ops_names_an_op_or_a_dimension_of_one() -> None:
    assert broken(modules("ops"), lambda path: OPS_WORDS.findall(path.read_text())) == {}


def lines_that_ask_for_a_kind(path: Path) -> list[int]:
    """Those of comparisons, and of the keys that `match` or a subscript asks for."""
    asked: list[ast.expr] = []
    for node in nodes_of(path):
        if isinstance(node, ast.Compare):
            asked += [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            asked.append(node.slice)
        elif isinstance(node, ast.MatchValue):
            asked.append(node.value)
    inner = [each for node in asked for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return [each.lineno for each in inner if each.value in KINDS]


def test_no_room_but_devices_asks_for_a_kind_of_device() -> None:
    """A torch device may be named as a default."""
    assert broken(modules_here("ops", "devices"), lines_that_ask_for_a_kind) == {}


OF_TORCH = r"torch\.(?:cuda|xpu|mps|backends|version\.)|is_cuda\b|cublas"
OF_THE_SYSTEM = r"\w+_VISIBLE_DEVICES|LD_LIBRARY_PATH|CUDA_\w+"
ONE_KINDS_OWN = re.compile(f"{OF_TORCH}|{OF_THE_SYSTEM}", re.IGNORECASE)
SETTINGS = PACKAGE / "values" / "config.py"
"""Reads the environment, for devices too."""


def words_of_one_kind(path: Path) -> list[str]:
    """`record` asks for a kind by what torch calls a tensor's device; no other module looks at that."""
    asks = [] if named(path) == "serve/record.py" else re.findall(r"\.device\.type", path.read_text())
    return asks + ([] if path == SETTINGS else ONE_KINDS_OWN.findall(path.read_text()))


def test_no_room_but_devices_knows_what_is_one_kinds_own() -> None:
    assert broken(modules_here("ops", "devices"), words_of_one_kind) == {}


def reads_of_the_environment(path: Path) -> list[int]:
    """The lines of a module that look a variable up."""
    found = []
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.environ.get", "os.getenv"):
            found.append(node.lineno)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            found += [node.lineno] if ast.unparse(node.value) == "os.environ" else []
    return found


def test_no_module_but_one_reads_the_environment() -> None:
    assert [*broken(modules(), reads_of_the_environment)] == [named(SETTINGS)]


def test_no_room_but_the_gate_and_ops_writes_the_code_of_a_check() -> None:
    """The others take it from where it stands once."""
    once = PACKAGE / "values" / "codes.py"
    writes = broken(modules("gate", "ops"), lambda path: re.findall(r"""["']G\d\.\w+["' ]""", path.read_text()))
    assert [*writes] == [named(once)]


def parts_of_the_gate(path: Path) -> set[str]:
    """What a module imports that makes or runs a check."""
    names = {
        alias.name
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autotuner.gate")
        for alias in node.names
    }
    return names & {"Check", "Failed", "Launching", "checks", "gate", "invariants"}


def test_a_device_holds_no_check_of_the_gate() -> None:
    """It lends the gate what checks are done with; it runs none, and fails none."""
    assert broken(sorted((PACKAGE / "devices").rglob("*.py")), parts_of_the_gate) == {}
