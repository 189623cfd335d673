"""The library of a package: its ops in torch, who serves a call, and calls that it need not be asked about."""

import ctypes
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import surroundings
from .alike import Ranges, is_between
from .forward import Forward, Tally, empty_as, forward
from .stated import COPIES, STRICT, Stated

GRADIENT = "it needs a gradient, and only the forward is computed; call it under torch.no_grad()"
NOT_TUNED, ELSEWHERE, OTHER_MODEL = -1, -3, -4
"""Reasons why no variant serves a call, in the place of one in the table; dispatch.h has the same numbers."""
FOREIGN = "a tensor is nested, or of a class that answers for torch's functions itself"
REFUSED = "no variant serves this call: "
"""What the error of a strict call begins with."""
NO_GRADIENT = f'{GRADIENT}, or load with gradients="torch"'


class Explanation(NamedTuple):
    """What serves a call, and why."""

    variant: str | None
    """None: torch."""
    why: str

    @property
    def served(self) -> bool:
        """Whether a variant serves it."""
        return self.variant is not None


def _opened(path: Path) -> ctypes.CDLL:
    """Raises ImportError where it cannot be loaded, as from a folder that programs must not be run from."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        if os.statvfs(path).f_flag & os.ST_NOEXEC:
            raise ImportError(
                f"{path.parent} is mounted noexec, so no library can be loaded from there; put the package into another"
                " folder, or set AUTOTUNER_CACHE to one for what autotuner.load makes"
            ) from None
        raise ImportError(f"{path}: {error}") from None


class Library:
    """The package's own library: its ops are registered with torch, once a process."""

    def __init__(self, path: Path, export: Mapping[str, Any], signature: ModuleType) -> None:
        """`export`: what the package says of itself. Raises ImportError where torch does not take its ops."""
        namespace = export["namespace"]
        self._library = _opened(path)
        for function in ("register", "why"):
            self._function(function).restype = ctypes.c_char_p
        for function in ("count", "kept_size"):
            self._function(function).restype = ctypes.c_int64
        self._launcher = ctypes.PyDLL(str(path)).autotuner_launcher
        self._launcher.restype = ctypes.py_object
        self._launcher.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.py_object]
        self.last: Callable[[], int] = self._function("last")
        """The place in the table of what has served the last call of this thread."""
        self.variants: list[str] = export["variants"]
        self.signature, self.stated = signature, Stated(signature)
        self._sizes: list[tuple[str, list[list[int]], list[list[int]]]] = export["sizes"]
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)
        """Calls that the library's ops were not given, by the variant or the reason."""
        failed = self._function("register")()
        if failed:
            raise ImportError(f"{path}: {failed.decode().splitlines()[0]}; is another copy of {namespace} loaded?")
        self.ops = getattr(torch.ops, namespace)
        if failed is None:
            self._define(namespace)
        self.op = getattr(self.ops, signature.NAME)
        self._knows_dtensors = False

    def _function(self, name: str) -> Any:
        return getattr(self._library, f"autotuner_{name}")

    def elsewhere(self, why: str) -> None:
        """From now on no variant serves, and that is why."""
        self._function("elsewhere")(why.encode())

    def explained(self, place: int) -> Explanation:
        """What a place of the table says."""
        use: int = self._function("use")(place)
        return Explanation(self.variants[use] if use >= 0 else None, self._function("why")(place).decode())

    def asked_for(self, place: int, first: Tensor) -> Ranges | None:
        """Of a call at that place of the table, and every other one with such a first tensor: with which sizes of the
        second one the table must be asked; all others are torch's. None: with any."""
        if place != NOT_TUNED:
            return () if place in (ELSEWHERE, OTHER_MODEL) else None
        if first.dim() != len(self._sizes[0][1][0]):
            return None
        dtype = str(first.dtype).removeprefix("torch.")
        return tuple(
            (low[1], high[1])
            for of, low, high in self._sizes
            if dtype == of and is_between(low[0], first.shape, high[0])
        )

    def choice(self, tensors: tuple[Tensor, ...], how: int, numbers: list[float], *kept: object) -> int:
        """The place in the table of what would serve a call."""
        required, none = len(self.stated.required), [None for _ in self.stated.beside]
        given = (*tensors[:required], how, *numbers, *self.stated.given(tensors))
        found: int = self.ops.choice(*given, *none, *kept)
        return found

    def launched(self, tensors: tuple[Tensor, ...], how: int, numbers: list[float]) -> Forward | None:
        """What serves calls like this one by the variant that the table has for it; None where there is none, or it
        does only with copies of the tensors."""
        device = tensors[0].device
        kept = ctypes.create_string_buffer(self._function("kept_size")())
        with torch.cuda.device_of(tensors[0]):
            out = self.signature.empty(*tensors[: len(self.stated.required)])
            empty = empty_as(out)
            place = self.choice(tensors, how & ~COPIES, numbers, out, ctypes.addressof(kept))
        name = self.explained(place).variant
        if name is None:
            return None
        launch = self._launcher(ctypes.addressof(kept), name.encode(), Tensor)
        return forward(launch, empty, self.tallies[name], device.index if device.type == "cuda" else None)

    def asked(self) -> Counter[str]:
        """Calls that the library's ops were given, by the variant that served them, or by the reason why torch did."""
        found = Counter[str]()
        for place in range(-self._function("reasons")(), self._function("places")()):
            said = self.explained(place)
            found[said.variant or said.why] += self._function("count")(place)
        return +found

    def counted(self) -> Counter[str]:
        """All calls, the same way."""
        return +(self.asked() + Counter({name: tally.calls for name, tally in [*self.tallies.items()]}))

    def reset(self) -> None:
        """Counts from 0 again."""
        for tally in [*self.tallies.values()]:
            tally.calls = 0
        self._function("reset")()

    # Ops that Python defines ------------------------------------------------------------------------------------------

    def _define(self, namespace: str) -> None:
        """torch's answer where that takes more than one of its functions, which the library calls; and the op for
        people, with options by name. The op that is called where no gradient is needed is looked up below autograd at
        once: torch's way to see that takes longer than the op."""
        signature, stated, name = self.signature, self.stated, self.signature.NAME
        required = len(stated.required)

        def computed(*given: Any) -> Tensor:
            tensors, how, rest = given[:required], given[required], given[required + 1 :]
            numbers = rest[: stated.numbers]
            optional = dict(zip((*stated.more, *stated.beside), rest[stated.numbers :], strict=False))
            there = {each: value for each, value in optional.items() if value is not None}
            more = [there.pop(each, None) for each in stated.more]
            found: Tensor = signature.compute((*tensors, *more), stated.said(how, numbers), there)
            return found

        def by_name(*given: Any, **options: Any) -> Tensor:
            always = STRICT * options.pop("strict", False) | COPIES * options.pop("copies", False)
            tensors, said, beside_them = self._told(*given, **options)
            others = sorted(set(said) - stated.names)
            if others:
                raise ValueError(f"{', '.join(others)} is not supported by the op; call the function instead")
            how, numbers = stated.how(said)
            more = stated.given(tensors)
            return self.ops.served(*tensors[:required], always | how, *numbers, *more, **beside_them)  # type: ignore[no-any-return]

        made = torch.library.Library(namespace, "FRAGMENT")
        made.define(f"{name}({stated.by_name}) -> Tensor")
        made.impl(name, by_name, "CompositeExplicitAutograd")
        made.impl("computed", computed, "CompositeExplicitAutograd")
        made.impl("served", torch.library.fallthrough_kernel, "Autograd")
        for each, fake in (("served", signature.empty), (name, signature.empty), ("choice", _no_fake)):
            torch.library.register_fake(f"{namespace}::{each}", fake)
            if signature.AUTOCAST:
                self._cast_under_autocast(made, each)
        torch.library.register_autograd(f"{namespace}::{name}", _no_backward)
        _KEPT.append(made)

    def _told(self, *given: Any, **options: Any) -> tuple[tuple[Tensor, ...], Mapping[str, Any], Mapping[str, Any]]:
        """A call of the op for people, as the signature takes calls apart."""
        stated, count = self.stated, len(self.stated.required) + len(self.stated.more)
        beside = {each: value for each, value in zip(stated.beside, given[count:], strict=False) if value is not None}
        args, kwargs = self.signature.called(given[:count], {**beside, **options})
        return self.signature.arguments(*args, **kwargs)  # type: ignore[no-any-return]

    def know_dtensors(self) -> None:
        """From now on that op gives torch the calls with DTensors, whose class knows no rule for it."""
        module = sys.modules.get("torch.distributed.tensor")
        if module is not None and not self._knows_dtensors:
            self._knows_dtensors = True
            torch.library.register_torch_dispatch(self.op.default, module.DTensor, self._by_torch)

    def _by_torch(self, _mode: Any, _op: Any, _types: Any, args: Any, kwargs: Mapping[str, Any]) -> Tensor:
        if kwargs.get("strict"):
            raise RuntimeError(f"{REFUSED}{FOREIGN}")
        options = {name: value for name, value in kwargs.items() if name not in ("strict", "copies")}
        self.tallies[FOREIGN].calls += 1
        return self.signature.compute(*self._told(*args, **options))  # type: ignore[no-any-return]

    def _cast_under_autocast(self, made: torch.library.Library, name: str) -> None:
        op = surroundings.as_autocast(getattr(self.ops, name).default)
        for key in ("AutocastCPU", "AutocastCUDA"):
            made.impl(name, op, key)


_KEPT: list[torch.library.Library] = []
"""What Python defines for the libraries, kept for as long as the process lives."""


def _no_fake(*_: object, **__: object) -> int:
    raise RuntimeError("choice is asked with tensors that have content")


def _no_backward(_: Any, *__: Tensor) -> Any:
    raise RuntimeError(NO_GRADIENT)
