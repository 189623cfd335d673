"""Which attacks there are: the kernels of tests/mutants and tests/kernels that attack, and ways to build."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.provenance import ROOT
from tests.mutants.expectations import MUTANTS, Backend, entries

KERNELS = ROOT / "tests" / "kernels"
HIDDEN = ("memo_below", "sampled_memo", "memo_in_freed", "memo_in_the", "counts_below", "counts_in_")
"""Beginnings of the names of those that keep state without a variable: they say nothing of it in kernel.toml."""
FLAGS: dict[Backend, dict[str, list[str]]] = {
    "cpu": {
        "wrapper": ["-wrapper", "evil.sh"],
        "plugin": ["-fplugin=evil.so"],
        "other_tools": ["-B."],
        "specs": ["-specs=evil"],
        "arguments_of_a_file": ["@evil"],
        "arguments_of_the_assembler": ["-Wa,-I/"],
        "include_of_the_system": ["-include", "/etc/passwd"],
        "other_linker": ["-fuse-ld=evil"],
        "linked_later": ["-flto"],
        "intermediate_files": ["-save-temps"],
        "dump_anywhere": ["-fdump-tree-all=/tmp/harm"],
    },
    "cuda": {
        "wrapper_of_the_host": ["-Xcompiler=-wrapper,evil.sh"],
        "other_host_compiler": ["-ccbin=evil"],
        "options_of_a_file": ["--options-file=evil"],
        "kept_files": ["--keep-dir=/tmp/harm"],
    },
}
"""Of kernel.toml."""
RARE = (1000, 5000, 20000)
PROBLEM: dict[str, dict[str, str | int]] = {
    "cpu": {"batch": 1, "heads": 2, "seq_q": 64, "seq_k": 64, "head_dim": 64, "dtype": "float32"},
    "cuda": {"batch": 1, "heads": 32, "seq_q": 128, "seq_k": 128, "head_dim": 64, "dtype": "float16"},
}
"""By device; one on which much can be gained."""


class Attack(NamedTuple):
    """A variant of a family, or a family, that attacks."""

    name: str
    kind: str
    what: str
    parameters: dict[str, str | int]
    """Of its point, without IMPL."""


class Group(NamedTuple):
    """Attacks that one sweep judges, beside an honest variant."""

    name: str
    folder: Path
    """The family."""
    impl: str
    honest: dict[str, str | int]
    attacks: tuple[Attack, ...]
    flags: tuple[str, ...] = ()
    """Of its kernel.toml, where these are the attack."""
    device: Backend = "cpu"

    @property
    def plain(self) -> Attack:
        """The honest variant, as if it were one."""
        return Attack("honest", self.name, "does what it says", self.honest)

    def space(self, points: Sequence[dict[str, str | int]]) -> str:
        """A space file of these points, and of what else their values allow."""
        values = {name: list(dict.fromkeys(point[name] for point in points)) for name in self.honest}
        problem = ", ".join(f"{name} = {value!r}" for name, value in PROBLEM[self.device].items()).replace("'", '"')
        lines = [f'title = "attacks: {self.name}"', f'family = "{self.folder.name}"', f'backend = "{self.device}"']
        lines += [f'problems = [{{ op = "sdpa", {problem} }}]', *(["threads = 1"] if self.device == "cpu" else [])]
        lines += ["", "[parameters]", f'IMPL = ["{self.impl}"]']
        lines += [f"{name} = {each}".replace("'", '"') for name, each in values.items()]
        lines += ["", "[default]", f'IMPL = "{self.impl}"']
        lines += [f"{name} = {value!r}".replace("'", '"') for name, value in points[0].items()]
        return "\n".join([*lines, ""])


def copy_families(into: Path) -> None:
    """All families with attacks, as they lie beside each other in a checkout: a sweep may not write beside them."""
    skipped = shutil.ignore_patterns("__pycache__", "*.py")
    shutil.copytree(MUTANTS, into / "tests" / "mutants", ignore=skipped)
    shutil.copytree(KERNELS, into / "tests" / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "kernels", into / "kernels")


def groups(device: Backend) -> list[Group]:
    """What there is to judge on a kind of device."""
    if device == "cuda":
        rare = _rare(device)
        return [_mutants("clock", device), *rare, _mutants("systemic", device), *_hosts(), *_flags(rare[0])]
    named = tomllib.loads((MUTANTS / "attacks" / "attacks.toml").read_text())
    own = [Attack(name, kind, what, {"ATTACK": name}) for kind, each in named.items() for name, what in each.items()]
    hidden = tuple(each for each in own if each.kind in ("hidden", "build") or each.name.startswith(HIDDEN))
    stated = tuple(each for each in own if each not in hidden)
    honest: dict[str, str | int] = {"ATTACK": "none"}
    attacks = MUTANTS / "attacks"
    beside = Group("stated", attacks, "stated", honest, stated)
    return [
        Group("hidden", attacks, "hidden", honest, hidden),
        beside,
        *_flags(beside),
        _mutants("clock"),
        Group("conduct", KERNELS / "conduct", "act", {"ACT": "none"}, _acts()),
        Group("functions", KERNELS / "of_python", "rows", _function("nothing"), tuple(_functions())),
        *_rare(device),
        _mutants("systemic"),
    ]


def _flags(beside: Group) -> Iterator[Group]:
    """Of the implementation of that group, whose honest variant would be built with them."""
    for name, flags in FLAGS[beside.device].items():
        what = f"kernel.toml has the flags {' '.join(flags)}"
        attack = Attack(f"flag_{name}", "build", what, beside.honest)
        yield beside._replace(name=attack.name, attacks=(attack,), flags=tuple(flags))


def _hosts() -> Iterator[Group]:
    """Each is an implementation, whose honest variant has the same host side."""
    folder, point = MUTANTS / "hosts", dict[str, str | int](MUTANT="none", BLOCK_N=32)
    for name, each in tomllib.loads((folder / "hosts.toml").read_text()).items():
        attack = Attack(name, "hosts", each["what"], {**point})
        yield Group(f"host_{name}", folder, name, {**point, "BLOCK_N": 64}, (attack,), (), "cuda")


def _mutants(table: str, device: Backend = "cpu") -> Group:
    more: dict[str, str | int] = {"BLOCK_N": 32} if device == "cuda" else {}
    found = [
        Attack(each["name"], table, each["what"], {"MUTANT": each["name"], **more})
        for each in entries(device, table)
        if each["name"] != "none"
    ]
    return Group(table, MUTANTS / table, "mutant", {"MUTANT": "none", **more}, tuple(found), (), device)


def _functions() -> Iterator[Attack]:
    undone = ("undoes_it_in_time", "takes_an_operator", "collects_garbage_for_others", "slows_while_it_is_not_called")
    for name in ("remembers", "computes_when_read", "sets_torch", "slows_the_baseline", "finds_all_equal", *undone):
        yield Attack(f"function_{name}", "functions", f"a function of Python that {name}", _function(name))


def _function(wrong: str) -> dict[str, str | int]:
    return {"ROWS": 16, "WRONG": wrong}


def _acts() -> tuple[Attack, ...]:
    """What the source asks for by name; those that need a file of the test's own do nothing here."""
    names = re.findall(r"ACT_(\w+)", (KERNELS / "conduct" / "conduct.cpp").read_text())
    told = [name.lower() for name in dict.fromkeys(names) if name not in ("NONE", "SENDS_A_REPLY")]
    return tuple(Attack(name, "conduct", name.replace("_", " "), {"ACT": name}) for name in told)


UNGATED = {"ungated": "is wrong", "ungated_wild": "writes far behind its output"}
"""In a process that no gate was in: beside what races against it, and where it is used."""


def _rare(device: Backend) -> list[Group]:
    counted = [
        Attack(f"wrong_in_{every}_{when}", "counts", f"is wrong once in {every} launches, {when}", point)
        for every in RARE
        for when in ("counted", "drawn")
        for point in [{"EVERY": every, "WHEN": when}]
    ]
    what = "in a process that has seen the tuned lengths alone"
    ungated = [Attack(when, "process", f"{does} {what}", {"EVERY": 1, "WHEN": when}) for when, does in UNGATED.items()]
    return [
        Group(name, KERNELS / "rare", "counts", {"EVERY": 0, "WHEN": when}, tuple(attacks), (), device)
        for name, when, attacks in (("rare", "counted", counted), ("ungated", "ungated", ungated))
    ]
