"""Functions of Python that compute an op: how one is called, what its answer must be, and one as a baseline."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from autotuner.ops import op_of
from autotuner.ops.op import OWN, Baseline, shape_of
from autotuner.ops.surroundings import OPERATORS, SETTINGS
from autotuner.ops.tensors import Tensors, end_threads, full_of, moved, on_threads
from autotuner.values.errors import InputError
from autotuner.values.problem import Problem

Function = Callable[..., Any]
Problems = Iterable[Problem]
Call = tuple[Function, Mapping[str, Any]]
"""A function and its parameters."""
RUN = re.compile("^(?:CPU|CUDA|Autograd|Composite|Backend).*", re.MULTILINE)
"""What torch says of an operator's code for a device."""
PROGRAMS = 64
"""Programs that torch's compiler keeps of a function: of one more it would call the function as it stands."""


def called(function: Function, problem: Problem, inputs: Tensors) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, as the op's function in torch takes them, without options that the function has no name
    for: `lacks` says which of these it needs."""
    op = op_of(problem)
    if op.call is None:
        return inputs, dict(zip(problem.SCALARS, problem.scalars, strict=True))
    arguments, options = op.signature.called(inputs, op.torch.options(problem))
    taken = _named(function)
    return arguments, {name: value for name, value in options.items() if taken is None or name in taken}


def lacks(function: Function, problem: Problem) -> str | None:
    """The name of an option that the problem asks for and the function has no argument for."""
    op, taken = op_of(problem), _named(function)
    if op.call is None or taken is None:
        return None
    named = {*op.signature.called(op.inputs(problem), op.torch.options(problem))[1]} - {"enable_gqa"}  # shapes say that
    return next((each for each in sorted(named) if each not in taken), None)


def _named(function: Function) -> set[str] | None:
    """The names of its arguments; None where it takes any."""
    taken = inspect.signature(function).parameters.values()
    return None if any(each.kind is each.VAR_KEYWORD for each in taken) else {each.name for each in taken}


def wrong_answer(found: object, problem: Problem, inputs: Tensors) -> str | None:
    """What an answer has that is not as it must be, in words."""
    given = found if isinstance(found, tuple) else (found,)
    outputs = op_of(problem).outputs(problem)
    if len(given) != len(outputs) or not all(isinstance(each, torch.Tensor) for each in given):
        kinds = ", ".join(type(each).__name__ for each in given)
        return f"the function returned {kinds}, expected {len(outputs)} of torch's tensors"
    read = {each.untyped_storage().data_ptr() for each in inputs}
    for each, output in zip(given, outputs, strict=True):
        expected = {"shape": shape_of(output, problem), "dtype": f"torch.{output.dtype}", "device": inputs[0].device}
        for what, due in expected.items():
            has = getattr(each, what)
            if str(has if what != "shape" else tuple(has)) != str(due):
                said = tuple(has) if what == "shape" else has
                return f"the function returned a tensor of {what} {said}, expected {due}"
        if each.untyped_storage().data_ptr() in read:
            return "the function returned a view of its input"
    return None


def baseline(function: Function) -> Baseline:
    """A function as a baseline. What it raises, and an answer that is none, say that it does not take a problem."""

    def forward(problem: Problem) -> Callable[..., Tensors]:
        judged, missing = False, lacks(function, problem)

        def call(*inputs: Tensor) -> Tensors:
            nonlocal judged
            if missing is not None:
                raise RuntimeError(f"it has no argument {missing}")
            arguments, options = called(function, problem, inputs)
            try:
                with torch.no_grad():
                    found = function(*arguments, **options)
                if not judged and inputs[0].is_cuda and not torch.cuda.is_current_stream_capturing():
                    torch.cuda.synchronize()
            except RuntimeError as error:
                _require_device(function, problem, error)
                raise
            except Exception as error:  # whatever the function raises
                raise RuntimeError(f"it raised {type(error).__name__}: {error}") from error
            if not judged:
                wrong = wrong_answer(found, problem, inputs)
                if wrong is not None:
                    raise RuntimeError(wrong)
                judged = True
            return found if isinstance(found, tuple) else (found,)

        return call

    return Baseline(forward, frozenset({"cpu", "cuda"}), writes_code=True, own=function)  # what it calls may


def _require_device(function: Function, problem: Problem, error: Exception) -> None:
    """Raises InputError, which names the function, where it has broken the device: nothing goes on in this process. A
    launch of Triton's says so in an error that may be anything."""
    try:
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
    except torch.AcceleratorError as broken:
        error = broken
    if isinstance(error, torch.AcceleratorError) and full_of(error) is None:
        name, said = f"{function.__module__}:{function.__name__}", str(error).partition("\n")[0]
        raise InputError(f"{name} breaks the device on {problem} ({said}): mend it, or leave it out") from None


def take(functions: Mapping[str, Function]) -> None:
    """Makes them baselines of this process, by name."""
    OWN.update({name: baseline(function) for name, function in functions.items()})


def settings() -> dict[str, object]:
    """What torch and Python are set to for all that this process computes."""
    found = dict[str, object]()
    for each in SETTINGS:
        module, path, *arguments = each.replace(".", " ", 1).split()
        with suppress(RuntimeError):  # precision that is set by both of torch's interfaces
            value = attrgetter(path)(sys.modules[module])
            found[each] = value(*arguments) if callable(value) else value
    return found


def operators() -> dict[str, object]:
    """Whose code each of torch's own operators runs. What only traces programs is imported late, and is none."""
    core: Any = torch._C
    dumps = {each: core._dispatch_dump(each) for each in core._dispatch_get_all_op_names() if each.startswith("aten::")}
    return {OPERATORS: {each: hash(tuple(RUN.findall(dump))) for each, dump in dumps.items()}}


@contextmanager
def settings_kept(what: str, imports: bool = False) -> Iterator[None]:
    """Raises InputError where the block changes them, or torch's operators if it `imports`: all others would be timed
    so, too."""
    before = settings() | (operators() if imports else {})
    yield
    after = settings() | (operators() if imports else {})
    if changed := [name for name, value in before.items() if after.get(name) != value]:
        raise InputError(f"{what} changes {', '.join(changed)} for all: take that back, or leave it out")


def compile_first(calls: Iterable[Call], tuned: Problems, rest: Problems, device: str, threads: int) -> None:
    """Calls each function with its parameters once for every problem, so that what compiles does so now: in a cage it
    could not. For the tuned problems it compiles one program each, which later calls find first; the others may share
    one. What raises here does so again where it is judged."""
    frames: Any = torch._C._dynamo.eval_frame
    frames._set_lru_cache(False)
    wanted = [(problem, count) for problem in tuned for count in dict.fromkeys((threads, 1))]
    several, known = [(problem, 1) for problem in rest], [*calls]
    for place, (problem, count) in enumerate((*wanted, *several)):
        inputs = moved(op_of(problem).tensors().inputs(problem, op_of(problem).ordinary, 1), device)
        with on_threads(count), torch.no_grad(), _one_program_each(place < len(wanted)):
            for function, parameters in known:
                arguments, options = called(function, problem, inputs)
                try:
                    function(*arguments, **options, **parameters)
                    if device == "cuda":
                        torch.cuda.synchronize()
                except Exception as error:  # it is raised once more where it is judged
                    _require_device(function, problem, error)
    if device == "cpu":
        end_threads()


@contextmanager
def _one_program_each(wanted: bool) -> Iterator[None]:
    """In the block torch's compiler makes, or does not make, a program for each shape."""
    dynamo: Any = sys.modules.get("torch._dynamo.config")
    if dynamo is None:
        yield
        return
    dynamo.recompile_limit = PROGRAMS
    with dynamo.patch(automatic_dynamic_shapes=not wanted):
        yield
