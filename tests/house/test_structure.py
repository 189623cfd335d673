"""The structure of the house: what must stay true as it grows."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import autotuner
from autotuner.devices.cpu.machine import cpu_facts
from autotuner.devices.cuda.architecture import architecture
from autotuner.ops import OPS
from autotuner.spaces.space import Space
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values import config, errors
from autotuner.views.causes import meanings
from benchmarks import pages, rooms_page
from benchmarks.cli import commands_page
from tests import lines

ROOT = Path(__file__).parent.parent.parent
SPACES = sorted(config.spaces_dir().glob("*.toml"))
"""Of the CUDA spaces that are made for one."""
LEAST = {"sdpa_fp8_cuda": "sm_89"}
"""The least architecture of the CUDA spaces that are not for sm_80."""


def test_every_command_is_in_its_page_and_there_are_few() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    names = [words for words, _ in commands_page.commands()]
    assert [words for words in names if f"\n## {words}\n" not in page] == []
    assert len({words.split()[0] for words in names}) <= 24  # twenty, what came with studies that travel, and `profile`
    helps = [commands_page.help_of(words, command) for words, command in commands_page.commands()]
    assert max(len(line) for text in helps for line in text.splitlines()) <= 80


def test_every_page_is_in_the_list_of_pages_and_the_readme_is_short() -> None:
    docs = ROOT / "docs"
    pages = [path.relative_to(docs) for name in ("", "method", "reference") for path in (docs / name).glob("*.md")]
    start = (docs / "start.md").read_text()
    assert [str(page) for page in pages if f"({page})" not in start and page.name != "start.md"] == []
    assert len([page for page in pages if page.parent == Path()]) == 6
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90


CODE = re.compile(r"(?:G\d|gate|build|measure|process|store)\.[a-zA-Z_0-9]+")
OURS = {"gate.incomplete", "process.lost"}
"""They say nothing about the variant."""


def codes_in_the_package() -> set[str]:
    """Every code that the package gives a fault."""
    package = Path(autotuner.__file__ or "").parent
    sources = (path for path in package.rglob("*.py"))
    return {code for path in sources for code in re.findall(rf'"({CODE.pattern})"', path.read_text())}


def test_every_code_of_the_package_has_a_meaning() -> None:
    known = {code for op in OPS.values() for code in meanings(op)}
    assert sorted(codes_in_the_package() - OURS - known) == []


def test_every_code_is_in_the_docs_and_every_code_there_exists() -> None:
    """The docs give the rules T0 to T3 of a level as a range."""
    known = {code for op in OPS.values() for code in meanings(op)}
    text = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    named = set(re.findall(rf"`({CODE.pattern})`", text))
    ranges = {code for code in known if code.endswith((".T1", ".T2"))}
    assert sorted(known - named - ranges) == []
    assert sorted(code for code in named - known if code.startswith("G")) == []


def test_the_driver_does_not_import_torch() -> None:
    modules = "autotuner.cli.app, autotuner.tuning.run.driver, autotuner.tuning.workbench, autotuner.views.progress"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_table_of_rooms_says_the_layers_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["type"] == "layers")
    held = {(number, room) for number, layer in enumerate(layers, 1) for room in re.findall(r"autotuner\.(\w+)", layer)}
    page = (ROOT / "docs" / "reference" / "architecture.md").read_text()
    said = {(int(number), room) for number, room in re.findall(r"^\| (\d+) \| `(\w+)(?:\.py)?` \|", page, re.MULTILINE)}
    assert held == said
    assert len(layers) == 10
    package = Path(autotuner.__file__ or "").parent
    assert {room for _, room in said} == {path.stem for path in package.glob("[a-z]*") if path.suffix in ("", ".py")}


def test_every_error_has_one_root_and_is_in_the_drawing() -> None:
    drawing = errors.__doc__ or ""
    found = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, Exception)]
    assert all(issubclass(error, errors.AutotunerError) for error in found)
    assert [error.__name__ for error in found if error.__name__ not in drawing] == []


def modules() -> list[Path]:
    """Every module of the package, to be read, not imported: some need an extra."""
    return sorted(Path(autotuner.__file__ or "").parent.rglob("*.py"))


def test_every_module_says_what_it_is_and_no_two_classes_have_one_name() -> None:
    trees = {str(path): ast.parse(path.read_text()) for path in modules()}
    assert len(trees) > 250
    assert [path for path, tree in trees.items() if not (ast.get_docstring(tree) or "").strip()] == []
    classes = Counter(each.name for tree in trees.values() for each in ast.walk(tree) if isinstance(each, ast.ClassDef))
    assert [name for name, count in classes.items() if count > 1] == []


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_every_space_loads_and_its_kernel_takes_its_points(path: Path) -> None:
    file = load_space(str(path))
    on_a_gpu = file.backend == "cuda"
    if on_a_gpu and config.nvcc() is None:
        pytest.skip("needs nvcc")
    workbench = Workbench(file, "sm_90" if on_a_gpu else None)
    assert len(workbench.space) > 0
    assert workbench.space.point(workbench.space.default_index) == file.default


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_the_default_point_is_valid_on_a_plain_machine(path: Path) -> None:
    """One thread, 16-byte vectors, no special instructions; the least architecture a space is for, no libraries."""
    file = load_space(str(path))
    if file.backend == "cuda":
        plain = {**architecture(LEAST.get(path.stem, "sm_80")).facts(), "CUBLAS": False, "TRITON": False}
    else:
        plain = {**cpu_facts(1), "CPU_VECTOR_BYTES": 16, "CPU_BF16_DOT": False, "CPU_FMA": False}
    assert Space.enumerate(file, plain).default_index >= 0


@pytest.mark.slow
def test_the_pages_say_what_the_results_say() -> None:
    done = subprocess.run([sys.executable, "-m", pages.__name__, "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# Rooms and lines ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_arrow_of_the_diagram_goes_down_or_along_a_layer() -> None:
    layers = rooms_page.rooms()
    assert {room for arrow in rooms_page.arrows() for room in arrow} == {*layers}
    assert all(layers[one] <= layers[other] for one, other in rooms_page.arrows())


def test_the_package_has_no_more_lines_than_it_may() -> None:
    assert lines.main() == 0


# Circles --------------------------------------------------------------------------------------------------------------


PACKAGE = Path(autotuner.__file__ or "").parent


def imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import below a node that is there at run time."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.Import | ast.ImportFrom):
            yield each
        elif not (isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test)):
            yield from imports(each)


def graph() -> dict[str, set[str]]:
    """The modules of the package, and those that each imports."""
    paths = {path: path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py")}
    names = {path: ".".join(part for part in place.parts if part != "__init__") for path, place in paths.items()}
    known, found = set(names.values()), dict[str, set[str]]()
    for path, name in names.items():
        wanted = set()
        for each in imports(ast.parse(path.read_text())):
            if isinstance(each, ast.Import):
                wanted |= {alias.name for alias in each.names}
            else:
                inside = {f"{each.module}.{alias.name}" for alias in each.names}
                wanted |= (inside & known) or {each.module or ""}
        found[name] = (wanted & known) - {name}
    return found


def test_no_module_needs_itself_through_others() -> None:
    found = graph()
    assert len(found) > 250
    tuple(TopologicalSorter(found).static_order())
