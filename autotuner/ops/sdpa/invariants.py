"""What must hold of attention exactly, without a reference (G3): in 16 bits and more, and from FP8."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from autotuner.ops import op_of
from autotuner.ops.op import Relation
from autotuner.ops.sdpa.distributions import overlapping
from autotuner.ops.sdpa.masks import given, visible
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import Tensors, first_outputs, so_many_times, where_lost
from autotuner.values.problem import Problem

SUMS_FLOOR = 2.0**-19
"""How far two float32 sums of the same terms may differ by their order, relative to the sum."""


def scale_v(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """4 V gives exactly 4 O."""
    q, k, v, *more = inputs
    yield Relation((q, k, 4 * v, *more), so_many_times(4), "4 V does not give exactly 4 O")


def named(problem: Problem, inputs: Tensors) -> dict[str, Tensor]:
    """The inputs by name, in order."""
    return {each.name: tensor for each, tensor in zip(op_of(problem).inputs(problem), inputs, strict=True)}


def permute(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """Permuting batches and heads permutes O, nothing else."""
    of = cast(SdpaProblem, problem)
    generator = torch.Generator().manual_seed(seed)
    batches, heads_kv = (torch.randperm(n, generator=generator) for n in (of.batch, of.heads_kv))
    heads = (heads_kv.unsqueeze(1) * of.group + torch.arange(of.group)).flatten()
    orders = {"batch": batches, "heads": heads, "heads_kv": heads_kv}

    def turned(tensor: Tensor, of_dims: tuple[str | int, ...]) -> Tensor:
        found = tensor
        for dim, size in enumerate(of_dims):
            if size in orders:
                found = found[(slice(None),) * dim + (orders[str(size)],)]
        return found

    tensors = {each.name: turned(x, each.shape) for each, x in zip(op_of(problem).inputs(problem), inputs, strict=True)}
    if "bias" in tensors:
        tensors["bias"] = _lying_as(inputs[-1], tensors["bias"])

    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        return other[0], plain[0][batches.unsqueeze(1), heads]

    detail = "permuting the (batch, head) slices does not permute O"
    yield Relation(tuple(tensors.values()), compared, detail)


def _lying_as(like: Tensor, numbers: Tensor) -> Tensor:
    """A copy of the numbers whose rows begin where the others' do."""
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).copy_(numbers)


NOT_A_NUMBER = 0x7F
"""The byte of a NaN in FP8."""


def _changed(tensor: Tensor, rows: slice, times: float) -> Tensor:
    """The same with rows as many times as large; of FP8, which has no larger numbers, with the opposite ones."""
    other = tensor.clone()
    if tensor.dtype.itemsize == 1:
        other.view(torch.uint8)[:, :, rows].bitwise_xor_(0x80)
    else:
        other[:, :, rows] *= times
    return other


def hidden(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """Keys and values that a row does not see do not reach it: some at the end, some before. Large finite values, not
    NaN. Before a row's own key they may change what the row is rounded to: rows that guess at their maxima together go
    back together."""
    of, tensors = cast(SdpaProblem, problem), named(problem, inputs)
    k, v = tensors["K"], tensors["V"]
    seen = visible(of, tensors.get("key lengths"), k.device)
    assert seen is not None
    shortest, third = min(of.seq_q, of.seq_k), of.seq_k // 3
    ends = {(shortest // 2, of.seq_k), (max(1, shortest // 3 // 32 * 32), of.seq_k)}
    for begin, end in {(0, third), (third, 2 * third)} if of.windowed else ends:
        rows = slice(begin, end)
        others = {**tensors, "K": _changed(k, rows, -40), "V": _changed(v, rows, 1000)}
        reached = seen[..., begin:end].any(-1, keepdim=True)

        def compared(plain: Tensors, other: Tensors, reached: Tensor = reached) -> tuple[Tensor, Tensor]:
            return torch.where(reached, 0, other[0]), torch.where(reached, 0, plain[0])

        detail = f"changing the keys and values from {begin} to {end - 1} changes rows that see none of them"
        within = 4 * torch.finfo(v.dtype).eps if of.windowed else 0.0
        yield Relation(tuple(others.values()), compared, detail, within)


def ones(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """V = 1 gives O = 1: the weights of each row sum to 1. Sinks take none of it where they are -infinity."""
    q, k, v, *more = inputs
    of = cast(SdpaProblem, problem)
    if of.sinks != "none":
        more[of.key_lengths] = torch.full_like(more[of.key_lengths], -torch.inf)
    detail = "V = 1 does not give O = 1: the weights do not sum to 1"
    yield Relation((q, k, torch.ones_like(v), *more), are_ones, detail, within=torch.finfo(v.dtype).eps + SUMS_FLOOR)


def are_ones(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
    """What must be equal where the second O is 1, but for rows that see no key: these give 0 whatever V is."""
    blind = (plain[0] == 0).all(-1, keepdim=True)
    return other[0], torch.where(blind, 0, torch.ones_like(other[0]))


def stale(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """Keys and values past the length reach no row, whatever is there, of FP8 NaN: a cache holds what was there
    before."""
    tensors = named(problem, inputs)
    half = (tensors["key lengths"] + 1) // 2
    before = {**tensors, "key lengths": half}
    others = {**before, "K": tensors["K"].clone(), "V": tensors["V"].clone()}
    for batch, end in enumerate(half.tolist()):
        for name, times in (("K", -40), ("V", 1000)):
            if others[name].dtype.itemsize == 1:
                others[name].view(torch.uint8)[batch, :, end:] = NOT_A_NUMBER
            else:
                others[name][batch, :, end:] *= times
    detail = "changing keys and values past the length changes the output"
    yield Relation(tuple(others.values()), first_outputs, detail, before=tuple(before.values()))
    ends = torch.tensor([tensors["K"].shape[2], 0] * len(half), dtype=half.dtype, device=half.device)[: len(half)]
    before, others = ({**tensors, "key lengths": each} for each in (ends, torch.where(ends > 0, 3 * ends, -ends - 7)))
    detail = "more keys than there are, or fewer than none, are not taken for all and none"
    yield Relation(tuple(others.values()), first_outputs, detail, before=tuple(before.values()))


def one_tensor(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """K and V may be one tensor, and Q too where it is as large, or overlap: the bits of O are those of copies."""
    q, k, _, *more = inputs
    detail = "{} as one tensor give another result than copies of it"
    yield Relation((q, k, k, *more), first_outputs, detail.format("K and V"), before=(q, k, k.clone(), *more))
    if q.shape == k.shape:
        copies = (q, q.clone(), q.clone(), *more)
        yield Relation((q, q, q, *more), first_outputs, detail.format("Q, K and V"), before=copies)
    over = overlapping(cast(SdpaProblem, problem), *inputs[:3])
    apart = (*(x.clone() for x in over), *more)
    overlap = "Q, K and V that overlap give another result than copies of them"
    yield Relation((*over, *more), first_outputs, overlap, before=apart)


def spread(
    problem: Problem,
    inputs: Tensors,
    seed: int,
    values: Sequence[float] = (math.nan, math.inf),
    exact: Callable[[Any, Tensors], Tensors] = lambda of, inputs: inputs,
) -> Iterator[Relation]:
    """One number that is NaN or infinite reaches all that the definition computes from it, and no other slice.

    Within a slice more may be lost: tiles multiply values that a row does not see by a weight of 0, in torch's own
    kernels too. `exact`: from the inputs those that attention is computed of.
    """
    of = cast(SdpaProblem, problem)
    generator = torch.Generator().manual_seed(seed)
    for place, name in enumerate("QKV"):
        for value in values:
            batch, heads, _, columns = inputs[place].shape
            sizes = (batch, heads, min(of.seq_q, of.seq_k), columns)  # causal masks leave such keys to some rows
            at = tuple(int(torch.randint(size, (1,), generator=generator)) for size in sizes)
            planted = [*inputs]
            planted[place] = inputs[place].clone()
            if planted[place].dtype.itemsize == 1:
                planted[place].view(torch.uint8)[at] = NOT_A_NUMBER
            else:
                planted[place][at] = value
            due = where_due(of, exact(of, inputs), place, at, value)
            touched = torch.zeros(of.batch, of.heads, 1, 1, dtype=torch.bool, device=due.device)
            touched[at[0], heads_of(of, place, at[1])] = True

            detail = f"{value} in one number of {name} does not come out where it must, or changes another slice"
            yield Relation(tuple(planted), where_lost(due, touched), detail)
    if of.sinks != "none":
        yield _one_sink(of, inputs, int(torch.randint(of.heads, (1,), generator=generator)))
    if of.bias != "none":
        for value in (math.nan, math.inf) if of.bias != "alibi" else (math.nan,):
            yield _one_of_bias(of, inputs, int(torch.randint(of.heads, (1,), generator=generator)), value)


def _one_sink(of: SdpaProblem, inputs: Tensors, head: int) -> Relation:
    """The sink of one head is NaN: so is what its rows give, but for those that see no key."""
    place = 3 + of.key_lengths
    sinks, seen = inputs[place].clone(), visible(of, given(of, inputs).lengths, inputs[0].device)
    sinks[head] = torch.nan
    touched = torch.zeros(of.batch, of.heads, of.seq_q, 1, dtype=torch.bool, device=sinks.device)
    touched[:, head] = True
    due = touched if seen is None else touched & seen.any(-1, keepdim=True)
    detail = "NaN in one head's sink does not come out where it must, or changes another head"
    return Relation((*inputs[:place], sinks, *inputs[place + 1 :]), where_lost(due, touched), detail)


def _one_of_bias(of: SdpaProblem, inputs: Tensors, head: int, value: float) -> Relation:
    """A number of a head's bias, of the first batch's if each has one: the row of it that sees the key is lost; the
    slope of a head: all rows that see any."""
    planted = _lying_as(inputs[-1], inputs[-1])
    seen = visible(of, given(of, inputs).lengths, planted.device)
    if seen is None:
        seen = torch.ones(of.batch, 1, of.seq_q, of.seq_k, dtype=torch.bool, device=planted.device)
    due = torch.zeros(of.batch, of.heads, of.seq_q, 1, dtype=torch.bool, device=planted.device)
    if of.bias == "alibi":
        planted[head] = value
        due[:, head] = seen.any(-1).view(of.batch, -1, 1)
    else:
        row, key = seen[0, 0].nonzero()[len(seen[0, 0].nonzero()) // 2].tolist()
        planted[0, head, row, key] = value
        batches = slice(1 if of.bias == "full" else of.batch)
        due[batches, head, row, 0] = seen[batches, 0, row, key]
    detail = f"{value} in one head's bias does not come out where it must, or changes another slice"
    return Relation((*inputs[:-1], planted), where_lost(due, due.any(2, keepdim=True)), detail)


def heads_of(problem: SdpaProblem, place: int, head: int) -> slice:
    """The heads of O that come from a head of Q, K or V (place 0, 1 or 2)."""
    size = 1 if place == 0 else problem.group
    return slice(head * size, (head + 1) * size)


def where_due(problem: SdpaProblem, inputs: Tensors, place: int, at: tuple[int, ...], value: float) -> Tensor:
    """Where O cannot be finite when a number of Q, K or V (place 0, 1 or 2) is `value`; of O's shape."""

    q, k, *_ = inputs
    batch, head, row, column = at
    seen = visible(problem, given(problem, inputs).lengths, q.device)
    sizes = (problem.seq_q, problem.seq_k)
    seen = torch.ones(sizes, dtype=torch.bool, device=q.device) if seen is None else seen[batch, 0]
    due = torch.zeros(problem.batch, problem.heads, problem.seq_q, problem.head_dim, dtype=torch.bool, device=q.device)
    # A score of minus infinity is a weight of 0, and a row of such may count as one that sees no key.
    infinite = value == value
    if infinite and problem.softcapped and place < 2:
        return due  # an infinite score is capped
    if place == 0:
        reached = k[batch, head // problem.group, :, column] > 0 if infinite else True
        due[batch, head, row] = (seen[row] & reached).any()
        return due
    of_head = heads_of(problem, place, head)
    rows = seen[:, row].expand(problem.group, -1)
    if place == 2:
        due[batch, of_head, :, column] = rows
    elif infinite:
        due[batch, of_head] = (rows & (q[batch, of_head, :, column] > 0)).unsqueeze(-1)
    else:
        due[batch, of_head] = rows.unsqueeze(-1)
    return due
