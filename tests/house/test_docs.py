"""The documents: every path, module, anchor and command line that they name exists.

Lines that say how a kept result was made are left out: they name programs as they were called then.
"""

import contextlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main

from autotuner.cli.app import app
from autotuner.search.samplers import SAMPLERS
from autotuner.serve.best import FORMATS
from benchmarks import proof

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")] + sorted(
    page for folder in ("", "method", "reference") for page in (ROOT / "docs" / folder).glob("*.md")
)
OURS = [path for path in ROOT.iterdir() if path.name not in (".git", ".venv")]
FILES = {path.relative_to(ROOT).as_posix() for top in OURS for path in (top, *top.rglob("*"))}

LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
CODE = re.compile(r"```.*?```|`([^`]+)`", re.DOTALL)
FENCE = re.compile(r"```.*?\n(.*?)```", re.DOTALL)
PATH = re.compile(r"(?<![\w./<-])(?:autotuner|benchmarks|docs|examples|kernels|search_spaces|tests)/[\w./-]*[\w/]")
SOURCE = re.compile(r"[\w./-]*\w\.(?:py|md|toml|cpp|cu|h|S)")
MODULE = re.compile(r"(?<![\w./-])(?:autotuner|benchmarks|tests)(?:\.\w+)+")
MADE = re.compile(r"^.*\bMade by `.*$", re.MULTILINE)

GROUPS = {SAMPLERS.group, FORMATS.group}
"""Groups of entry points that are no module."""
SOURCES = {".py", ".toml", ".h", ".cpp", ".cu"}
EXAMPLES = {"unit.cu"}
"""Sources that a page makes up, or that a build writes."""


def text_of(page: Path) -> str:
    """The page without the lines on how results were made."""
    return MADE.sub("", page.read_text())


def spans(page: Path) -> Iterator[str]:
    """The inline code of a page, each in one line."""
    return (" ".join(found[1].split()) for found in CODE.finditer(text_of(page)) if found[1])


def is_placeholder(name: str) -> bool:
    """Whether a part of it stands for something else, such as NAME."""
    return any(part.isupper() and len(part) > 1 for part in re.split(r"[./_]", name))


def exists(name: str) -> bool:
    """Whether there is such a file or folder, here or in some folder of the repository."""
    return any(f"/{path}".endswith(f"/{name.rstrip('/')}") for path in FILES)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ +(.*?) *$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead_links(page: Path) -> Iterator[str]:
    for target, anchor in LINK.findall(text_of(page)):
        if "://" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            yield f"{target}#{anchor}"


def missing_paths(page: Path) -> Iterator[str]:
    return (path for path in PATH.findall(text_of(page)) if not is_placeholder(path) and not exists(path))


def misnamed_links(page: Path) -> Iterator[str]:
    """Called by a file's name that is not the page's: a page that was renamed keeps no old one."""
    named = re.findall(r"\[([\w-]+\.md)\]\((?:[^)#\s]*/)?([^/)#\s]+)", text_of(page))
    return (text for text, target in named if text != target)


def missing_sources(page: Path) -> Iterator[str]:
    """Also of those that are named without their folder."""
    named = {span for span in spans(page) if SOURCE.fullmatch(span)} - EXAMPLES
    return (name for name in named if not exists(name))


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or something that a module offers."""
    with contextlib.suppress(ModuleNotFoundError, AttributeError):
        if find_spec(name) is not None:
            return True
    module, _, last = name.rpartition(".")
    try:
        return hasattr(import_module(module), last)
    except ModuleNotFoundError:
        return False


def missing_modules(page: Path) -> Iterator[str]:
    named = {name for name in MODULE.findall(text_of(page)) if not is_placeholder(name) and not SOURCE.fullmatch(name)}
    return (name for name in named - GROUPS if not is_there(name))


def test_every_page_that_a_source_names_exists() -> None:
    folders = ("autotuner", "benchmarks", "kernels", "search_spaces", "examples", "tests")
    sources = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in SOURCES]
    named = {(path, page) for path in sources for page in re.findall(r"docs/[\w/.-]+\.md", path.read_text())}
    assert len(named) > 10
    assert sorted(f"{path.relative_to(ROOT)}: {page}" for path, page in named if not (ROOT / page).is_file()) == []


def test_every_module_that_a_source_says_to_run_exists() -> None:
    """As its own first lines often say."""
    sources = [path for name in ("autotuner", "benchmarks") for path in (ROOT / name).rglob("*.py")]
    run = re.compile(rf"python3? -m ({MODULE.pattern})")
    named = {(path, name) for path in sources for name in run.findall(path.read_text()) if not is_placeholder(name)}
    assert len(named) > 10
    assert sorted(f"{path.relative_to(ROOT)}: {name}" for path, name in named if not is_there(name)) == []


# Command lines ------------------------------------------------------------------------------------------------------


def lines(page: Path) -> Iterator[str]:
    """What a page shows to be typed: inline code, and the lines of its code blocks without prompt and comment."""
    yield from spans(page)
    for block in FENCE.findall(text_of(page)):
        for line in block.replace("\\\n", " ").splitlines():
            yield re.sub(r"^\$ ", "", line.split("  # ")[0].strip())


def typed(page: Path, program: str) -> Iterator[list[str]]:
    """The arguments of each command line of a program."""
    for line in lines(page):
        found = re.fullmatch(rf"(?:\w+=\S+ +)*(?:\.venv/bin/)?{program} +(.*)", line)
        if found is not None:
            yield [re.sub(r"[][]|\.\.\.", "", word) for word in shlex.split(found[1])]


@cache
def program() -> Any:
    """The command line: made once, as typer takes long."""
    return typer.main.get_command(app)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that is called, and the words after its name."""
    command = program()
    while hasattr(command, "commands") and (words or not command.invoke_without_command):
        assert words, "a group is no command"
        assert words[0] in command.commands, f"there is no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def wrong_commands(page: Path) -> Iterator[str]:
    """Command lines that the program does not know, and options that their command does not have."""
    for words in typed(page, "autotuner"):
        if is_placeholder(words[0]):
            continue
        try:
            command, rest = command_of(words)
        except AssertionError as error:
            yield f"{' '.join(words)}: {str(error).splitlines()[0]}"
            continue
        known = {"--help"}.union(*([*option.opts, *option.secondary_opts] for option in command.params))
        used = {word.split("=")[0] for word in rest if word.startswith("--")}
        yield from (f"{' '.join(words)}: {option}" for option in used - known)


def wrong_options(page: Path) -> Iterator[str]:
    """Options that a module which is run has not, nor what the modules of its kind share."""
    for words in typed(page, "python -m"):
        module = ROOT / f"{words[0].replace('.', '/')}.py"
        if module.is_file():
            beside = [module, *(ROOT / "benchmarks").glob("*.py"), *module.parent.glob("*.py")]
            known = "".join(path.read_text() for path in beside)
            used = {word.split("=")[0] for word in words if word.startswith("--")}
            yield from (f"{' '.join(words)}: {option}" for option in used if f'"{option}"' not in known)


def other_programs(page: Path) -> Iterator[str]:
    """What is called autotuner on the package index is another program: nobody is told to install it."""
    yield from re.findall(r"pip install ['\"]?autotuner\b", page.read_text())


def wrong_targets(page: Path) -> Iterator[str]:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in typed(page, "make"):
        parts = {word.removeprefix("PART=") for word in words if word.startswith("PART=")}
        yield from {word for word in words if "=" not in word} - targets
        yield from (f"PART={part}" for part in parts - set(proof.PARTS) if part)


FAULTS = (
    *(dead_links, misnamed_links, missing_paths, missing_sources, missing_modules),
    *(wrong_commands, wrong_options, other_programs, wrong_targets),
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_exists(page: Path) -> None:
    """A test of each page: tests/house/test_second_op.py leaves some pages out."""
    assert [f"{faults.__name__}: {fault}" for faults in FAULTS for fault in sorted({*faults(page)})] == []


# Size ---------------------------------------------------------------------------------------------------------------


def test_the_documents_have_no_more_words_than_they_may() -> None:
    """Counted as `wc -w` counts them, in every Markdown file of the repository, with what programs draw into them: the
    bars of tables are words too. The limit stands in pyproject.toml."""
    most = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["autotuner"]["words"]
    pages = [ROOT / name for name in FILES if name.endswith(".md") and not name.startswith(".")]
    assert len(pages) > len(PAGES)
    found = sum(len(page.read_text().split()) for page in pages)
    assert found <= most, "say less, link to the page that says it already, or draw fewer rows"
