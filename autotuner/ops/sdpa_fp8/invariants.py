"""What must hold of attention from FP8, without a reference (G3).

torch is imported where it is used: what reads a report wants the words alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from autotuner.ops.op import Invariant, Relation
from autotuner.ops.sdpa import invariants as attention
from autotuner.ops.sdpa.cases import INVARIANT
from autotuner.ops.sdpa_fp8.problem import SdpaFp8Problem
from autotuner.values.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

    from autotuner.ops.tensors import Tensors

DECIBELS = 25.0
"""How far the noise must be below the signal where normal inputs are quantised, as torchao asks: the inputs' own
rounding leaves about 27."""
NOT_A_NUMBER = 0x7F


def descales(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """A power of two that moves from one factor to another changes no bit, and one of V comes out as it is."""
    from autotuner.ops.tensors import first_outputs

    q, k, v, of_q, of_k, of_v, *lengths = inputs
    moved = (q, k, v, 4 * of_q, of_k / 4, of_v, *lengths)
    yield Relation(moved, first_outputs, "4 times q_descale with a quarter of k_descale changes O")
    larger = (q, k, v, of_q, of_k, 4 * of_v, *lengths)
    yield Relation(larger, attention.four_times, "4 times v_descale does not give exactly 4 O")


def permute(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """Permuting batches and heads permutes O, nothing else."""
    import torch

    of = cast(SdpaFp8Problem, problem)
    generator = torch.Generator().manual_seed(seed)
    batches, heads_kv = (torch.randperm(n, generator=generator).unsqueeze(1) for n in (of.batch, of.heads_kv))
    heads, kv = (heads_kv * of.group + torch.arange(of.group)).flatten(), heads_kv.flatten()
    q, *of_kv = inputs[:6]
    turned = (q[batches, heads], *(x[batches, kv] for x in of_kv), *(x[batches[:, 0]] for x in inputs[6:]))

    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        return other[0], plain[0][batches, heads]

    yield Relation(turned, compared, "permuting the (batch, head) slices does not permute O")


def _changed(x: Tensor, first: int, byte: int) -> Tensor:
    """The same with other numbers from a row on: each byte of them exclusive or `byte`."""
    import torch

    other = x.clone()
    other.view(torch.uint8)[:, :, first:].bitwise_xor_(byte)
    return other


def future(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """Causal: keys and values at positions >= t do not reach rows < t; at the bottom right as many rows fewer as there
    are more keys than rows."""
    of = cast(SdpaFp8Problem, problem)
    q, k, v, *rest = inputs
    before = 0 if of.corner == "top_left" else of.seq_k - of.seq_q
    shortest = min(of.seq_q, of.seq_k)
    for t in {shortest // 2, max(1, shortest // 3 // 32 * 32)}:

        def compared(plain: Tensors, other: Tensors, t: int = t) -> tuple[Tensor, Tensor]:
            return other[0][:, :, : max(0, t - before)], plain[0][:, :, : max(0, t - before)]

        detail = f"changing keys and values from position {t} on changes earlier rows"
        yield Relation((q, _changed(k, t, 0x80), _changed(v, t, 0x80), *rest), compared, detail)


def stale(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """Keys and values past the length reach no row, whatever is there: NaN as well."""
    from autotuner.ops.tensors import first_outputs

    q, k, v, of_q, of_k, of_v, lengths = inputs
    half = (lengths + 1) // 2
    k, v, other_k, other_v = (x.clone() for x in (k, v, k, v))
    import torch

    for batch, end in enumerate(half.tolist()):
        other_k.view(torch.uint8)[batch, :, end:] = NOT_A_NUMBER
        other_v.view(torch.uint8)[batch, :, end:] = NOT_A_NUMBER
    detail = "changing keys and values past the length changes the output"
    descales_ = (of_q, of_k, of_v, half)
    yield Relation((q, other_k, other_v, *descales_), first_outputs, detail, before=(q, k, v, *descales_))


def ones(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """Q = 0 and V = 1 give O = 1: all weights are equal, no rounding changes them, and they sum to 1."""
    import torch

    q, k, v, of_q, of_k, of_v, *lengths = inputs
    none, one = (torch.full(x.shape, value, device=x.device).to(x.dtype) for x, value in ((q, 0.0), (v, 1.0)))

    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        blind = (plain[0] == 0).all(-1, keepdim=True)  # a row that sees no key gives 0 whatever V is
        return other[0], torch.where(blind, 0, torch.ones_like(other[0]))

    given = (none, k, one, of_q, of_k, torch.ones_like(of_v), *lengths)
    within = torch.finfo(torch.bfloat16).eps
    yield Relation(given, compared, "Q = 0 and V = 1 do not give O = 1: the weights do not sum to 1", within=within)


def spread(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """A NaN reaches all that the definition computes from it, and no other slice: one number of Q, K or V, or a
    descale."""
    import math

    import torch

    from autotuner.ops.sdpa_fp8.tensors import dequantised
    from autotuner.ops.tensors import where_lost

    of = cast(SdpaFp8Problem, problem)
    generator = torch.Generator().manual_seed(seed)
    for place, name in enumerate("QKV"):
        batch, heads, _, columns = inputs[place].shape
        sizes = (batch, heads, min(of.seq_q, of.seq_k), columns)  # causal masks leave such keys to some rows
        at = tuple(int(torch.randint(size, (1,), generator=generator)) for size in sizes)
        planted = [*inputs]
        planted[place] = inputs[place].clone()
        planted[place].view(torch.uint8)[at] = NOT_A_NUMBER
        due = attention.where_due(of, dequantised(of, inputs), place, at, math.nan)
        touched = torch.zeros(of.batch, of.heads, 1, 1, dtype=torch.bool, device=due.device)
        touched[at[0], attention.heads_of(of, place, at[1])] = True
        detail = f"NaN in one number of {name} does not come out where it must, or changes another slice"
        yield Relation(tuple(planted), where_lost(due, touched), detail)


def quantising(problem: Problem, inputs: Tensors, seed: int) -> Iterator[Relation]:
    """Normal inputs that are quantised head by head give what they give unquantised, but for DECIBELS."""
    import torch

    from autotuner.ops.sdpa import tensors as exactly
    from autotuner.ops.sdpa_fp8.quantising import quantised
    from autotuner.ops.tensors import moved

    of = cast(SdpaFp8Problem, problem)
    dense = of.model_copy(update={"layout": "bhsd"})
    q, k, v, *lengths = moved(exactly.inputs(dense, "randn", seed), inputs[0].device)
    pairs = [quantised(x, of.heads_kv) for x in (q, k, v)]
    want = exactly.reference(dense, (q, k, v, *lengths))[0]

    def compared(plain: Tensors, other: Tensors) -> tuple[Tensor, Tensor]:
        noise = torch.linalg.vector_norm(other[0].double() - want) / torch.linalg.vector_norm(want)
        return noise.reshape(1), torch.zeros(1, dtype=torch.float64, device=noise.device)

    from autotuner.ops.sdpa.layouts import laid_out

    given = (*laid_out(of, "randn", *(x for x, _ in pairs)), *(descale for _, descale in pairs), *lengths)
    detail = f"quantised inputs give less than {DECIBELS:g} dB of signal over noise"
    yield Relation(given, compared, detail, within=10 ** (-DECIBELS / 20))


INVARIANTS = (
    Invariant(
        "G3.descales",
        "a power of two may move from one descale to another, and that of V comes out",
        "a descale that is left out, or taken of another tensor or head",
        descales,
        INVARIANT,
    ),
    Invariant(
        "G3.permute",
        "permuting the (batch, head) slices permutes the output, nothing else",
        "the addressing of batch or head, of tensors or of descales, or a result that depends on the order of blocks",
        permute,
        INVARIANT,
    ),
    Invariant(
        "G3.future",
        "under a causal mask, later keys and values do not reach earlier rows",
        "the causal mask lets later keys through",
        future,
        (2, 3, 203, 203),
        applies=lambda problem: cast(SdpaFp8Problem, problem).causal,
    ),
    Invariant(
        "G3.lengths",
        "keys and values past the lengths do not reach the output",
        "the lengths are ignored, read on the host, or applied to whole tiles only",
        stale,
        INVARIANT,
        applies=lambda problem: cast(SdpaFp8Problem, problem).key_lengths,
    ),
    Invariant(
        "G3.ones",
        "Q = 0 and V = 1 give O = 1: the weights of each row sum to 1",
        "the normaliser is not the sum of the weights in use: keys lost or counted twice, or padding counted",
        ones,
        INVARIANT,
    ),
    Invariant(
        "G3.quantising",
        "normal inputs that are quantised give the unquantised result with noise 25 dB below it",
        "fewer digits than FP8 has: probabilities without an offset, or sums in few bits",
        quantising,
        (2, 3, 257, 257),
    ),
    Invariant(
        "G3.spread",
        "a number that is NaN comes out where the definition has it, and reaches no other slice",
        "a maximum, a clamp or a saturating conversion that drops NaN",
        spread,
        INVARIANT,
    ),
)
"""In order of cost."""
