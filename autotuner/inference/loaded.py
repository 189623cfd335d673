"""An export in a user's program: tuned variants serve the calls of torch's function, or torch does, and it says why.

What a kind of call needs is found out once and remembered. A call of a kind that is known takes one look into a
dictionary, an empty result and a launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from autotuner.build.status import OUTSIDE_DOMAIN
from autotuner.inference.calls import GRADIENT, as_dense, needs_gradient, why_not
from autotuner.inference.plans import ADDRESS, Plan, Plans, kind_of, scalars
from autotuner.inference.variants import Ready, broken, serving
from autotuner.ops import OPS
from autotuner.ops.tensors import Tensors
from autotuner.values.errors import InputError
from autotuner.values.table import Matcher, Table

ALIGNMENT = 16
"""Bytes to which the address of each tensor must be aligned."""
UNALIGNED = f"a tensor is not aligned to {ALIGNMENT} bytes"


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
        self.function = op.call.torch
        self._op, self._call, self._matcher = op, op.call, Matcher(table)
        self._torch: Callable[..., Tensor] = self.function.ours()
        self._own: Callable[..., Tensor] = self.function.function()
        self._variants, self._serving = variants, serving(table)
        self._empty, self._stream, self._on = self.function.empty, self._serving.stream, self._serving.on
        self._plans = Plans()
        """By tensors and options."""
        self._torchs, self._torchs_turn = Plans(), False
        """Plans of calls that torch serves, by their arguments as they are, and whether the last one was such a call:
        then the next may be, and is given to torch as it is. A model must not wait for us where torch serves it."""
        self._counts: Counter[str] = Counter()
        self.op: Any = None
        """The same as an op of torch.library; torch.compile sees it as one node."""

    # Calls ------------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """As torch's function. Raises NotServed where a strict one does not serve it, and InputError where a gradient
        is wanted and gradients are refused."""
        if torch.compiler.is_compiling():
            return self._compiled(*self.function.arguments(*args, **kwargs))
        if self._torchs_turn and not self.strict and not torch.is_grad_enabled():
            plan = self._torchs.of(kind_of(args, kwargs))
            if plan is not None:
                self._counts[plan.why] += 1
                if plan.named is not None:
                    return self._own(*args, **plan.named)
                return self._torch(*args, **kwargs)
        tensors, options, beside = self.function.arguments(*args, **kwargs)
        if needs_gradient(tensors):
            if self.gradients == "refuse":
                raise InputError(f'{GRADIENT}, or load with gradients="torch"')
            return self._by_torch(tensors, options, beside, GRADIENT)
        plan = self._plan(tensors, options)
        found, by_variant = self._answered(plan, tensors, options, beside)
        self._torchs_turn = not by_variant
        if plan.variant is None and not torch.is_grad_enabled():
            handed = Plan(plan.why)
            if not self.function.uses_added(tensors, options):
                handed.named = scalars(args, kwargs, self.function.added)
            self._torchs.keep(kind_of(args, kwargs), handed)
        return found

    def _compiled(self, tensors: Tensors, options: Mapping[str, Any], beside: Mapping[str, Any]) -> Tensor:
        """What torch.compile traces: one node. Who serves it is decided when it runs, so that no length is compiled in;
        what an op cannot be given is torch's at once, and is not counted."""
        if needs_gradient(tensors) and self.gradients == "torch":
            return self._torch(**self.function.called(tensors, options), **beside)
        if options.keys() <= self.function.scalars:
            found: Tensor = self.op(*tensors, **options, **beside)
            return found
        if self.strict:
            raise NotServed(f"no variant serves this call: {', '.join(options)}")
        return self._torch(**self.function.called(tensors, options), **beside)

    def answer(self, tensors: Tensors, options: Mapping[str, Any], beside: Mapping[str, Any]) -> tuple[Tensor, bool]:
        """The result of a call that needs no gradient, and whether a variant computed it. What is `beside` says no more
        than tensors and options, and torch alone takes it. Raises NotServed where torch would have to serve and must
        not, and RuntimeError where a variant broke the device."""
        return self._answered(self._plan(tensors, options), tensors, options, beside)

    def _answered(
        self, plan: Plan, tensors: Tensors, options: Mapping[str, Any], beside: Mapping[str, Any]
    ) -> tuple[Tensor, bool]:
        if plan.variant is None:
            return self._by_torch(tensors, options, beside, plan.why), False
        found = self._by_variant(plan, tensors, options)
        if found is None:
            return self._by_torch(tensors, options, beside, self._refused(tensors)), False
        self._counts[plan.name] += 1
        return found, True

    def _by_variant(self, plan: Plan, tensors: Tensors, options: Mapping[str, Any]) -> Tensor | None:
        """None where the variant does not take the call."""
        if plan.copies:
            tensors = tuple([each.contiguous() for each in tensors])
        out = torch.empty_like(tensors[0]) if plan.like_first else self._empty(*tensors, **options)
        index = plan.index
        around = self._on(index)
        if around is None:
            status = self._launched(plan, tensors, out, index)
        else:
            with around:
                status = self._launched(plan, tensors, out, index)
        if status == 0:
            return out
        if broken(status):
            raise RuntimeError(f"the variant {plan.name} ended with the device's error {status}")
        return None

    def _launched(self, plan: Plan, tensors: Tensors, out: Tensor, index: int) -> int:
        """The variant's status."""
        addresses = (*map(ADDRESS, tensors), out.data_ptr())
        launcher = plan.launcher
        try:
            if launcher is None:
                assert plan.variant is not None
                assert plan.problem is not None
                launcher = plan.launcher = plan.variant.launcher(plan.problem, tensors, (out,))
            return launcher(addresses, self._stream(index))
        except ValueError:  # an address is not aligned
            return OUTSIDE_DOMAIN

    def _by_torch(self, tensors: Tensors, options: Mapping[str, Any], beside: Mapping[str, Any], why: str) -> Tensor:
        """Raises NotServed where torch must not."""
        if self.strict:
            raise NotServed(f"no variant serves this call: {why}")
        self._counts[why] += 1
        return self._torch(**self.function.called(tensors, options), **beside)

    @staticmethod
    def _refused(tensors: Tensors) -> str:
        """Why a call that the table has a variant for was not taken by it."""
        aligned = all(each.data_ptr() % ALIGNMENT == 0 for each in tensors if each.is_floating_point())
        return "the variant refused the call" if aligned else UNALIGNED

    # What serves a call -----------------------------------------------------------------------------------------------

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Which variant would serve such a call, or why torch would. Nothing is computed, nothing counted."""
        tensors, options, _ = self.function.arguments(*args, **kwargs)
        if needs_gradient(tensors):
            return Explanation(None, GRADIENT)
        plan = self._plan(tensors, options)
        return Explanation(plan.name or None, plan.why)

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

    def _plan(self, tensors: Tensors, options: Mapping[str, Any]) -> Plan:
        """Remembered by all that it depends on."""
        kind = kind_of(tensors, options)
        plan = self._plans.of(kind)
        if plan is None:
            plan = self._planned(tensors, options)
            self._plans.keep(kind, plan)
        return plan

    def _planned(self, tensors: Tensors, options: Mapping[str, Any]) -> Plan:
        why = self._elsewhere(tensors)
        if why is not None:
            return Plan(why)
        found = self._looked_up(tensors, options)
        if found.variant is None and self.copies and not all(each.is_contiguous() for each in tensors):
            found = self._looked_up(as_dense(tensors), options)
            found.copies = found.variant is not None
        if found.variant is not None:
            found.index = tensors[0].device.index or 0
            found.like_first = self._is_like_first(as_dense(tensors) if found.copies else tensors, options)
        return found

    def _is_like_first(self, tensors: Tensors, options: Mapping[str, Any]) -> bool:
        lie = [torch.empty_like(each, device="meta") for each in tensors]
        one, other = self._empty(*lie, **options), torch.empty_like(lie[0])
        return (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)

    def _elsewhere(self, tensors: Tensors) -> str | None:
        """Why the tensors are not where the variants were proven; None where they are."""
        devices = {each.device for each in tensors}
        if len(devices) > 1 or len({each.dtype for each in tensors if each.is_floating_point()}) > 1:
            return "the tensors differ in device or element type"
        device = devices.pop()
        if device.type != self.table.device:
            return f"the tensors are on {device.type}, the variants are for {self.table.device}"
        return self._matcher.elsewhere(self._serving.facts(device.index or 0))

    def _looked_up(self, tensors: Tensors, options: Mapping[str, Any]) -> Plan:
        try:
            problem = self._call.problem(tensors, options)
        except ValueError as error:
            return Plan(why_not(error, self._op.problem))
        use, why = self._matcher.answer(problem)
        return Plan(why) if use is None else Plan(why, self._variants[use], problem)
