"""Which calls a model makes: recorded while it runs, written as problems that `autotuner tune --problems` reads. And
the problem of one call."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from inspect import signature
from pathlib import Path
from statistics import median
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple, Self

import torch
from pydantic import ValidationError
from torch import Tensor
from torch.overrides import TorchFunctionMode, handle_torch_function
from torch.utils.benchmark import Timer

from autotuner.ops import OPS
from autotuner.ops.op import Op
from autotuner.serve.runtime.library import FOREIGN, GRADIENT
from autotuner.serve.runtime.surroundings import answers_itself, computed_in, needs_gradient
from autotuner.values.errors import InputError
from autotuner.values.files import regular_target, write_atomically
from autotuner.values.problem import Problem
from autotuner.values.validation import explanation, show

LOOKS, TIMED_S = 5, 0.03
"""How often each problem is run in turn to see what torch takes for it, and for how many seconds, at least."""


class TorchsOwn:
    """torch's function of an op, with the arguments that variants serve beside it; torch computes it. `record` hears of
    its calls."""

    def __init__(self, op: str) -> None:
        """`function` makes one. Raises InputError where there is no such op, or torch has no function for it."""
        known = {each.name: each for each in OPS.values() if each.call}
        known |= {each.signature.NAME: each for each in known.values()}
        if op not in known:
            raise InputError(f"torch has no function of {op!r} that is served; there are {', '.join(known)}")
        self.of, stated = known[op].name, known[op].signature
        self._arguments, self._compute = stated.arguments, stated.compute
        self.__name__, self.__doc__, self.__signature__ = op, self._arguments.__doc__, signature(self._arguments)

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """As torch's function."""
        tensors, options, beside = self._arguments(*args, **kwargs)
        if torch._C._is_torch_function_mode_enabled():  # autotuner.record() hears of the call
            return handle_torch_function(self, (), *args, **kwargs)
        return self._compute(tensors, options, beside)  # type: ignore[no-any-return]

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return function, (self.__name__,)


@cache
def function(op: str) -> TorchsOwn:
    """torch's function of an op by its own name or the op's, such as "rms_norm", with the arguments that
    variants serve beside it; torch computes it. A model that needs these calls it while it is recorded, and what `load`
    returns afterwards: both take the same.

    Raises InputError where there is no such op, or torch has no function for it.
    """
    return TorchsOwn(op)


def problem_of(op: Op, args: Sequence[Any], named: Mapping[str, Any]) -> Problem:
    """The problem of one call as torch computes it here: with the arguments of torch's function, where it has one, and
    the op's own options by name. Raises InputError where no kernel serves such a call."""
    try:
        return op.torch.problem(*_sorted(op.signature, args, named))
    except ValueError as error:
        raise InputError(f"{op.name}: {why_not(error, op.problem)}") from None


def _sorted(stated: ModuleType, args: Sequence[Any], said: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The tensors and the options of a call. Raises ValueError where the function does not take it."""
    known = signature(stated.arguments)
    own = {name: value for name, value in said.items() if name not in known.parameters}
    try:
        bound = known.bind(*args, **{name: value for name, value in said.items() if name not in own})
    except TypeError as error:
        raise ValueError(str(error)) from None
    for name in (*stated.TENSORS, *stated.MORE):
        value = bound.arguments.get(name, known.parameters[name].default)
        if value is not known.parameters[name].default and not isinstance(value, torch.Tensor):
            raise ValueError(f"{name}: found {show(value)}, expected a tensor")
    tensors, options, _ = stated.arguments(*bound.args, **bound.kwargs)
    return _cast(stated, tensors), {**options, **own}


def _cast(stated: ModuleType, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """As torch computes with them here; without content where autocast casts. None for one that is not there."""

    def cast(each: Tensor) -> Tensor:
        dtype = computed_in(each) if stated.AUTOCAST else each.dtype
        return each if each.dtype == dtype else torch.empty_like(each, dtype=dtype, device="meta")

    return tuple(None if each is None else cast(each) for each in tensors)


class Called(NamedTuple):
    """A problem of one of our ops, and the kind of device it was called on."""

    problem: Problem
    device: str


class Refused(NamedTuple):
    """A call that no problem stands for, and why."""

    call: str
    why: str


class Calls:
    """The calls of a recording, the most frequent first, and what they are written as."""

    def __init__(self) -> None:
        self._last: tuple[Called, float] | None = None
        """The last call that counts, and when it began."""
        self._between_s: dict[Called, list[float]] = {}
        """Of each problem the seconds from the begin of a call to that of the next one, or to the end of the block."""
        self._served: Counter[Called] = Counter()
        self._refused: Counter[Refused] = Counter()

    @property
    def problems(self) -> Mapping[Problem, int]:
        """How often each problem was called."""
        found: Counter[Problem] = Counter()
        for (problem, _), count in self._served.items():
            found[problem] += count
        return MappingProxyType(dict(found.most_common()))

    @property
    def refused(self) -> Mapping[Refused, int]:
        """Calls that cannot be tuned for, why, and how often there were such."""
        return MappingProxyType(dict(self._refused.most_common()))

    def __len__(self) -> int:
        """All calls that were seen."""
        return self._served.total() + self._refused.total()

    def note(self, op: Op, args: Sequence[Any], named: Mapping[str, Any], dense: bool) -> None:
        """Counts a call, whatever it is given: nothing is raised, for the model would end with it."""
        self.ends_last()
        try:
            found = _read(op, args, named, dense)
        except Exception as error:  # of tensors of all kinds that there are
            said = " ".join(f"{type(error).__name__}: {error}".split())
            kinds = " ".join(type(each).__name__ for each in (*args, *named.values()))
            self._refused[Refused(kinds, said)] += 1
            return
        if isinstance(found, Called):
            self._served[found] += 1
            self._last = found, time.perf_counter()
        else:
            self._refused[found] += 1

    def ends_last(self) -> None:
        """Notes how long the last call and all after it took, once the device is idle."""
        if self._last is None:
            return
        call, began = self._last
        device = torch.get_device_module(call.device)
        if not getattr(device, "is_current_stream_capturing", bool)():  # else waiting would end the capture
            device.synchronize()
        self._between_s.setdefault(call, []).append(time.perf_counter() - began)
        self._last = None

    def write(self, path: str | Path = "problems.toml", op: str | None = None) -> Path:
        """Writes the problems with `count`, how often each was called, `us`, the microseconds that torch takes for it
        here: it is run now, on made-up tensors; and `between_us`, from one call to the next in the model. What cannot
        be tuned for stands in comments. A study is of one op: of a model that calls several, name the one.

        Raises InputError where nothing was recorded that can be tuned for.
        """
        target = Path(path)
        regular_target(target, "path")
        served = [each for each, _ in self._served.most_common() if op in (None, each.problem.op)]
        if not served:
            reasons = "; ".join(f"{each.call}: {each.why}" for each in list(self.refused)[:3])
            raise InputError(f"no call was recorded that can be tuned for{f' ({reasons})' if reasons else ''}")
        # What else runs on the machine makes a call longer, and mostly not for as long as all looks take.
        looks = [[microseconds(each) for each in served] for _ in range(LOOKS)]
        timed = [
            (each, self._served[each], median(us)) for each, us in zip(served, zip(*looks, strict=True), strict=True)
        ]
        timed.sort(key=lambda entry: -entry[1] * entry[2])
        write_atomically(target, "\n".join(self._lines(timed)))
        return target

    def _lines(self, timed: list[tuple[Called, int, float]]) -> Iterator[str]:
        yield f"# {len(self)} calls recorded. torch {torch.__version__}."
        for (call, why), count in self.refused.items():
            yield f"# not tuned for, {count} time{'s' * (count != 1)}: {call}: {why}"
        for (problem, device), count, us in timed:
            yield f"\n# {problem} on {device}"
            yield "[[problems]]"
            yield from (f"{name} = {json.dumps(value)}" for name, value in problem.model_dump().items())
            yield f"count = {count}"
            yield f"us = {us:.4g}"
            between = self._between_s[Called(problem, device)]
            # of the later half: the first calls of a process take longer, and one may take as long as many
            yield f"between_us = {1e6 * median(between[len(between) // 2 :]):.4g}"
        yield ""


def _read(op: Op, args: Sequence[Any], named: Mapping[str, Any], dense: bool) -> Called | Refused:
    """The problem of a call as torch computes it here, or why it has none."""
    given, options, _ = op.signature.arguments(*args, **named)
    tensors = _cast(op.signature, given)
    there = [each for each in given if each is not None]
    if needs_gradient(there):
        return Refused(described(tensors, options), GRADIENT)
    try:
        problem = op.torch.problem(as_dense(tensors) if dense else tensors, options)
    except ValueError as error:
        return Refused(described(tensors, options), why_not(error, op.problem))
    if answers_itself(there):
        return Refused(described(tensors, options), FOREIGN)
    return Called(problem, given[0].device.type)


class _Recorder(TorchFunctionMode):
    """Sees every function of torch that is called in its thread while it is on."""

    def __init__(self, calls: Calls, dense: bool) -> None:
        super().__init__()
        self._calls, self._dense = calls, dense
        self._ops: dict[Any, Op] = {}
        for op in OPS.values():
            if op.call is not None:
                within = getattr(op.signature, "WITHIN", None)
                for each in (op.signature.FUNCTION, function(op.name), function(op.signature.NAME), within):
                    self._ops[each] = op

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        op = self._ops.get(func)
        if op is not None:
            within = isinstance(func, torch._ops.OpOverload)
            given, named = op.signature.of_within(*args, **kwargs or {}) if within else (args, kwargs or {})
            self._calls.note(op, given, named, self._dense)
        return func(*args, **(kwargs or {}))


@contextmanager
def record(*, dense: bool = False) -> Iterator[Calls]:
    """Notes every call of an op that models make in the block, in this thread.

    With `dense`, strided tensors are noted as dense ones of the same sizes: what `load(..., copies=True)` serves. In
    the block torch.compile's functions run eagerly, since a compiled one hides its calls. What torch calls inside of
    its own nn.MultiheadAttention is hidden as well.
    """
    calls = Calls()
    with torch.compiler.set_stance("force_eager"), _Recorder(calls, dense):
        yield calls
        calls.ends_last()


def microseconds(served: Called) -> float:
    """What torch takes for a problem, as it chooses itself how to compute it: the median of some runs on one device."""
    op = OPS[served.problem.op]
    drawn = op.tensors().inputs(served.problem, op.ordinary, seed=0)
    inputs = tuple(each.to(served.device) for each in drawn)
    args, kwargs = op.signature.called(inputs, op.torch.options(served.problem))
    given = kwargs | op.torch.made_once(served.problem, inputs)
    scope = {"function": function(op.name), "args": args, "given": given}
    timer = Timer("function(*args, **given)", globals=scope, num_threads=torch.get_num_threads())
    with torch.no_grad():
        return 1e6 * timer.blocked_autorange(min_run_time=TIMED_S).median


# Calls in words -----------------------------------------------------------------------------------------------------


def as_dense(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of the same sizes and element types, dense; without content where they were not."""
    return tuple(
        each if each is None or each.is_contiguous() else torch.empty_like(each, device="meta").contiguous()
        for each in tensors
    )


def described(tensors: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    """A call in one line: sizes, element type, what else was given."""
    there = [each for each in tensors if each is not None]
    sizes = " ".join("nested" if each.is_nested else "x".join(map(str, each.shape)) for each in there)
    said = [
        f"{name}={'x'.join(map(str, of.shape))} {of.dtype}" if isinstance(of, Tensor) else f"{name}={of}"
        for name, of in options.items()
    ]
    return " ".join([sizes, str(tensors[0].dtype).removeprefix("torch."), *said])


def why_not(error: ValueError, problem: type[Problem]) -> str:
    """Why a call is none of an op's problems, in one line."""
    said = explanation(error, problem) if isinstance(error, ValidationError) else str(error)
    return " ".join(said.split())
