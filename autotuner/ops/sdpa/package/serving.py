"""Attention served by the variants of an exported package, else by torch. A package has a copy of this file as its
`serving.py`: it imports nothing of autotuner, and is given what else it needs by the package's `__init__.py`."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from .library import (
    BOTTOM_RIGHT_CORNER,
    CAUSAL,
    COPIES,
    GRADIENT,
    GROUPS,
    NO_GRADIENT,
    STRICT,
    Beside,
    Explanation,
    Known,
    Library,
)

REFUSED = "no variant serves this call: "
"""What the error of a strict call begins with."""
FOREIGN = "a tensor is nested, or of a class that answers for torch's functions itself"
FAILED = "torch failed in "
"""What the library's error begins with where torch has refused what it was asked for."""
TENSORS = ("query", "key", "value", "key_lengths")
SCALARS = frozenset({"is_causal", "enable_gqa", "corner"})
"""Options that variants are tuned with."""
OLDEST = (2, 10)
"""The oldest torch whose stable ABI has all that is called."""
_wants_gradients, _is_traced = torch.is_grad_enabled, torch.compiler.is_dynamo_compiling
"""Asked for in each call: found once."""


class NotServed(RuntimeError):
    """A strict op was called with what no variant serves."""


class Attention:
    """torch's scaled_dot_product_attention, served by the package's variants where one is proven and confirmed for the
    call. It may be called from several threads. The counters are of the process, whoever made the call."""

    def __init__(
        self,
        library: Library,
        beside: Beside,
        strict: bool,
        gradients: Literal["refuse", "torch"],
        copies: bool,
    ) -> None:
        """`load` makes one."""
        self.strict, self.gradients, self.copies = strict, gradients, copies
        self._library, self._arguments, self._is_usual = library, beside.arguments.arguments, beside.arguments.is_usual
        self._needs_gradient = beside.surroundings.needs_gradient
        self._may_have_tangents = beside.surroundings.may_have_tangents
        self._always = STRICT * strict | COPIES * copies
        self._must_see_an_op, self._alike = beside.surroundings.must_see_an_op, beside.alike.Alike
        self._unseen_by_guards = beside.surroundings.unseen_by_guards
        self._torch = beside.masked
        self._last: tuple[object, ...] | None = None
        self._vain: tuple[object, ...] | None = None
        self._known = beside.alike.Recent()
        self._latest: tuple[tuple[object, ...], Known] | None = None
        """Kinds of calls that the library was asked about: the last, and the last about which it must be; calls about
        which it need not be; and of the last one of these what it said and what it was like."""
        options = {"strict": strict, "gradients": gradients, "copies": copies}
        self.made_by: tuple[Callable[..., Any], tuple[Any, ...]] = _again, (__package__, options)
        """What makes such a one again in another process, and what that is given."""
        self.op: Any = library.ops.sdpa.default
        """The op of torch.library. It refuses gradients itself."""
        self._served: Any = library.ops.served.default
        """The same without that. torch.compile sees a call as this one node, whatever the lengths."""
        self._quick: Any = getattr(self._served, "_op", self._served)
        """What `_served` calls in turn, where torch has it still: a step in Python less for each eager call."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        *,
        key_lengths: Tensor | None = None,
        corner: str = "top_left",
    ) -> Tensor:
        """As torch's function. Raises NotServed where a strict one does not serve it, and RuntimeError where a gradient
        is wanted and gradients are refused."""
        said = dropout_p, is_causal, scale, enable_gqa, corner
        plain = type(query) is type(key) is type(value) is Tensor
        if not _is_traced() and self._latest is not None:  # in place: a model waits for each step
            before, known = self._latest
            alone = plain and attn_mask is key_lengths is None
            if alone and said == before and known.are(query, key, value) and not self._unseen_by_guards():
                answer = known.serve((query, key, value))
                if answer is not None:
                    return answer
            self._latest = None
        # What most models say is asked for here, one by one, without the calls and the dictionaries of the general way.
        if (
            attn_mask is None
            and (plain or all(isinstance(each, Tensor) for each in (query, key, value)))
            and not dropout_p
            and (scale is None or self._is_usual(scale, query))
            and (corner == "top_left" or not is_causal)
            and not (_wants_gradients() and (query.requires_grad or key.requires_grad or value.requires_grad))
            and (query.is_cuda or query.is_cpu)
        ):
            how: int = self._always
            if is_causal:
                how |= CAUSAL
            if enable_gqa:
                how |= GROUPS
            if _is_traced():
                return self._answer(query, key, value, how, key_lengths)
            if plain and not self._may_have_tangents():
                return self._eager(query, key, value, how, key_lengths, said)
        scalars = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        more = {"attn_mask": attn_mask, "key_lengths": key_lengths, "corner": corner}
        return self._any(*self._arguments(query, key, value, **scalars, **more))

    def _eager(
        self, query: Tensor, key: Tensor, value: Tensor, how: int, lengths: Tensor | None, said: tuple[object, ...]
    ) -> Tensor:
        """A call that needs no gradient and is not traced."""
        tensors, alone = (query, key, value), lengths is None and not self._must_see_an_op()
        if alone:
            for known in self._known.of(query):
                if known.how == how and known.are(*tensors):
                    self._latest = said, known
                    answer: Tensor | None = known.serve(tensors)
                    if answer is not None:
                        return answer
                    alone = False  # the variant refused these tensors, and what is like them is known
                    break
        try:
            found: Tensor = self._quick(query, key, value, how, lengths, None)
        except RuntimeError as error:
            return self._failed(error, query, key, value, how, lengths)
        if alone:
            self._look(tensors, how)
        return found

    def _look(self, tensors: tuple[Tensor, Tensor, Tensor], how: int) -> None:
        """After a call that the library was asked about: whether it need not be about those like it, if the last was of
        its kind. Asked for once: where it must be, or nothing can be told alike, it is for all of the kind."""
        kind, last = (how, tensors[0].shape, tensors[1].shape), self._last
        if kind == self._vain:
            return
        self._last = kind
        if kind == last:
            alike = self._alike(tensors)
            known = self._library.known(tensors, how, alike.are) if alike.is_guarded else None
            if known is not None:
                self._known.put_first(tensors[0], known)
            else:
                self._vain = kind

    def _any(self, tensors: tuple[Tensor, ...], options: Mapping[str, Any], beside: Mapping[str, Any]) -> Tensor:
        why = self._why_not(tensors, options)
        if why is not None:
            if why is GRADIENT and self.gradients == "refuse":
                raise RuntimeError(NO_GRADIENT)
            return self._aside(tensors, {**options, **beside}, why)
        query, key, value, *lengths = tensors
        how = self._always | _how(options)
        return self._answer(query, key, value, how, lengths[0] if lengths else None, **beside)

    def _answer(
        self, query: Tensor, key: Tensor, value: Tensor, how: int, lengths: Tensor | None, **beside: Tensor
    ) -> Tensor:
        try:
            found: Tensor = self._served(query, key, value, how, lengths, **beside)
        except RuntimeError as error:
            return self._failed(error, query, key, value, how, lengths, **beside)
        return found

    def _failed(
        self,
        error: RuntimeError,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        how: int,
        lengths: Tensor | None,
        **beside: Tensor,
    ) -> Tensor:
        """Raises NotServed where no variant serves a strict call. What torch has failed in it is asked for once more:
        only torch says what is wrong, and to the library it does not."""
        said = str(error).partition("\n")[0]
        if said.startswith(REFUSED):
            raise NotServed(said) from None
        foreign = isinstance(error, NotImplementedError)  # there is no kernel of the op for such tensors
        if foreign and self.strict:
            raise NotServed(f"{REFUSED}{FOREIGN}") from None
        if not foreign and not said.startswith(FAILED):
            raise error
        options = {"is_causal": bool(how & CAUSAL), "enable_gqa": bool(how & GROUPS), "key_lengths": lengths}
        corner = "bottom_right" if how & BOTTOM_RIGHT_CORNER else "top_left"
        found: Tensor = self._torch(query, key, value, corner=corner, **options, **beside)
        return found

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Which variant would serve such a call, or why torch would. Nothing is computed, nothing counted."""
        tensors, options, _ = self._arguments(*args, **kwargs)
        why = self._why_not(tensors, options)
        if why is not None:
            return Explanation(None, why)
        return self._library.explained(self._library.ops.choice(*tensors, copies=self.copies, **options))

    def __deepcopy__(self, _: object) -> Attention:
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
        if self._needs_gradient(tensors):
            return GRADIENT
        if torch.overrides.has_torch_function(tensors):
            return FOREIGN
        others = set(options) - SCALARS if options else None  # torch 2.11 cannot compile a difference of a dict's keys
        if others:
            return f"{', '.join(sorted(others))} is not supported"
        query = tensors[0]
        return None if query.is_cuda or query.is_cpu else f"the tensors are on {query.device.type}"

    def _aside(self, tensors: tuple[Tensor, ...], options: Mapping[str, Any], why: str) -> Tensor:
        if self.strict:
            raise NotServed(f"{REFUSED}{why}")
        if not torch.compiler.is_compiling():
            self._library.aside[why] += 1
        # A class that answers for torch's functions knows torch's own.
        foreign = why is FOREIGN and len(tensors) == 3 and "corner" not in options
        function: Callable[..., Tensor] = torch.nn.functional.scaled_dot_product_attention if foreign else self._torch
        found: Tensor = function(**dict(zip(TENSORS, tensors, strict=False)), **options)
        return found


def _how(options: Mapping[str, Any]) -> int:
    """Options that variants are tuned with, as a number. Raises ValueError for a corner that there is not."""
    corner = options.get("corner", "top_left")
    if corner not in ("top_left", "bottom_right"):
        raise ValueError(f"corner is {corner!r}, expected top_left or bottom_right")
    bottom_right = BOTTOM_RIGHT_CORNER if corner == "bottom_right" else 0
    return CAUSAL * ("is_causal" in options) | GROUPS * ("enable_gqa" in options) | bottom_right


def opened(folder: Path, beside: Beside) -> Callable[..., Attention]:
    """The package's function `load`, its library loaded. Raises ImportError, one line, for another torch than it is
    made for."""
    export = _read(folder)
    library = Library(folder / export["library"], export["namespace"], export["variants"], beside)
    if not export["accelerator"]:
        why = _another_cpu(export, beside)
        if why is not None:
            library.elsewhere(why)

    def load(
        *, strict: bool = False, gradients: Literal["refuse", "torch"] = "refuse", copies: bool = False
    ) -> Attention:
        """The package's attention. With `strict` NotServed is raised where torch would serve a call. A call that needs
        a gradient is refused, or with `gradients="torch"` served by torch. With `copies`, strided tensors are copied to
        dense ones where a variant serves these."""
        if gradients not in ("refuse", "torch"):
            raise ValueError(f'gradients is {gradients!r}, expected "refuse" or "torch"')
        return Attention(library, beside, strict, gradients, copies)

    if export["accelerator"] and torch.cuda.is_available():
        _warmed(load(strict=True), export["warm"])
    return load


def _again(package: str, options: Mapping[str, Any]) -> Attention:
    """What a package that is installed here loads with these options."""
    found: Attention = importlib.import_module(package).load(**options)
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


def _another_cpu(export: Mapping[str, Any], beside: Beside) -> str | None:
    """Why nothing is proven on this CPU; None where it is like the proven one. Threads are asked for at each call."""
    here = beside.facts(0)
    for name, proven in export["proven_on"].items():
        if name != "THREADS_ALLOWED" and here.get(name) != proven:
            return f"proven on a device whose {name} is {proven}, here it is {here.get(name)}"
    missing = sorted(set(export["instructions"]) - set(beside.instructions()))
    return f"compiled for a CPU with {missing[0]}, which this one lacks" if missing else None


def _warmed(attention: Attention, problems: list[dict[str, Any]]) -> None:
    """Runs each variant once on the current device, where it is proven there, so that all code is on the device before
    a graph is captured."""
    with torch.no_grad():
        for each in problems:
            tensors = _zeros(each["query"], each["key"], each["layout"], getattr(torch, each["dtype"]))
            options = dict(each["options"])
            if each["key_lengths"]:
                options["key_lengths"] = torch.zeros(each["key"][0], dtype=torch.int32, device="cuda")
            if attention.explain(*tensors, **options).served:
                attention(*tensors, **options)
    attention.reset_counters()


def _zeros(query: list[int], key: list[int], layout: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Q, K and V of these sizes that lie as the layout says."""
    if layout == "bhsd":
        return tuple(torch.zeros(size, dtype=dtype, device="cuda") for size in (query, key, key))  # type: ignore[return-value]
    batch, heads, length, width = key
    k, v = torch.zeros(2, batch, length, heads, width, dtype=dtype, device="cuda").transpose(2, 3)
    q = torch.zeros(query[0], query[2], query[1], query[3], dtype=dtype, device="cuda").transpose(1, 2)
    return q, k, v.clone(memory_format=torch.preserve_format) if layout == "bshd" else v
