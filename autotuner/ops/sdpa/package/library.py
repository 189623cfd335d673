"""The library of an exported package: its ops in torch, who serves a call, and calls that it need not be asked about. A
package has a copy of this file: it imports nothing of autotuner, and is given what else it needs."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

GRADIENT = "it needs a gradient, and only the forward is computed; call it under torch.no_grad()"
NO_GRADIENT = f'{GRADIENT}, or load with gradients="torch"'
CAUSAL, GROUPS, BOTTOM_RIGHT_CORNER, STRICT, COPIES = 1, 2, 4, 8, 16
"""What is so of a call, for the op `served`; torch_op.cpp has the same numbers."""
_sdpa: Callable[..., Tensor] = torch.nn.functional.scaled_dot_product_attention


class Arguments(Protocol):
    """The package's module of that name."""

    arguments: Callable[..., tuple[tuple[Tensor, ...], dict[str, Any], dict[str, Any]]]
    """From the arguments of a call: the tensors, the options, and what says no more than these and is for torch
    alone."""
    is_usual: Callable[[float, Tensor], bool]
    """Whether a scale is the one that is taken where none is given."""


class Surroundings(Protocol):
    """The package's module of that name."""

    needs_gradient: Callable[[Sequence[Tensor]], bool]
    """Whether torch would differentiate a call of these tensors, backward or forward."""
    may_have_tangents: Callable[[], bool]
    """Whether it is worth while to ask for the latter."""
    must_see_an_op: Callable[[], bool]
    """Whether a call has to go through torch's dispatcher, for who traces or transforms it."""
    unseen_by_guards: Callable[[], bool]
    """The same for a call whose tensors are like those of an earlier one."""
    as_autocast: Callable[[Callable[..., Any]], Callable[..., Any]]
    """From an op: what it does under autocast."""


class Beside(NamedTuple):
    """What the package has beside this file."""

    arguments: Arguments
    surroundings: Surroundings
    alike: ModuleType
    forward: ModuleType
    """The package's modules of these names."""
    masked: Callable[..., Tensor]
    """torch's attention with lengths of keys and a corner, which the library itself asks for."""
    facts: Callable[[int], Mapping[str, object]]
    """Of the CPU, as the variants were proven on."""
    instructions: Callable[[], list[str]]
    """That this CPU has."""


class Explanation(NamedTuple):
    """What serves a call, and why."""

    variant: str | None
    """None: torch."""
    why: str

    @property
    def served(self) -> bool:
        """Whether a variant serves it."""
        return self.variant is not None


class Known(NamedTuple):
    """Calls that the library need not be asked about."""

    how: int
    are: Callable[..., bool]
    """Whether tensors, given one by one, lie as those of these calls do."""
    serve: Callable[[tuple[Tensor, ...]], Tensor | None]
    """None where the library has to be asked all the same."""


class Library:
    """The package's own library: its ops are registered with torch, once a process."""

    def __init__(self, path: Path, namespace: str, variants: list[str], beside: Beside) -> None:
        self._library = ctypes.CDLL(str(path))
        for function in ("register", "why"):
            self._function(function).restype = ctypes.c_char_p
        for function in ("count", "kept_size"):
            self._function(function).restype = ctypes.c_int64
        self._launcher = ctypes.PyDLL(str(path)).autotuner_launcher
        self._launcher.restype, self._launcher.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p]
        self.variants, self._forward = variants, beside.forward
        self.aside: Counter[str] = Counter()
        """Calls that torch has served and the library has not seen, by the reason."""
        self._tallies = {name: beside.forward.Tally() for name in variants}
        """Calls that variants have served without the library's ops."""
        failed = self._function("register")()
        if failed:
            raise ImportError(f"{path}: {failed.decode().splitlines()[0]}; is another copy of {namespace} loaded?")
        self.ops = getattr(torch.ops, namespace)
        if failed is None:
            for name in ("sdpa", "served"):
                torch.library.register_fake(f"{namespace}::{name}", _fake)
            for name in ("choice", "kept"):
                torch.library.register_fake(f"{namespace}::{name}", _no_fake)
            torch.library.register_autograd(f"{namespace}::sdpa", _no_backward)
            _define_rest(namespace, beside)

    def _function(self, name: str) -> Any:
        return getattr(self._library, f"autotuner_{name}")

    def elsewhere(self, why: str) -> None:
        """From now on no variant serves, and that is why."""
        self._function("elsewhere")(why.encode())

    def explained(self, place: int) -> Explanation:
        """What a place of the table says."""
        use: int = self._function("use")(place)
        return Explanation(self.variants[use] if use >= 0 else None, self._function("why")(place).decode())

    def known(self, tensors: tuple[Tensor, ...], how: int, are: Callable[..., bool]) -> Known | None:
        """Calls without lengths of keys that are like this one, by which tensors `are`. None where the library has to
        be asked each time."""
        named = {name: True for name, bit in (("is_causal", CAUSAL), ("enable_gqa", GROUPS)) if how & bit}
        said = self.explained(self.ops.choice(*tensors, copies=bool(how & COPIES), **named))
        if said.variant is not None:
            serve = self._kept(tensors, said.variant, named)
            return None if serve is None else Known(how, are, serve)
        aside, why = self.aside, said.why

        def by_torch(given: tuple[Tensor, ...]) -> Tensor:
            aside[why] += 1
            return _sdpa(*given, **named)

        return Known(how, are, by_torch)

    def _kept(self, tensors: tuple[Tensor, ...], name: str, named: Mapping[str, bool]) -> Any:
        """What serves such calls by that variant; None where it does only with copies of them."""
        device = tensors[0].device
        index = device.index or 0
        on, stream = (_on_gpu, torch._C._cuda_getCurrentRawStream) if device.type == "cuda" else (_nowhere, _no_stream)
        kept = ctypes.create_string_buffer(self._function("kept_size")())
        with on(index) or nullcontext():
            empty = self._forward.empty_as(torch.empty_like(tensors[0], device="meta"), device)
            place = self.ops.kept(*tensors, empty(), into=ctypes.addressof(kept), **named)
        if not self.explained(place).served:
            return None
        launch = self._launcher(ctypes.addressof(kept), name.encode())
        return self._forward.forward(launch, empty, self._tallies[name], index, on, stream)

    def asked(self) -> Counter[str]:
        """Calls that the library's ops were given, by the variant that served them, or by the reason why torch did."""
        found = Counter[str]()
        for place in range(-self._function("reasons")(), self._function("places")()):
            said = self.explained(place)
            found[said.variant or said.why] += self._function("count")(place)
        return +found

    def counted(self) -> Counter[str]:
        """All calls, the same way."""
        return self.asked() + self.aside + Counter({name: tally.calls for name, tally in self._tallies.items()})

    def reset(self) -> None:
        """Counts from 0 again."""
        self.aside.clear()
        for tally in self._tallies.values():
            tally.calls = 0
        self._function("reset")()


def _on_gpu(index: int) -> AbstractContextManager[object] | None:
    """What torch.cuda.device is for; None where that GPU is the current one already."""
    return None if torch._C._cuda_getDevice() == index else torch.cuda.device(index)


def _nowhere(_: int) -> None:
    """A CPU is always the current one."""


def _no_stream(_: int) -> int:
    return 0


_REST: list[torch.library.Library] = []
"""What Python defines for the libraries, kept for as long as the process lives."""


def _define_rest(namespace: str, beside: Beside) -> None:
    """torch's answer where it needs a mask, as an op that the library calls. And the op that is called where no
    gradient is needed is looked up below autograd at once: torch's way to see that takes longer than the op."""

    def forward(query: Tensor, key: Tensor, value: Tensor, key_lengths: Tensor | None, **options: Any) -> Tensor:
        return beside.masked(query, key, value, key_lengths=key_lengths, **options)

    made = torch.library.Library(namespace, "FRAGMENT")
    made.define(
        "masked(Tensor query, Tensor key, Tensor value, Tensor? key_lengths, *, bool is_causal, bool enable_gqa,"
        " str corner) -> Tensor"
    )
    made.impl("masked", forward, "CompositeExplicitAutograd")
    made.impl("served", torch.library.fallthrough_kernel, "Autograd")
    for name in ("sdpa", "served", "choice"):
        op = beside.surroundings.as_autocast(getattr(getattr(torch.ops, namespace), name).default)
        made.impl(name, op, "AutocastCPU")
        made.impl(name, op, "AutocastCUDA")
    _REST.append(made)


def _fake(query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object) -> Tensor:
    if query.shape[-1] == value.shape[-1]:
        return torch.empty_like(query)
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def _no_fake(*_: object, **__: object) -> int:
    raise RuntimeError("choice is asked with tensors that have content")


def _no_backward(_: Any, *__: Tensor) -> Any:
    raise RuntimeError(NO_GRADIENT)
