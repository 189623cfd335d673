"""An export in a user's program: tuned variants serve the calls of torch's function, or torch does, and it says why."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch
from pydantic import ValidationError
from torch import Tensor

from autotuner.inference.calls import GRADIENT, as_dense, needs_gradient, why_not
from autotuner.inference.package import load_package
from autotuner.inference.variants import Ready, aligned, broken, ready, serving
from autotuner.ops import OPS
from autotuner.ops.op import TorchFunction
from autotuner.ops.tensors import Tensors
from autotuner.values.errors import InputError
from autotuner.values.files import read_regular, why
from autotuner.values.problem import Problem
from autotuner.values.table import Table, TableFile
from autotuner.values.validation import explanation
from autotuner.values.variant import digest_of

LARGEST_BYTES = 64 << 20
"""Of a file that is loaded, at most."""
REMEMBERED = 4096
"""Kinds of calls whose answer is remembered, at most; then all are forgotten."""


class NotServed(InputError):
    """A strict op was called with what no variant serves."""


class Explanation(NamedTuple):
    """What serves a call, and why."""

    variant: str | None
    """None: torch."""
    why: str

    @property
    def served(self) -> bool:
        """Whether a variant serves it."""
        return self.variant is not None


class _Plan(NamedTuple):
    """How a kind of call is answered."""

    why: str
    variant: Ready | None = None
    problem: Problem | None = None
    workspace_bytes: int = 0
    copies: bool = False


class Loaded:
    """An export as a function: it takes what torch's function takes, and returns the same.

    Each call is served by the variant that the table has for it, else by torch's function. It may be called from
    several threads.
    """

    def __init__(
        self,
        table: Table,
        variants: Mapping[str, Ready],
        strict: bool,
        gradients: Literal["refuse", "torch"],
        copies: bool,
    ) -> None:
        """`load` makes one."""
        op = OPS[table.op]
        if op.call is None or op.call.torch is None:
            raise InputError(f"{table.op} does not say which function of torch computes it, so no call of it is served")
        self.table = table
        self.strict, self.gradients, self.copies = strict, gradients, copies
        self._op, self._call, self._function = op, op.call, op.call.torch
        self._torch: Callable[..., Tensor] = self._function.function()
        self._variants, self._serving = variants, serving(table)
        self._entries = {each.problem: each for each in table.entries}
        self._plans: dict[object, _Plan] = {}
        self._counts: Counter[str] = Counter()
        self._here: dict[int, str | None] = {}
        self.op: Any = None
        """The same as an op of torch.library; torch.compile sees it as one node."""

    # Calls ------------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """As torch's function. Raises NotServed where a strict one does not serve it, and InputError where a gradient
        is wanted and gradients are refused."""
        tensors, options = self._function.arguments(*args, **kwargs)
        if torch.compiler.is_compiling():
            return self._compiled(tensors, options)
        return self._answer(tensors, options)

    def _compiled(self, tensors: Tensors, options: Mapping[str, Any]) -> Tensor:
        """What torch.compile traces: one node. Who serves it is decided when it runs, so that no length is compiled in;
        what an op cannot be given is torch's at once, and is not counted."""
        if needs_gradient(tensors) and self.gradients == "torch":
            return self._torch(*tensors, **options)
        if options.keys() <= self._function.scalars:
            found: Tensor = self.op(*tensors, **options)
            return found
        if self.strict:
            raise NotServed(f"no variant serves this call: {', '.join(options)}")
        return self._torch(*tensors, **options)

    def _answer(self, tensors: Tensors, options: Mapping[str, Any]) -> Tensor:
        if needs_gradient(tensors):
            if self.gradients == "refuse":
                raise InputError(f'{GRADIENT}, or load with gradients="torch"')
            return self._aside(tensors, options, GRADIENT)
        plan = self._plan(tensors, options)
        if plan.variant is None:
            return self._aside(tensors, options, plan.why)
        given = tuple([each.contiguous() for each in tensors]) if plan.copies else tensors
        if not aligned(given):
            return self._aside(tensors, options, "a tensor is not aligned to 16 bytes")
        return self._launch(plan, tensors, given, options)

    def _launch(self, plan: _Plan, tensors: Tensors, given: Tensors, options: Mapping[str, Any]) -> Tensor:
        assert plan.variant is not None
        assert plan.problem is not None
        out = self._function.empty(*given, **options)
        index = tensors[0].device.index or 0
        with self._serving.on(index):
            stream = self._serving.stream(index)
            status = plan.variant.launch(plan.problem, given, (out,), plan.workspace_bytes, stream)
        if status:
            if broken(status):
                raise RuntimeError(f"the variant {plan.variant.of.variant} ended with the device's error {status}")
            return self._aside(tensors, options, f"the variant refused the call, status {status}")
        self._counts[str(plan.variant.of.variant)] += 1
        return out

    def _aside(self, tensors: Tensors, options: Mapping[str, Any], reason: str) -> Tensor:
        if self.strict:
            raise NotServed(f"no variant serves this call: {reason}")
        self._counts[reason] += 1
        return self._torch(*tensors, **options)

    # What serves a call -----------------------------------------------------------------------------------------------

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Which variant would serve such a call, or why torch would. Nothing is computed, nothing counted."""
        tensors, options = self._function.arguments(*args, **kwargs)
        if needs_gradient(tensors):
            return Explanation(None, GRADIENT)
        plan = self._plan(tensors, options)
        return Explanation(None if plan.variant is None else str(plan.variant.of.variant), plan.why)

    @property
    def counters(self) -> Mapping[str, int]:
        """Calls by the variant that served them, or by the reason why torch did; the most frequent first."""
        return MappingProxyType(dict(self._counts.most_common()))

    @property
    def served(self) -> float:
        """Share of the calls that variants served, 0..1; 0 before the first."""
        names = {str(each.of.variant) for each in self._variants.values()}
        total = self._counts.total()
        return sum(count for name, count in self._counts.items() if name in names) / total if total else 0.0

    def reset_counters(self) -> None:
        """Counts from 0 again."""
        self._counts.clear()

    def _plan(self, tensors: Tensors, options: Mapping[str, Any]) -> _Plan:
        """Remembered by all that it depends on. A tensor among the options is never served."""
        first = tensors[0]
        key = (
            *[(each.shape, each.stride()) for each in tensors],
            *[(each.dtype, each.device) for each in tensors],
            *options.items(),
            None if all(each.is_contiguous() for each in tensors) else _sharing(tensors),
            torch.get_num_threads(),
        )
        try:
            plan = self._plans.get(key)
        except TypeError:  # an option that cannot be a key
            return self._planned(tensors, options)
        if plan is None:
            plan = self._planned(tensors, options)
            if len(self._plans) >= REMEMBERED:
                self._plans.clear()
            if not any(isinstance(each, Tensor) for each in options.values()) and first.device.type != "meta":
                self._plans[key] = plan
        return plan

    def _planned(self, tensors: Tensors, options: Mapping[str, Any]) -> _Plan:
        why = self._elsewhere(tensors)
        if why is not None:
            return _Plan(why)
        found = self._looked_up(tensors, options)
        if found.variant is None and self.copies and not all(each.is_contiguous() for each in tensors):
            dense = self._looked_up(as_dense(tensors), options)
            return dense._replace(copies=True) if dense.variant is not None else dense
        return found

    def _elsewhere(self, tensors: Tensors) -> str | None:
        """Why the tensors are not where the variants were proven; None where they are."""
        devices = {each.device for each in tensors}
        if len(devices) > 1 or len({each.dtype for each in tensors}) > 1:
            return "the tensors differ in device or element type"
        device = devices.pop()
        if device.type != self.table.device:
            return f"the tensors are on {device.type}, the variants are for {self.table.device}"
        here = self._serving.facts(device.index or 0)
        for name, proven in self.table.proven_on.items():
            if here.get(name) != proven:
                return f"proven on a device whose {name} is {proven}, here it is {here.get(name)}"
        return None

    def _looked_up(self, tensors: Tensors, options: Mapping[str, Any]) -> _Plan:
        try:
            problem = self._call.problem(tensors, options)
        except ValueError as error:
            return _Plan(why_not(error, self._op.problem))
        entry = self._entries.get(problem)
        if entry is not None:
            return self._served_by(entry.use, problem, entry.why)
        for each in self.table.ranges:
            if each.holds(problem):
                return self._served_by(
                    each.use, problem, f"between tuned problems, timed on {len(each.validated)} others"
                )
        return _Plan(f"{problem} was not tuned, and no variant is proven and timed around it")

    def _served_by(self, use: str | None, problem: Problem, why: str) -> _Plan:
        if use is None:
            return _Plan(why)
        variant = self._variants[use]
        return _Plan(why, variant, problem, variant.workspace_bytes(problem))


def load(
    path: str | Path,
    *,
    build: bool = False,
    strict: bool = False,
    gradients: Literal["refuse", "torch"] = "refuse",
    copies: bool = False,
) -> Loaded:
    """An export as a function that takes what torch's function takes: a file with a table, or a package's folder.

    Variants come from the cache of builds; with `build` those that are not there are built now, never later. Where no
    variant is proven and confirmed for a call, torch serves it; with `strict` NotServed is raised instead. A call that
    needs a gradient is refused, or with `gradients="torch"` served by torch. With `copies`, strided tensors that no
    variant takes as they lie are copied to dense ones, where a variant serves these; the result is dense then.

    A package has its variants in it: nothing is looked for or built.

    Raises InputError for a file that cannot be read, is damaged, or has no table, and where a variant is not built.
    """
    if gradients not in ("refuse", "torch"):
        raise InputError(f'gradients is {gradients!r}, expected "refuse" or "torch"')
    file = Path(path)
    if file.is_dir():
        found: Loaded = load_package(file, strict, gradients, copies)  # it answers as one does, but has no `table`
        return found
    table = _read(file)
    variants = ready(table, file.absolute().parent, build)
    loaded = Loaded(table, variants, strict, gradients, copies)
    settings = [digest_of(table.model_dump(mode="json")), strict, gradients, copies]
    loaded.op = _registered(loaded, hashlib.sha256(repr(settings).encode()).hexdigest()[:12])
    return loaded


def _sharing(tensors: Tensors) -> tuple[bool, ...]:
    """Which tensors are views of the same memory as the one before, from another place on: to an op that may
    be another problem."""
    return tuple(
        one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() and one.data_ptr() != other.data_ptr()
        for one, other in pairwise(tensors)
    )


def _read(file: Path) -> Table:
    """The table of an export. Raises InputError, one line."""
    try:
        found = TableFile.model_validate_json(read_regular(file, LARGEST_BYTES))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {why(error)}") from None
    except ValidationError as error:
        said = " ".join(explanation(error, TableFile).split())
        raise InputError(f"{file}: no export with a table: {said}; write one with `autotuner export`") from None
    if digest_of(found.table.model_dump(mode="json")) != found.table_digest:
        raise InputError(f"{file}: damaged: its table is not the one of its digest; export it again")
    return found.table


_LIVE: dict[str, Loaded] = {}
"""By the name of its op: which of those that were loaded answers it. The last one of a table and its settings does."""


def _registered(loaded: Loaded, digest: str) -> Any:
    """The op of torch.library for a table and its settings: the same name in every process, for what torch.compile
    keeps. Its result lies as `TorchFunction.empty` says, whoever serves it."""
    table, function = loaded.table, loaded._function
    name = f"autotuner::{table.op}_{digest}"
    known = name in _LIVE
    _LIVE[name] = loaded
    if known:
        return _op_of(name)

    def forward(*tensors: Tensor, **options: Any) -> Tensor:
        with torch.no_grad():  # a gradient is refused by the op's backward, or was by the caller
            found = _LIVE[name]._answer(tensors, _said(function, options))
        if found.is_contiguous() and all(each.is_contiguous() for each in tensors):
            return found
        lies = function.empty(*[torch.empty_like(each, device="meta") for each in tensors], **options)
        return found if found.stride() == lies.stride() else _like(found, lies)

    def fake(*tensors: Tensor, **options: Any) -> Tensor:
        return function.empty(*tensors, **options)

    made = torch.library.custom_op(name, forward, mutates_args=(), schema=function.schema)
    made.register_fake(fake)
    made.register_autograd(_no_backward)
    return _op_of(name)


def _op_of(name: str) -> Any:
    space, _, short = name.partition("::")
    return getattr(getattr(torch.ops, space), short).default


def _said(function: TorchFunction, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that change nothing, as `TorchFunction.arguments` gives them."""
    return {name: value for name, value in options.items() if value}


def _like(found: Tensor, lies: Tensor) -> Tensor:
    """The same numbers, laid as the other tensor is."""
    return torch.empty_strided(lies.shape, lies.stride(), dtype=found.dtype, device=found.device).copy_(found)


def _no_backward(_: Any, *__: Tensor) -> Any:
    raise InputError(f'{GRADIENT}, or load with gradients="torch"')
