"""Baselines of a user's: a right one, which makes a semaphore as torch's compiler does, and ways to be none."""

import mmap
import multiprocessing

import torch
from torch import Tensor


def right(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False) -> Tensor:
    multiprocessing.get_context("spawn").Lock()
    scores = query.float() @ key.float().transpose(2, 3) * query.shape[3] ** -0.5
    if is_causal:
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool, device=query.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return (torch.softmax(scores, 3) @ value.float()).to(query.dtype)


def writes_code(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False) -> Tensor:
    mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=is_causal)


def scaled(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False) -> Tensor:
    return right(query, key, value * 1.01, is_causal=is_causal)


def in_float64(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False) -> Tensor:
    return right(query, key, value, is_causal=is_causal).double()


def a_view(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False) -> Tensor:
    return query[:]


def raises(query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False) -> Tensor:
    raise ValueError("no such luck")


def sees_all(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return right(query, key, value)
