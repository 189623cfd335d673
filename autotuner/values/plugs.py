"""Parts that are found by name: a folder of this package each, or an entry point of another package."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from types import ModuleType
from typing import Generic, TypeVar

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
        raise KeyError(f"no {self._attribute.lower()} {name!r}; there are {', '.join(self)}")
