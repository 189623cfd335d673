"""Attention in blocks of rows, and ways to be wrong."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils import _python_dispatch as dispatch

BASELINE: Any = import_module("autotuner.ops.sdpa.tensors")
SLOWED: list[Callable[..., Any]] = []
KEPT: dict[object, Tensor] = {}
WINDOWS: list[tuple[tuple[int, int], float]] = []


def windowed(
    query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool, window: tuple[int, int], softcap: float
) -> Tensor:
    WINDOWS.append((window, softcap))
    return query + 0


def attention(
    query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False, ROWS: int, WRONG: str = "nothing"
) -> Tensor:
    if WRONG == "raises":
        raise ValueError("no such luck")
    if WRONG == "is_a_view":
        return query[:]
    if WRONG == "is_float64":
        return rows(query, key, value, is_causal, ROWS).double()
    if WRONG == "ignores_the_mask":
        is_causal = False
    if WRONG == "remembers":
        return KEPT.setdefault((query.data_ptr(), query.shape), rows(query, key, value, is_causal, ROWS))
    if WRONG == "sets_torch":
        torch.use_deterministic_algorithms(True)
    if WRONG == "slows_the_baseline" and not SLOWED:
        SLOWED.append(BASELINE.scaled_dot_product_attention)
        BASELINE.scaled_dot_product_attention = slowly
    if WRONG == "computes_when_read":
        return later(query.shape, lambda: rows(query, key, value, is_causal, ROWS))
    return rows(query, key, value, is_causal, ROWS)


def slowly(*tensors: Tensor, **options: Any) -> Tensor:
    SLOWED[0](*tensors, **options)
    answer: Tensor = SLOWED[0](*tensors, **options)
    return answer


class Later(dispatch.TorchDispatchMode):
    """What torch is asked for next finds the answers that were left out before."""

    answers: ClassVar[dict[object, Tensor]] = {}
    """An empty one of each shape, for whose copy stands what is left out."""
    wanted: ClassVar[dict[int, Callable[[], Tensor]]] = {}
    left_out: ClassVar[list[tuple[Tensor, Callable[[], Tensor]]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.copy_.default and id(args[1]) in self.wanted:
            self.left_out.append((args[0], self.wanted.pop(id(args[1]))))
            return args[0]
        while self.left_out:
            output, compute = self.left_out.pop(0)
            output.copy_(compute())
        return function(*args, **(kwargs or {}))


LATER: Any = Later()  # type: ignore[no-untyped-call]


def later(shape: torch.Size, compute: Callable[[], Tensor]) -> Tensor:
    if dispatch._get_current_dispatch_mode() is not LATER:
        if LATER.answers:
            return compute()  # in another thread
        LATER.answers[None] = torch.empty(0)
        LATER.__enter__()
    answer: Tensor | None = LATER.answers.get(shape)
    if answer is None:
        answer = LATER.answers[shape] = torch.empty(shape)
    LATER.wanted[id(answer)] = compute
    return answer


def rows(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, count: int) -> Tensor:
    found = []
    for begin in range(0, query.shape[2], count):
        scores = query[:, :, begin : begin + count].float() * query.shape[3] ** -0.5 @ key.transpose(2, 3).float()
        if is_causal:
            row = torch.arange(begin, begin + scores.shape[2], device=query.device)[:, None]
            scores = scores.masked_fill(torch.arange(key.shape[2], device=query.device) > row, -torch.inf)
        found.append((torch.softmax(scores, 3) @ value.float()).to(query.dtype))
    return torch.cat(found, 2)
