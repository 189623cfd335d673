"""An op of rows in tensors, from its formula: inputs, float64 reference, low-precision emulation, torch's own."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from autotuner.ops import compiled, op_of
from autotuner.ops.op import Baseline, shape_of
from autotuner.ops.rows import RowProblem
from autotuner.ops.tensors import DTYPES, Symmetry, Tensors, shifted, sums_in_order
from autotuner.values.problem import Problem

ORDERS = 8
"""Orders of summation in which the float32 emulation is computed, as a single one may be lucky."""
ROWS = 32
"""Rows of a case in which that is done."""
TRIED = (6, 35)
"""The shape on which a formula is tried."""

aten: Any = torch.ops.aten


class RowTensors:
    """What `OpTensors` asks of an op, by its formula: a function of the inputs, and by name the scalars."""

    def __init__(
        self,
        kind: type[RowProblem],
        formula: Callable[..., Tensor],
        name: str = "torch",
        own: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        """`name`: of the formula as a baseline. `own`: distributions, as functions of standard normal inputs; such an
        op has the formula in float32 as a baseline, too."""
        self._kind, self._formula, self._own = kind, formula, own or {}
        both = frozenset({"cpu", "cuda"})

        def in_float32(problem: Problem) -> Callable[..., Tensors]:
            dtype = DTYPES[problem.dtype]
            return lambda *inputs: (self.of(problem, tuple(each.float() for each in inputs)).to(dtype),)

        self.BASELINES: Mapping[str, Baseline] = {
            name: Baseline(lambda problem: lambda *inputs: (self.of(problem, inputs),), both),
            **({} if own is None else {"float32": Baseline(in_float32, both)}),
            "compiled": Baseline(compiled.forward, both, is_made=compiled.is_made),
        }
        self.PEER = name if own is None else "float32"
        self.BETWEEN: Mapping[str, str] = {"cpu": name, "cuda": name}

    def of(self, problem: Problem, inputs: Tensors) -> Tensor:
        """The formula as it stands."""
        return self._formula(*inputs, **dict(zip(problem.SCALARS, problem.scalars, strict=True)))

    def module(self, problem: Problem, device: str) -> torch.nn.Module:
        """What the compiled baseline is made of."""
        return _Formula(self, problem)

    def inputs(self, problem: Problem, distribution: str, seed: int) -> Tensors:
        """Drawn in float32 and rounded to the problem's dtype; on the CPU. Same seed, same tensors."""
        generator = torch.Generator().manual_seed(seed)
        about = op_of(problem).inputs(problem)
        drawn = tuple(torch.randn(shape_of(each, problem), generator=generator) for each in about)
        if distribution == "sizes":
            powers = 2.0 ** torch.randint(-5, 6, (problem.shape[0], 1), generator=generator)
            drawn = tuple(each * powers if each.dim() > 1 else each for each in drawn)
        elif distribution == "equal":
            drawn = tuple(each[:, :1].expand_as(each) if each.dim() > 1 else each for each in drawn)
        elif distribution in self._own:
            found = self._own[distribution](*drawn)
            found = found if isinstance(found, tuple) else (found,)
            has, due = ([tuple(each.shape) for each in some] for some in (found, drawn))
            if has != due:
                raise ValueError(f"{distribution}: it gives {has}, expected {due}")
            drawn = found
        return tuple(each.to(DTYPES[problem.dtype]).contiguous() for each in drawn)

    def fresh(self, problem: Problem, inputs: Tensors, seed: int) -> Tensors:
        """Other inputs, drawn as these."""
        return shifted(inputs, seed)

    def symmetry(self, problem: Problem, seed: int, sets: int, device: torch.device) -> Symmetry:
        """Of each set one."""
        return RowSymmetry(problem, self.signed, seed, sets, device)

    def outputs(self, problem: Problem, inputs: Tensors) -> Tensors:
        """An empty Y."""
        return tuple(inputs[0].new_empty(shape_of(each, problem)) for each in op_of(problem).outputs(problem))

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        """Y in float64."""
        return (self.of(problem, tuple(each.double() for each in inputs)),)

    def emulation(self, problem: Problem, inputs: Tensors) -> Tensors:
        """The formula in float32, sums term after term, its result rounded to the dtype. One of 16 bits is off by half
        an ulp more: a kernel may have rounded one number before."""
        mode: Any = _InOrder
        with mode():
            found = self.of(problem, tuple(each.float() for each in inputs)).double()
        rounded, eps = found.to(DTYPES[problem.dtype]).double(), torch.finfo(DTYPES[problem.dtype]).eps
        more = 0.0 if problem.dtype == "float32" else eps / 2
        return (rounded + more * torch.copysign(rounded, rounded - found),)

    def reordered(
        self, problem: Problem, inputs: Tensors, exact: Tensors
    ) -> Iterator[tuple[int, tuple[Tensor, ...], Tensor]]:
        """Only in float32 the sums are what rounds; in rows all over the case, where columns may change places."""
        if problem.dtype != "float32" or self._orders_columns:
            return
        device = inputs[0].device
        whole = exact[0].dim() == 1  # a number a row: these are one row of the output
        rows = len(inputs[0])
        where = torch.arange(rows) if whole else torch.linspace(0, rows - 1, min(ROWS, rows)).long()
        where = where.to(device)
        some = tuple(each[where] if each.dim() > 1 else each for each in inputs)
        for order in range(1, ORDERS):
            columns = torch.randperm(problem.shape[1], generator=torch.Generator().manual_seed(order)).to(device)
            (found,) = self.emulation(problem, tuple(each[..., columns] for each in some))
            yield 0, () if whole else (where,), found if whole else found[..., columns.argsort()]

    # What is known of the formula, by trying it in float64 ----------------------------------------------------------

    @cached_property
    def _tried(self) -> tuple[Problem, Tensors, Tensor]:
        problem = self._kind.model_validate({**dict(zip(self._kind.DIMS, TRIED, strict=True)), "dtype": "float32"})
        inputs = tuple(each.double() for each in self.inputs(problem, "randn", 1))
        return problem, inputs, self.of(problem, inputs)

    def require_rows(self) -> None:
        """Raises ValueError where it gives another shape than it should, none but zeros, or mixes rows; and whatever
        the formula raises."""
        problem, inputs, found = self._tried
        due = shape_of(op_of(problem).outputs(problem)[0], problem)
        if not isinstance(found, Tensor) or tuple(found.shape) != due:
            has = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"of inputs of {TRIED} it gives {has}, expected {due}")
        if not bool(found.isfinite().all()) or not bool(found.any()):
            raise ValueError("of normal inputs it gives no numbers but 0, or numbers that are not finite")
        if not all(map(torch.equal, inputs, (each.double() for each in self.inputs(problem, "randn", 1)))):
            raise ValueError("it changes its inputs; expected a function that leaves them as they are")
        if not torch.equal(self.of(problem, inputs), found):
            raise ValueError("of the same inputs it gives another result the second time")
        for name in self._own:
            told = self.of(problem, tuple(each.double() for each in self.inputs(problem, name, 1)))
            if not bool((told.isfinite() & (told != 0)).any()):
                raise ValueError(f"of its distribution {name} it gives no number but 0")
        some = tuple(each[1::2] if each.dim() > 1 else each for each in inputs)
        if not torch.allclose(self.of(problem, some), found[1::2]):
            raise ValueError("a row of its result depends on other rows; expected each row by itself")

    def _follows(self, place: int, factor: Tensor | float) -> bool:
        """Whether the output is multiplied by what that input is multiplied by."""
        problem, inputs, found = self._tried
        changed = tuple(factor * each if at == place else each for at, each in enumerate(inputs))
        due = factor * found if isinstance(factor, float) or found.dim() > 1 else found
        return torch.allclose(self.of(problem, changed), due, rtol=1e-12, atol=0)

    @property
    def scaled(self) -> list[int]:
        """The inputs that may be multiplied by a number: the output is, too."""
        return [
            place for place in range(len(self._tried[1])) if self._follows(place, -4.0) and self._follows(place, 3.0)
        ]

    @cached_property
    def signed(self) -> tuple[int, ...]:
        """The inputs whose columns may have other signs: those of the output have them, too."""
        signs = 1.0 - 2.0 * (torch.arange(TRIED[1]) % 3 == 0).double()
        several = self._tried[2].dim() > 1
        return tuple(place for place in range(len(self._tried[1])) if several and self._follows(place, signs))

    @cached_property
    def is_elementwise(self) -> bool:
        """Whether a number of the output follows from those at its place alone."""
        problem, inputs, found = self._tried
        changed = self.of(problem, tuple(each + (torch.arange(TRIED[1]) % 2 == 0) for each in inputs))
        return found.dim() > 1 and torch.equal(changed[:, 1::2], found[:, 1::2])

    @cached_property
    def _orders_columns(self) -> bool:
        """Whether columns that change places do not change places in the output alone."""
        problem, inputs, found = self._tried
        moved = self.of(problem, tuple(each.flip(-1) for each in inputs))
        return not torch.allclose(moved, found.flip(-1) if found.dim() > 1 else found)


class RowSymmetry:
    """Of every set the rows are permuted in an order of its own, and the columns of each input that may be `signed`
    have signs of their own.

    They are drawn where the sets are: those of small problems that are to be cold, thousands, take a CPU seconds.
    """

    def __init__(self, problem: Problem, signed: tuple[int, ...], seed: int, sets: int, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(seed)
        count, columns = problem.shape
        order = torch.randperm(count, generator=generator, device=device)
        shift = torch.randint(count, (sets, 1), generator=generator, device=device)
        self._rows = order[(torch.arange(count, device=device) + shift) % count]
        shape = (len(signed), sets, columns)
        bits = torch.randint(2, shape, generator=generator, dtype=torch.int8, device=device)
        self._signs = dict(zip(signed, 2 * bits - 1, strict=True))

    def inputs(self, plain: Tensors, into: Tensors) -> None:
        for place, (tensor, other) in enumerate(zip(plain, into, strict=True)):
            self._move(tensor, tensor.dim() > 1, [self._signs[place]] if place in self._signs else [], other)

    def outputs(self, plain: Tensors, into: Tensors) -> None:
        self._move(plain[0], True, [*self._signs.values()], into[0])

    def _move(self, plain: Tensor, has_rows: bool, signs: list[Tensor], into: Tensor) -> None:
        into.copy_(plain[self._rows] if has_rows else plain)
        for each in signs:
            into.mul_((each.unsqueeze(1) if has_rows else each).to(plain.dtype))


class _Formula(torch.nn.Module):
    def __init__(self, tensors: RowTensors, problem: Problem) -> None:
        super().__init__()
        self._tensors, self._problem = tensors, problem

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._tensors.of(self._problem, inputs)


class _InOrder(TorchDispatchMode):
    """In the block sums over the last dimension add one float32 after the other, as the textbook does, and so do the
    means, variances, norms and softmax that are made of such sums."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = OF_SUMS.get(function)
        if made is not None:
            with self:
                return made(*args, **(kwargs or {}))
        if function is aten.sum.dim_IntList and args[0].dim() > 1 and [*args[1]] in ([-1], [args[0].dim() - 1]):
            found = sums_in_order(args[0])
            return found if (*args, False)[2] else found[..., 0]
        return function(*args, **(kwargs or {}))


def _mean(x: Tensor, dim: list[int], keepdim: bool = False, **_: Any) -> Tensor:
    return x.sum(dim, keepdim) / math.prod(x.shape[each] for each in dim)


def _var(x: Tensor, dim: list[int], correction: float = 1, keepdim: bool = False) -> Tensor:
    count = math.prod(x.shape[each] for each in dim)
    return (x - x.mean(dim, True)).square().sum(dim, keepdim) / (count - correction)


def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    weights = torch.exp(x - x.amax(dim, True))
    return weights / weights.sum(dim, True)


def _layer_norm(x: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensors:
    mean, var = x.mean(-1, True), x.var(-1, correction=0, keepdim=True)
    scale = torch.rsqrt(var + eps)
    found = (x - mean) * scale * (1 if weight is None else weight) + (0 if bias is None else bias)
    return found, mean, scale


OF_SUMS: Mapping[Any, Callable[..., Any]] = {
    aten.mean.dim: _mean,
    aten.var.correction: _var,
    aten._softmax.default: _softmax,
    aten.native_layer_norm.default: _layer_norm,
}
