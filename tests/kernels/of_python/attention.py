"""Attention in blocks of rows, and ways to be wrong."""

import torch
from torch import Tensor

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
    return rows(query, key, value, is_causal, ROWS)


def rows(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, count: int) -> Tensor:
    found = []
    for begin in range(0, query.shape[2], count):
        scores = query[:, :, begin : begin + count].float() * query.shape[3] ** -0.5 @ key.transpose(2, 3).float()
        if is_causal:
            row = torch.arange(begin, begin + scores.shape[2], device=query.device)[:, None]
            scores = scores.masked_fill(torch.arange(key.shape[2], device=query.device) > row, -torch.inf)
        found.append((torch.softmax(scores, 3) @ value.float()).to(query.dtype))
    return torch.cat(found, 2)
