"""Parts that are found by name: ours, and those that another package has as an entry point."""

import importlib
import pkgutil
from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from importlib import metadata
from types import MappingProxyType, ModuleType
from typing import Any, Generic, TypeVar

from autotuner.values.errors import InputError
from autotuner.values.validation import no_such

T = TypeVar("T")


class Plugs(Generic[T], MutableMapping[str, T]):
    """The parts of one kind by name, each loaded when it is asked for: those that are listed here, then by name the
    folders of a package, which have the part as an attribute, and the entry points of other packages."""

    def __init__(
        self, group: str, what: str, own: Mapping[str, T] = MappingProxyType({}), folders: ModuleType | None = None
    ) -> None:
        """`group` of the entry points; `what` is one of the parts, in words: in capitals it is the attribute of the
        `folders`."""
        self.group, self._what, self._own, self._folders = group, what, dict(own), folders
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        """Raises KeyError with the names there are, and InputError where the package that has it cannot be imported."""
        if name in self._own:
            return self._own[name]
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> T:
        if name in self._folder_names():
            module: Any = importlib.import_module(f"{self.group}.{name}")
            ours: T = getattr(module, self._what.upper())
            return ours
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
        raise KeyError(no_such(self._what, name, self))

    def _folder_names(self) -> list[str]:
        paths = [] if self._folders is None else self._folders.__path__
        return [found.name for found in pkgutil.iter_modules(paths) if found.ispkg]

    def __setitem__(self, name: str, part: T) -> None:
        self._own[name] = part

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        others = {*self._folder_names(), *metadata.entry_points(group=self.group).names} - self._own.keys()
        return iter([*self._own, *sorted(others)])

    def tried(self) -> Iterator[tuple[str, T | InputError]]:
        """Each part by name, or why it cannot be loaded."""
        for name in self:
            try:
                yield name, self[name]
            except InputError as error:
                yield name, error

    def items(self) -> ItemsView[str, T]:
        """Those that can be loaded: a broken package is the concern of who names it."""
        return {name: part for name, part in self.tried() if not isinstance(part, InputError)}.items()

    def values(self) -> ValuesView[T]:
        """The same without their names."""
        return dict(self.items()).values()

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        """Whether there is one, without importing it. Other packages, which take 30 ms, are asked last."""
        return name in {*self._own, *self._loaded, *self._folder_names()} or name in list(iter(self))

    def chosen(self, name: str, *others: str) -> T:
        """The part of that name. Raises InputError with the names there are; `others` are known to the caller alone."""
        if name not in self:
            raise InputError(no_such(self._what, name, [*self, *others]))
        return self[name]
