"""Whether a variant meddles with the Python of the process that judges it.

The process tells its driver as soon as Python is asked to run source that a variant hands it: before that runs, so that
nothing takes it back. At the end of a job it also looks whether functions and constants of this project are the ones
that they were when the first job came.
"""

import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType

from autotuner.forge import loaded_variant

RUNS = ("compile", "exec")
"""What Python says to an audit hook before it runs source."""
OURS, OTHERS = "autotuner", ("time", "socket", "torch.nn.functional")
Bindings = dict[str, dict[str, tuple[int, int]]]
"""By module and class: what names stand for, by identity; of a function its code as well."""


def watch(tell: Callable[[], None]) -> Callable[[], None]:
    """From now on `tell` is called once a variant runs source. What comes back calls it when something else has taken
    the place of a function or a constant."""

    def heard(event: str, _arguments: object) -> None:
        if event in RUNS and _called_by_variant():
            tell()

    sys.addaudithook(heard)
    before = dict(_bindings())

    def look() -> None:
        now = dict(_bindings())
        if any(now.get(where) != names for where, names in before.items()):
            tell()

    return look


def _called_by_variant() -> bool:
    """Whether no Python lies between the event and a variant's call: or none at all, in a thread of its own."""
    try:
        caller = sys._getframe(2)
    except ValueError:
        return True
    return caller.f_code.co_filename == loaded_variant.__file__


def _bindings() -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == OURS or name in OTHERS:
            held = {**vars(module)}
            yield name, _named(held)
            for each in held.values():
                if isinstance(each, type) and each.__module__ == name:
                    yield f"{name}.{each.__qualname__}", _named({**vars(each)})


def _named(held: dict[str, object]) -> dict[str, tuple[int, int]]:
    """Without modules, and what Python keeps beside a class's own names: they come when they are first needed."""
    found = {
        name: each
        for name, each in held.items()
        if not isinstance(each, ModuleType) and (callable(each) or not name.startswith("__"))
    }
    return {
        name: (id(each), id(each.__code__) if isinstance(each, FunctionType) else 0) for name, each in found.items()
    }
