"""An export in a user's program: tuned variants serve the calls of torch's function, or torch does, and it says why.

What a kind of call needs is found out once and remembered. A call of a kind that is known takes one look into a
dictionary, an empty result and a launch; one that is like a call of before needs no such look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from autotuner.build.status import OUTSIDE_DOMAIN
from autotuner.inference.before import Before
from autotuner.inference.calls import GRADIENT, NO_GRADIENT, as_dense, why_not
from autotuner.inference.plans import ADDRESS, Plan, Plans, Tallies, kind_of
from autotuner.inference.variants import Ready, broken, serving
from autotuner.ops import OPS
from autotuner.ops.alike import Recent
from autotuner.ops.surroundings import (
    autocast_is_on,
    cast_to_autocast,
    must_see_an_op,
    needs_gradient,
    unseen_by_guards,
)
from autotuner.ops.tensors import Tensors
from autotuner.values.errors import InputError
from autotuner.values.table import Matcher, Table

ALIGNMENT = 16
"""Bytes to which the address of each tensor must be aligned."""
UNALIGNED = f"a tensor is not aligned to {ALIGNMENT} bytes"
_is_compiled, _grad_is_on, _empty_like = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled, torch.empty_like
"""Asked for in each call: found once."""
FOREIGN = "a tensor is nested, or of a class that answers for torch's functions itself"


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
        self._arguments = self.function.arguments
        self._empty, self._stream, self._on = self.function.empty, self._serving.stream, self._serving.on
        self._plans = Plans()
        """By tensors and options."""
        self._last: tuple[object, ...] = ()
        self._before = Recent[Before]()
        self._latest: Before | None = None
        """The last call that was looked up, its plan and the names of its arguments; what calls are compared with, of
        two that had to be looked up in turn and are alike the second; and of these the one that came last."""
        self._tallies = Tallies()
        self.op: Any = None
        """The same as an op of torch.library; torch.compile sees it as one node."""
        self.made_by: tuple[Callable[..., Loaded], tuple[Any, ...]] | None = None
        """What makes such a one again in another process, and what that is given."""

    # Calls ------------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """As torch's function. Raises NotServed where a strict one does not serve it, and InputError where a gradient
        is wanted and gradients are refused."""
        if _is_compiled():
            return self._as_op(*self._arguments(*args, **kwargs))
        before = self._latest
        if before is None or not before.comes_again(args, kwargs):
            if must_see_an_op():
                return self._as_op(*self._arguments(*args, **kwargs))
            before = self._latest = self._known(args, kwargs)
        elif unseen_by_guards():
            return self._as_op(*self._arguments(*args, **kwargs))
        if before is not None:
            named = before.named
            if named is not None and not self.strict:  # in place: a model waits for each step
                before.plan.tally.calls += 1
                return self._own(*args, **(before.told(kwargs) if before.names else named))
            found = self._as_before(before, args, kwargs)
            if found is not None:
                return found
        tensors, options, beside = self._arguments(*args, **kwargs)
        if _grad_is_on() and needs_gradient(tensors):
            if self.gradients == "refuse":
                raise InputError(NO_GRADIENT)
            return self._by_torch(tensors, options, beside, GRADIENT)
        plan = self._plan(tensors, options)
        found = None if plan.variant is None else self._by_variant(plan, tensors, options)
        if found is None:
            found = self._by_torch(tensors, options, beside, self._why(plan, tensors))
        self._remember(plan, args, kwargs, tensors, options)
        return found

    def _known(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Before | None:
        """A call of before that this one is like."""
        known = self._before.of(args[0] if args else None)
        for before in known:
            if before.comes_again(args, kwargs):
                if before is not known[0]:  # the next layer's call will be like it
                    self._before.put_first(args[0], before)
                return before
        return None

    def _as_before(self, before: Before, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
        """None where the variant does not take the call, or torch would have to serve it and must not."""
        plan = before.plan
        if plan.variant is not None:
            return self._by_variant(plan, before.tensors(args, kwargs), before.options)
        if self.strict:
            return None
        plan.tally.calls += 1
        return self._torch(*args, **kwargs)

    def _remember(
        self, plan: Plan, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Tensors, options: Mapping[str, Any]
    ) -> None:
        """A guard costs more than it saves once, so it is made for the second of two calls."""
        if not plan.may_come_again:
            return
        this = plan, len(args), *kwargs
        if this != self._last:
            self._last = this
            return
        before = Before(plan, args, kwargs, tensors, options)
        if not before.is_guarded:
            plan.may_come_again = False
            return
        if plan.variant is None and not self.function.uses_added(tensors, options):
            before.named = before.options
        self._before.put_first(args[0], before)

    def _as_op(self, tensors: Tensors, options: Mapping[str, Any], beside: Mapping[str, Any]) -> Tensor:
        """What torch.compile and others trace: one node. Who serves it is decided when it runs, so that no length is
        compiled in; what an op cannot be given is torch's at once, and is not counted."""
        if needs_gradient(tensors):
            if self.gradients == "torch":
                return self._torch(**self.function.called(tensors, options), **beside)
            if not torch.compiler.is_compiling():
                raise InputError(NO_GRADIENT)
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
        plan = self._plan(tensors, options)
        found = None if plan.variant is None else self._by_variant(plan, tensors, options)
        if found is not None:
            return found, True
        return self._by_torch(tensors, options, beside, self._why(plan, tensors)), False

    def _by_variant(self, plan: Plan, tensors: Tensors, options: Mapping[str, Any]) -> Tensor | None:
        """Counted; None where the variant does not take the call."""
        if plan.copies:
            tensors = tuple([each.contiguous() for each in tensors])
        out = _empty_like(tensors[0]) if plan.like_first else self._empty(*tensors, **options)
        index = plan.index
        around = self._on(index)
        if around is None:
            status = self._launched(plan, tensors, out, index)
        else:
            with around:
                status = self._launched(plan, tensors, out, index)
        if status == 0:
            plan.tally.calls += 1
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
        self._tallies[why].calls += 1
        # A class that answers for torch's functions knows torch's own.
        foreign = why is FOREIGN and not self.function.uses_added(tensors, options)
        function = self._own if foreign else self._torch
        return function(**self.function.called(tensors, options), **beside)

    @staticmethod
    def _why(plan: Plan, tensors: Tensors) -> str:
        """Why no variant has taken a call: there is none, or it has refused it."""
        if plan.variant is None:
            return plan.why
        aligned = all(each.data_ptr() % ALIGNMENT == 0 for each in tensors if each.is_floating_point())
        return "the variant refused the call" if aligned else UNALIGNED

    # A model that holds it can be copied and saved --------------------------------------------------------------------

    def __deepcopy__(self, _: object) -> Loaded:
        return self

    def __reduce__(self) -> tuple[Callable[..., Loaded], tuple[Any, ...]]:
        assert self.made_by is not None, "only what `load` has made knows its file"
        return self.made_by

    # What serves a call -----------------------------------------------------------------------------------------------

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Which variant would serve such a call, or why torch would. Nothing is computed, nothing counted."""
        tensors, options, _ = self.function.arguments(*args, **kwargs)
        if needs_gradient(tensors):
            return Explanation(None, GRADIENT)
        if autocast_is_on():
            tensors = cast_to_autocast(tensors)
        plan = self._plan(tensors, options)
        return Explanation(plan.name or None, plan.why)

    @property
    def counters(self) -> Mapping[str, int]:
        """Calls by the variant that served them, or by the reason why torch did; the most frequent first."""
        return MappingProxyType(dict(self._tallies.counted().most_common()))

    @property
    def served(self) -> float:
        """Share of the calls that variants served, 0..1; 0 before the first."""
        names = {str(each.of.variant) for each in self._variants.values()}
        counted = self._tallies.counted()
        return sum(counted[name] for name in names) / counted.total() if counted else 0.0

    def reset_counters(self) -> None:
        """Counts from 0 again."""
        self._tallies.reset()

    def _plan(self, tensors: Tensors, options: Mapping[str, Any]) -> Plan:
        """Remembered by all that it depends on."""
        try:
            kind = kind_of(tensors, options)
        except (RuntimeError, AttributeError):  # a nested tensor has no sizes
            return Plan(FOREIGN)
        plan = self._plans.of(kind)
        if plan is None:
            plan = self._planned(tensors, options)
            plan.tally = self._tallies[plan.name or plan.why]
            self._plans.keep(kind, plan)
        return plan

    def _planned(self, tensors: Tensors, options: Mapping[str, Any]) -> Plan:
        why = FOREIGN if torch.overrides.has_torch_function(tensors) else self._elsewhere(tensors)
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
