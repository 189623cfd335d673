"""Parts that are found by name: a folder of this package each, or an entry point of another package."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from importlib import metadata
from types import ModuleType
from typing import Generic, TypeVar

from autotuner.values.errors import InputError
from autotuner.values.validation import no_such

T = TypeVar("T")


class Plugs(Generic[T], Mapping[str, T]):
    """The parts of one kind by name, each loaded when it is asked for.

    A folder NAME of `package` has the part as its attribute `attribute`. An entry point NAME of the group
    `package.__name__` names the part itself. A folder goes before an entry point of the same name.
    """

    def __init__(self, package: ModuleType, attribute: str) -> None:
        self._package, self._attribute = package, attribute
        self._load = cache(self._loaded)

    def __getitem__(self, name: str) -> T:
        """Raises KeyError with the names there are."""
        return self._load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._folders(), *self._entry_points().names}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _folders(self) -> list[str]:
        return [found.name for found in pkgutil.iter_modules(self._package.__path__) if found.ispkg]

    def _entry_points(self) -> metadata.EntryPoints:
        return metadata.entry_points(group=self._package.__name__)

    def _loaded(self, name: str) -> T:
        if name in self._folders():
            module = importlib.import_module(f"{self._package.__name__}.{name}")
            found: T = getattr(module, self._attribute)
            return found
        for point in self._entry_points().select(name=name):
            loaded: T = point.load()
            return loaded
        raise KeyError(no_such(self._attribute.lower(), name, self))


class Listed(Generic[T], MutableMapping[str, T]):
    """The parts of one kind by name: those that are listed here, then entry points of other packages."""

    def __init__(self, group: str, what: str, own: Mapping[str, T]) -> None:
        """`group` of the entry points; `what` is one of the parts, in words."""
        self.group, self._what, self._own = group, what, dict(own)

    def __getitem__(self, name: str) -> T:
        """Raises KeyError: no such part. Raises InputError where the package that has it cannot be imported."""
        if name in self._own:
            return self._own[name]
        for point in metadata.entry_points(group=self.group).select(name=name):
            try:
                found: T = point.load()
            except Exception as error:  # whatever a package does while it is imported
                said = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
                raise InputError(
                    f"the {self._what} {name!r} of another package ({point.value}) cannot be loaded ({said}); mend that"
                    " package or choose another"
                ) from error
            return found
        raise KeyError(name)

    def __setitem__(self, name: str, part: T) -> None:
        self._own[name] = part

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        """Those that are listed here first."""
        others = metadata.entry_points(group=self.group).names - self._own.keys()
        return iter([*self._own, *sorted(others)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        """Whether there is one, without importing it."""
        return name in list(iter(self))

    def chosen(self, name: str) -> T:
        """The part of that name. Raises InputError with the names there are."""
        if name not in self:
            raise InputError(no_such(self._what, name, self))
        return self[name]
