"""The program's own commands with their options: command lines, right and wrong, are drawn from them."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import typer

LASTING = {
    "serve": ("--port 65536", "--spaces nowhere"),
    "worker": ("--devices nowhere", "--until never", "--cache much"),
}
"""The commands that go on until they are told to end, and what ends each at once, whatever stands before it."""
ENDING = (
    *("worker --idle-exit", "worker --ray auto --devices nowhere", "serve --workers 1 --read-only"),
    *(f"serve --token-file {each}" for each in ("pipe", "loop", "folder", "/dev/zero", "studies.db")),
)
"""Whole command lines with which they end."""
ARGUMENTS = {
    **{"number": "1", "target": "1", "sweep": "1", "space": "space.toml", "last": "best.json", "path": "best.json"},
    **dict.fromkeys(("what", "study", "name", "first"), "scalar"),
    **{"second": "small", "text": "as of today"},
}
"""For each argument or option that a command cannot do without, what it can be."""
MORE = (
    *("show 0", "show 2 --json", "show 3", "export --out -", "export --out out.json"),
    *("export --estimates --format package", "export --estimates --format c --out loop"),
    *(
        "trials --csv",
        "sweep logs --every",
        "sweep logs --follow",
        "sweep logs --last 1",
    ),
    *("finals --aa", "tune --trials 1", "tune space.toml --from scalar", "finals scalar", "sweep watch 2"),
    *("sweep list --all", "validate --lengths 16-64", "export --format html --out loop", "status scalar"),
    *("status small --show history", "status --show costs", "compare small small"),
)
"""Questions beside each command as it stands."""


class Command(NamedTuple):
    """A command, and what may follow it."""

    words: tuple[str, ...]
    options: tuple[str, ...]
    wanted: tuple[str, ...]
    """Options and arguments that it cannot do without."""
    asks_a_store: bool

    @property
    def lasts(self) -> bool:
        """Whether it goes on until it is told to end."""
        return self.words[0] in LASTING


@functools.cache
def program() -> Any:
    """What Typer makes of the program. It takes longer than all else in most cases."""
    from autotuner.cli import app

    return typer.main.get_command(app.app)


@functools.cache
def commands() -> tuple[Command, ...]:
    """All of them."""
    return tuple(_commands(program(), ()))


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[Command]:
    below = getattr(group, "commands", {})
    if path and (not below or group.invoke_without_command):
        options = [name for each in group.params for name in (*each.opts, *each.secondary_opts) if name[0] == "-"]
        wanted = [each for each in group.params if each.required]
        values = [
            " ".join([*each.opts[:1], ARGUMENTS[each.name]]) if each.opts[0][0] == "-" else ARGUMENTS[each.name]
            for each in wanted
        ]
        yield Command(path, tuple(options), tuple(values), any(each.name == "store" for each in group.params))
    for name, command in below.items():
        yield from _commands(command, (*path, name))


@functools.cache
def words() -> tuple[str, ...]:
    """Every word that the program knows, each once."""
    return tuple(dict.fromkeys(word for each in commands() for word in (*each.words, *each.options)))


@functools.cache
def questions() -> tuple[str, ...]:
    """Command lines that ask a store, none of which goes on for ever."""
    plain = [(each, " ".join([*each.words, *each.wanted])) for each in commands() if each.asks_a_store]
    asked = [line for each, line in plain if not each.lasts]
    as_json = [f"{line} --json" for each, line in plain if "--json" in each.options and not each.lasts]
    return (*asked, *as_json, *MORE, *ENDING)


def ended(line: tuple[str, ...], draw: int) -> tuple[str, ...]:
    """The command line, with what ends it at once if its command would go on."""
    ways: tuple[str, ...] | None = next((LASTING[word] for word in line if word in LASTING), None)
    if "logs" in line and "--every" in line and {"--follow", "-f"} & {*line}:  # events of all sweeps, without an end
        ways = ("--last 0",)
    return line if ways is None else (*line, *ways[draw % len(ways)].split())
