"""The dual reference: the op's baselines, pinned one at a time, against float64 on the gate's own cases."""

import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from autotuner.gate.cases import Case, Matrix, measured
from autotuner.gate.tolerance import Degenerate, Truths, its_own, judge
from autotuner.ops import op_of
from autotuner.ops.tensors import Tensors, on_threads
from autotuner.values.gate_report import ReferenceCheck
from autotuner.values.outcome import Say
from autotuner.values.problem import Problem


def names(problem: Problem, torch_device: str) -> tuple[str, ...]:
    """The op's baselines on a kind of torch device."""
    baselines = op_of(problem).baselines
    return tuple(name for name, each in baselines.items() if torch_device in each.devices and each.takes(problem))


def without_nan(inputs: Tensors) -> Tensors:
    """What nobody may look at is NaN in some cases. A baseline may multiply it by zero, so it gets zeros there."""
    return tuple(map(_without_nan, inputs))


def _without_nan(x: Tensor) -> Tensor:
    bytes_alone = x.itemsize == 1  # FP8 has few functions
    none = (x.float() if bytes_alone else x).isnan()
    if not bool(none.any()):
        return x
    return (x.view(torch.uint8) if bytes_alone else x).masked_fill(none, 0).view(x.dtype)


def answers(
    problem: Problem, inputs: Tensors, baselines: Sequence[str], timed: bool = False
) -> Iterator[tuple[str, Tensors | None]]:
    """What each baseline answers; None where it does not take the problem. Those that are made for each problem take
    one that is `timed`.

    What a baseline leaves open is as the op defines it. Raises InfrastructureError when the device has no memory left.
    """
    known = op_of(problem).baselines
    for name in baselines:
        if known[name].made_for_each and not timed:
            yield name, None
            continue
        try:
            with warnings.catch_warnings(action="ignore"):  # torch says at length why a kernel does not take it
                answer = known[name].answer(problem, inputs)
        except RuntimeError:
            yield name, None
        else:
            yield name, known[name].settled(problem, inputs, answer)


def sound(checks: Sequence[ReferenceCheck]) -> tuple[str, ...]:
    """The baselines that keep their own tolerance on every case that they take; all where none does so."""
    names = dict.fromkeys(check.backend for check in checks)
    unsound = {check.backend for check in checks if check.failed_rule is not None}
    rest = tuple(name for name in names if name not in unsound)
    return rest if any(check.errors for check in checks if check.backend in rest) else tuple(names)


def cases_of_all(problem: Problem) -> list[Case]:
    """Those on which every baseline is checked: that libraries compute right, of problems like this one. No variant is
    being judged: lengths around a usual tile stand for those around its own."""
    matrix, op = Matrix(problem), op_of(problem)
    every = (*matrix.quick(), *matrix.full(op.cases.tile({}, {})))
    return [case for case in every if case.distribution not in op.cases.beyond]


def reference_checks(
    problems: Sequence[Problem], baselines: Sequence[str], truths: Truths, seed: int, threads: int, say: Say
) -> tuple[ReferenceCheck, ...]:
    """Every baseline on the cases for all, and on the problems themselves where one is made for each problem.
    `threads`: of torch, as they are timed."""
    op = op_of(problems[0])
    cases = [(case, False) for case in cases_of_all(problems[0])]
    known = [op.baselines[name] for name in baselines]
    if any(each.made_for_each or each.own for each in known):
        cases += [(measured(problem), True) for problem in problems]
    checks: list[ReferenceCheck] = []
    for case, timed in cases:
        say(f"reference case {case.name}")
        try:
            expected = truths(case, seed)
        except Degenerate:
            continue
        due = any(bool(each.reference.isnan().any()) for each in expected.outputs)
        given = expected.inputs if due else without_nan(expected.inputs)
        with on_threads(threads):
            found = list(answers(case.problem, given, baselines, timed))
        for name, answer in found:
            judged = [] if answer is None else [judge(*pair) for pair in zip(answer, expected.outputs, strict=True)]
            if any(each.failed_rule for each in judged) and answer is not None:
                own = its_own(case, expected)
                judged = [judge(*pair) for pair in zip(answer, own.outputs, strict=True)]
            errors = max(judged, key=lambda each: each.worst_ratio, default=None)
            checks.append(ReferenceCheck(backend=name, case=case.name, errors=errors))
    return tuple(checks)
