"""An export in a user's program: tuned variants serve the calls of torch's function, or torch does, and it says why.

What a kind of call needs is found out once and remembered. A call of a kind that is known takes one look into a
dictionary, an empty result and a launch; one that is like a call of before needs no such look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from autotuner.inference.before import Before
from autotuner.inference.calls import GRADIENT, NO_GRADIENT, as_dense, dense, why_not
from autotuner.inference.plans import Plan, Plans, kind_of
from autotuner.inference.tallies import Tallies
from autotuner.inference.variants import Ready, serving
from autotuner.ops import OPS
from autotuner.ops.alike import Recent
from autotuner.ops.forward import Forward, empty_as, forward
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
_is_compiled, _grad_is_on = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
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
        if before is not None:  # in place: a model waits for each step
            plan = before.plan
            if plan.forward is not None:
                found = plan.forward(args if before.in_order else before.tensors(args, kwargs))
                if found is not None:
                    return found
            elif plan.variant is None and not self.strict:
                plan.tally.calls += 1
                if before.named is None:
                    return self._torch(*args, **kwargs)
                return self._own(*args, **(before.told(kwargs) if before.names else before.named))
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
        if plan.forward is None:
            plan.forward = self._forward(plan, tensors, options)
        return None if plan.forward is None else plan.forward(tensors)

    def _forward(self, plan: Plan, tensors: Tensors, options: Mapping[str, Any]) -> Forward | None:
        """None where an address is not aligned: nothing can be said of others then."""
        assert plan.variant is not None
        assert plan.problem is not None
        on, device = self._serving.on, tensors[0].device
        index = device.index or 0
        lie = as_dense(tensors) if plan.copies else tensors
        like = self.function.empty(*[torch.empty_like(each, device="meta") for each in lie], **options)
        with on(index) or nullcontext():
            empty = empty_as(like, device)
            given = dense(tensors) if plan.copies else tensors
            try:
                launch = plan.variant.launcher(plan.problem, given, (empty(),))
            except ValueError:
                return None
        made = forward(launch, empty, plan.tally, index, on, self._serving.stream)
        return (lambda tensors: made(dense(tensors))) if plan.copies else made

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
        return found

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
