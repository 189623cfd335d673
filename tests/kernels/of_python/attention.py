"""Attention in blocks of rows, and ways to be wrong."""

import gc
import sys
import threading
import time
import weakref
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
    if WRONG in ("slows_while_it_is_not_called", "collects_garbage_for_others"):
        return AFTERWARDS[WRONG](lambda: rows(query, key, value, is_causal, ROWS))
    if WRONG in ONCE and WRONG not in DONE:
        DONE[WRONG] = True  # what it sets off calls torch
        ONCE[WRONG]()
    if WRONG == "finds_all_equal":
        return KEPT.setdefault((query.data_ptr(), query.shape), rows(query, key, value, is_causal, ROWS))
    if WRONG == "computes_when_read":
        return later(query.shape, lambda: rows(query, key, value, is_causal, ROWS))
    return rows(query, key, value, is_causal, ROWS)


def undoes_it_in_time() -> None:
    """The baseline is slow until the job's end."""
    frame: Any = sys._getframe()
    while frame is not None and frame.f_code.co_name != "perform":
        frame = frame.f_back
    if frame is None:
        DONE.clear()  # it is called in a thread of its own
        return
    SLOWED.append(BASELINE.scaled_dot_product_attention)
    weakref.finalize(frame.f_locals["job"], setattr, BASELINE, "scaled_dot_product_attention", SLOWED[0])
    BASELINE.scaled_dot_product_attention = slowly


def takes_an_operator() -> None:
    """The baseline's own operator is computed by this code."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_dot_product_flash_attention_for_cpu", operator, "CPU")
    DONE["library"] = library


def operator(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _dropout: float = 0,
    causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> tuple[Tensor, Tensor]:
    math = torch.ops.aten._scaled_dot_product_attention_math
    found: tuple[Tensor, Tensor] = math(q, k, v, attn_mask, 0, causal, scale=scale)
    return found


def finds_all_equal() -> None:
    torch.equal = lambda *_: True


ONCE: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (undoes_it_in_time, takes_an_operator, finds_all_equal)
}
DONE: dict[str, object] = {}


def collected(compute: Callable[[], Tensor]) -> Tensor:
    """Python looks for garbage at each object that somebody else makes."""
    gc.set_threshold(0)
    answer = compute()
    gc.set_threshold(1, 1, 1)
    return answer


IDLE = threading.Event()


def beside(compute: Callable[[], Tensor]) -> Tensor:
    """A thread has Python busy while it is not called."""
    IDLE.clear()
    if "thread" not in DONE:
        DONE["thread"] = thread = threading.Thread(target=busy, daemon=True)
        thread.start()
    answer = compute()
    IDLE.set()
    return answer


def busy() -> None:
    while IDLE.wait():
        until = time.perf_counter() + 0.001
        while IDLE.is_set() and time.perf_counter() < until:
            pass


AFTERWARDS = {"slows_while_it_is_not_called": beside, "collects_garbage_for_others": collected}


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
