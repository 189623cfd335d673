"""torch's function served by the variants of an exported package, else by torch."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from .alike import Before, Recent, never
from .library import FOREIGN, GRADIENT, NO_GRADIENT, REFUSED, Explanation, Library
from .stated import COPIES, STRICT
from .surroundings import answers_itself, must_see_an_op, needs_gradient, unseen_by_guards

FAILED = "torch failed in "
"""What the library's error begins with where torch has refused what it was asked for."""
OLDEST = (2, 10)
"""The oldest torch whose stable ABI has all that is called."""
_is_traced = torch.compiler.is_dynamo_compiling
"""Asked for in each call: found once."""


class NotServed(RuntimeError):
    """A strict op was called with what no variant serves."""


class Served:
    """torch's function, served by the package's variants where one is proven and confirmed for the call. It may be
    called from several threads. The counters are of the process, whoever made the call."""

    def __init__(self, library: Library, strict: bool, gradients: Literal["refuse", "torch"], copies: bool) -> None:
        """`load` makes one."""
        signature = library.signature
        self.strict, self.gradients, self.copies = strict, gradients, copies
        self._library, self._stated, self._required = library, library.stated, len(library.stated.required)
        self._arguments, self._function, self._compute = signature.arguments, signature.FUNCTION, signature.compute
        self._is_made = getattr(signature, "is_made", never)
        self._always = STRICT * strict | COPIES * copies
        self.__signature__ = library.stated.python
        self._last: tuple[object, ...] | None = None
        self._vain: tuple[object, ...] | None = None
        self._known: Recent[Before] = Recent()
        self._latest: Before | None = None
        """Kinds of calls that the library was asked about: the last, and the last about which it must be; calls about
        which it need not be; and of these the one that came last."""
        options = {"strict": strict, "gradients": gradients, "copies": copies}
        self.made_by: tuple[Callable[..., Any], tuple[Any, ...]] = _again, (__package__, options)
        """What makes such a one again in another process, and what that is given."""
        self._node: Any = library.ops.served.default
        """The same without that. torch.compile sees a call as this one node, whatever the lengths."""
        self._quick: Any = getattr(self._node, "_op", self._node)
        """What `_node` calls in turn, where torch has it still: a step in Python less for each eager call."""

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """As torch's function. Raises NotServed where a strict one does not serve it, and RuntimeError where a gradient
        is wanted and gradients are refused."""
        if _is_traced():
            return self._asked(self._node, *self._arguments(*args, **kwargs))
        before = self._latest
        if (
            before is None
            or not before.comes_again(args, kwargs)
            or (before.is_beside and self._contradicts(args, kwargs))
        ):
            alone = not must_see_an_op()
            before = self._latest = self._known_call(args, kwargs) if alone else None
        else:
            alone = not unseen_by_guards()
        if before is not None and alone:  # in place: a model waits for each step
            if before.forward is not None:
                found = before.forward(args if before.in_order else before.tensors(args, kwargs))
                if found is not None:
                    return found
                alone = False  # the variant refused these tensors, and what is like them is known
            else:
                before.tally.calls += 1
                if before.named is not None:
                    return self._function(*args, **before.named)  # type: ignore[no-any-return]
                if before.is_torchs:
                    return self._function(*args, **kwargs)  # type: ignore[no-any-return]
                return self._torch(args, kwargs)
        given = self._arguments(*args, **kwargs)
        found = self._asked(self._quick if alone else self._node, *given)
        if alone:
            self._look(args, kwargs, *given)
        return found

    def _known_call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Before | None:
        """A call of before that this one is like."""
        known = self._known.of(_first(args, kwargs))
        for before in known:
            if before.comes_again(args, kwargs) and not (before.is_beside and self._contradicts(args, kwargs)):
                if before is not known[0]:  # the next layer's call will be like it
                    self._known.put_first(_first(args, kwargs), before)
                return before
        return None

    def _contradicts(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a mask says something else in this call than what it stands beside: no guard sees that."""
        return not (self._is_made(kwargs) or self._arguments(*args, **kwargs)[2])

    def _asked(
        self, op: Any, tensors: tuple[Tensor, ...], options: Mapping[str, Any], beside: Mapping[str, Any]
    ) -> Tensor:
        """By the library, or where it cannot be given the call by torch."""
        why = self._why_not(tensors, options)
        if why is not None:
            return self._aside(tensors, options, beside, why)
        required = self._required
        how, numbers = self._stated.how(options)
        try:
            if len(tensors) == required and not beside:
                return op(*tensors, self._always | how, *numbers)  # type: ignore[no-any-return]
            more = self._stated.given(tensors)
            return op(*tensors[:required], self._always | how, *numbers, *more, **beside)  # type: ignore[no-any-return]
        except RuntimeError as error:
            return self._failed(error, tensors, options, beside)

    def _look(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: tuple[Tensor, ...],
        options: Mapping[str, Any],
        beside: Mapping[str, Any],
    ) -> None:
        """After a call: whether the library need not be asked about those like it, if the last was of its kind. Asked
        for once: where it must be, or nothing can be told alike, it is for all of the kind."""
        if tensors[0].is_nested:
            return
        kind = (tensors[0].shape, tensors[-1].shape, len(args), *kwargs, *options)
        if kind == self._vain:
            return
        last, self._last = self._last, kind
        if kind != last:
            return
        before = Before(args, kwargs, [each for each in tensors if each is not None], bool(beside))
        if before.is_guarded and self._is_answered(before, args, kwargs, tensors, options):
            self._known.put_first(_first(args, kwargs), before)
        else:
            self._vain = kind

    def _is_answered(
        self,
        before: Before,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: tuple[Tensor, ...],
        options: Mapping[str, Any],
    ) -> bool:
        """Finds out how a call that was just made is answered; whether it need not be asked about again."""
        why, place = self._why_not(tensors, options), self._library.last()
        if why is None:
            said = self._library.explained(place)
            if said.variant is not None:
                how, numbers = self._stated.how(options)
                before.forward = self._library.launched(tensors, self._always | how, numbers)
                return before.forward is not None
        if self.strict or why in (GRADIENT, FOREIGN):
            return False
        before.tally = self._library.tallies[why or said.why]
        before.is_torchs = self._stated.added.isdisjoint(kwargs)
        asked_for = self._library.asked_for(place, tensors[0]) if why is None else None
        there = [each for each in tensors if each is not None]
        if asked_for is not None and before.forget_lengths(there, asked_for):
            return True
        plain = before.in_order and len(tensors) <= self._required and self._stated.added.isdisjoint(options)
        if plain and not any(isinstance(each, Tensor) for each in options.values()):
            before.named = options
        return True

    def _torch(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
        """torch's answer to a call as it was made."""
        if self._stated.added.isdisjoint(kwargs):
            return self._function(*args, **kwargs)  # type: ignore[no-any-return]
        return self._compute(*self._arguments(*args, **kwargs))  # type: ignore[no-any-return]

    def _failed(
        self, error: RuntimeError, tensors: tuple[Tensor, ...], options: Mapping[str, Any], beside: Mapping[str, Any]
    ) -> Tensor:
        """Raises NotServed where no variant serves a strict call. What torch has failed in it is asked for once more:
        only torch says what is wrong, and to the library it does not."""
        said = str(error).partition("\n")[0]
        if said.startswith(REFUSED):
            raise NotServed(said) from None
        if isinstance(error, NotImplementedError):  # there is no kernel of the op for such tensors
            return self._aside(tensors, options, beside, FOREIGN)
        if not said.startswith(FAILED):
            raise error
        return self._compute(tensors, options, beside)  # type: ignore[no-any-return]

    @property
    def op(self) -> Any:
        """The op of torch.library, with options by name. It refuses gradients itself."""
        self._library.know_dtensors()
        return self._library.op.default

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Which variant would serve such a call, or why torch would. Nothing is computed, nothing counted."""
        tensors, options, _ = self._arguments(*args, **kwargs)
        why = self._why_not(tensors, options)
        if why is not None:
            return Explanation(None, why)
        how, numbers = self._stated.how(options)
        return self._library.explained(self._library.choice(tensors, self._always | how, numbers))

    def __deepcopy__(self, _: object) -> Served:
        """The same, so that a model which holds it can be copied."""
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.made_by

    @property
    def counters(self) -> Mapping[str, int]:
        """Calls by the variant that served them, or by the reason why torch did; the most frequent first."""
        return MappingProxyType(dict(self._library.counted().most_common()))

    @property
    def served(self) -> float:
        """Share of the calls that variants served, 0..1; 0 before the first."""
        counted = self.counters
        total = sum(counted.values())
        return sum(count for name, count in counted.items() if name in self._library.variants) / total if total else 0.0

    def reset_counters(self) -> None:
        """Counts from 0 again."""
        self._library.reset()

    def _why_not(self, tensors: tuple[Tensor, ...], options: Mapping[str, Any]) -> str | None:
        """Why the op cannot be given such a call; None where it can."""
        there = tuple([each for each in tensors if each is not None])
        if needs_gradient(there):
            return GRADIENT
        if answers_itself(there):
            return FOREIGN
        others = set(options) - self._stated.names if options else None  # torch 2.11 cannot compile that of keys
        if others:
            return f"{', '.join(sorted(others))} is not supported"
        first = tensors[0]
        return None if first.is_cuda or first.is_cpu else f"the tensors are on {first.device.type}"

    def _aside(
        self, tensors: tuple[Tensor, ...], options: Mapping[str, Any], beside: Mapping[str, Any], why: str
    ) -> Tensor:
        """By torch. Raises NotServed where it must not, and RuntimeError where gradients are refused."""
        if why is GRADIENT and self.gradients == "refuse":
            raise RuntimeError(NO_GRADIENT)
        if self.strict:
            raise NotServed(f"{REFUSED}{why}")
        if not torch.compiler.is_compiling():
            self._library.tallies[why].calls += 1
        if why is FOREIGN and len(tensors) == self._required and not beside:  # it knows torch's own function
            return self._torch(*self._library.signature.called(tensors, options))
        return self._compute(tensors, options, beside)  # type: ignore[no-any-return]


def _first(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The tensor by whose sizes a call is remembered."""
    return args[0] if args else next(iter(kwargs.values()), None)


def opened(folder: Path, signature: ModuleType, machine: ModuleType) -> Callable[..., Served]:
    """The package's function `load`, its library loaded. Raises ImportError, one line, for another torch than it is
    made for."""
    export = _read(folder)
    library = Library(folder / export["library"], export, signature)
    if not export["accelerator"]:
        why = _another_cpu(export, machine)
        if why is not None:
            library.elsewhere(why)

    def load(*, strict: bool = False, gradients: Literal["refuse", "torch"] = "refuse", copies: bool = False) -> Served:
        """The package's function. With `strict` NotServed is raised where torch would serve a call. A call that needs
        a gradient is refused, or with `gradients="torch"` served by torch. With `copies`, strided tensors are copied to
        dense ones where a variant serves these."""
        if gradients not in ("refuse", "torch"):
            raise ValueError(f'gradients is {gradients!r}, expected "refuse" or "torch"')
        return Served(library, strict, gradients, copies)

    if export["accelerator"] and torch.cuda.is_available():
        _warmed(load(strict=True), export["warm"], signature)
    return load


def _again(package: str, options: Mapping[str, Any]) -> Served:
    """What a package that is installed here loads with these options."""
    found: Served = importlib.import_module(package).load(**options)
    return found


def _read(folder: Path) -> dict[str, Any]:
    """What the export says of itself; its files are known to be whole. Raises ImportError where torch or the platform
    is not one that it runs on."""
    found: dict[str, Any] = json.loads((folder / "metadata.json").read_bytes())["autotuner"]
    _require_torch(found["namespace"])
    here = f"{platform.machine()}-{platform.system().lower()}"
    if found["platform"] != here:
        raise ImportError(f"{found['namespace']} is for {found['platform']}, this is {here}: export it there")
    return found


def _require_torch(name: str) -> None:
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version[0] != OLDEST[0] or version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(
            f"{name} needs the stable ABI of torch 2, from {oldest} on, not torch {torch.__version__}: install another"
        )


def _another_cpu(export: Mapping[str, Any], machine: ModuleType) -> str | None:
    """Why nothing is proven on this CPU; None where it is like the proven one. Threads are asked for at each call."""
    here = machine.cpu_facts(0)
    for name, proven in export["proven_on"].items():
        if name != "THREADS_ALLOWED" and here.get(name) != proven:
            return f"proven on a device whose {name} is {proven}, here it is {here.get(name)}"
    missing = sorted(set(export["instructions"]) - set(machine.instructions()))
    return f"compiled for a CPU with {missing[0]}, which this one lacks" if missing else None


def _warmed(function: Served, calls: list[dict[str, Any]], signature: ModuleType) -> None:
    """Runs each variant once on the current device, where it is proven there, so that all code is on the device before
    a graph is captured."""
    with torch.no_grad():
        for each in calls:
            memory = [torch.zeros(size, dtype=getattr(torch, dtype), device="cuda") for size, dtype in each["memory"]]
            tensors = [memory[place].as_strided(*lies) for place, *lies in each["tensors"]]
            args, kwargs = signature.called(tensors, each["options"])
            if function.explain(*args, **kwargs).served:
                function(*args, **kwargs)
    function.reset_counters()
