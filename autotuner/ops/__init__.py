"""Ops: what can be computed. OPS[name] is all that the other rooms know of one.

An op is a folder with a record OP (op.py says what is in it), or another package's entry point of the group
`autotuner.ops`. No other room names an op or one of its sizes. Only an op's `tensors` imports torch, and only when it
is asked for something.
"""

import runpy
import sys
from contextlib import suppress
from pathlib import Path

from autotuner.ops.op import Op
from autotuner.values import config
from autotuner.values.errors import InputError
from autotuner.values.plugs import Plugs
from autotuner.values.problem import Problem

__all__ = ["DEFAULT_OP", "OPS", "Op", "op_of"]

DEFAULT_OP = "sdpa"
"""The op of a problem in a file that names none."""


class Ops(Plugs[Op]):
    """Those of folders and entry points, and by name those that a formula made on this machine (derived.py): the file
    that made one is noted in the cache, and read where another process asks for the op."""

    def _load(self, name: str) -> Op:
        noted = None if super().__contains__(name) else _noted(name)
        return super()._load(name) if noted is None else self._made(name, noted)

    def look_beside(self, name: str, folder: Path) -> None:
        """Has an op made by a file of its name in the folder or in the one around it, where there is one."""
        files = [place / f"{name}.py" for place in (folder, folder.parent)] if name.isidentifier() else []
        found = next((each for each in files if each.is_file()), None)
        if found is not None and (name not in self._own or self._own[name].source != found):
            self._made(name, found)

    def _made(self, name: str, path: Path) -> Op:
        sys.path.append(str(path.parent))
        try:
            runpy.run_path(str(path), run_name=f"autotuner_op_{name}")
        except Exception as error:  # whatever the module raises
            said = error if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            raise InputError(f"the op {name} cannot be made by {path}: {said}") from error
        if name not in self._own:
            raise KeyError(f"the op {name} should be made by {path}, which makes no such op")
        return self._own[name]

    def remember(self, name: str, path: Path) -> None:
        """Notes which file makes an op, where no entry point says so."""
        with suppress(OSError):  # in a cage, say
            _note(name).parent.mkdir(parents=True, exist_ok=True)
            _note(name).write_text(str(path))

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and _noted(name) is not None)


def _noted(name: str) -> Path | None:
    """The file that makes an op, if it is still there."""
    with suppress(OSError, ValueError):  # of a name that no file has
        if (path := Path(_note(name).read_text())).is_file():
            return path
    return None


def _note(name: str) -> Path:
    return config.cache_dir().absolute() / "ops" / f"{name.replace('/', '_')[:64]}.txt"


OPS = Ops(__name__, "op", folders=sys.modules[__name__])


def op_of(problem: Problem) -> Op:
    """The op of a problem."""
    return OPS[problem.op]


Problem.find = staticmethod(lambda name: OPS[name].problem)
