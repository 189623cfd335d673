"""The space files that are shipped stay short: values, problems, default; limits stand with the kernel family, once."""

from collections import defaultdict
from pathlib import Path

import pytest

from autotuner.forge.family import Family
from autotuner.spaces.fields import KINDS
from autotuner.tuning.workbench import load_space
from autotuner.values import config

ROOT = Path(__file__).parent.parent.parent
LANDSCAPES = sorted((ROOT / "benchmarks").rglob("*.toml"))
SPACES = [*sorted(config.spaces_dir().glob("*.toml")), *LANDSCAPES]
LONGEST_FILE = 45
LONGEST_CONSTRAINT = 120
BLOCK = 6
"""Lines that may not stand alike in two files."""


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_a_space_file_is_short_and_so_is_each_constraint(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST_FILE
    file = load_space(str(path))
    constraints = [each for branch in file.branches for each in branch.constraints]
    assert constraints
    assert [each.expression for each in constraints if len(each.expression) > LONGEST_CONSTRAINT] == []


@pytest.mark.parametrize("path", sorted(config.kernels_dir().glob("*/kernel.toml")), ids=lambda path: path.parent.name)
def test_no_expression_of_a_family_is_long(path: Path) -> None:
    kernel = Family.load(path.parent)
    tables = [table for each in kernel.limit_tables.values() for table in each.values()]
    texts = [text for table in tables for kind in KINDS for text in table.named(kind).values()]
    texts += [rule.expression for table in tables for rule in table.constraints]
    assert [text for text in texts if len(text) > LONGEST_CONSTRAINT] == []


def test_no_block_of_lines_stands_in_two_files() -> None:
    limits = sorted(config.kernels_dir().glob("*/limits.toml"))
    places = defaultdict(set)
    for path in [*SPACES, *limits]:
        lines = path.read_text().splitlines()
        for first in range(len(lines) - BLOCK + 1):
            places["\n".join(lines[first : first + BLOCK])].add(str(path.relative_to(ROOT)))
    assert {block: files for block, files in places.items() if len(files) > 1} == {}
