"""Attention in Triton: a program has BLOCK_M query rows of a head and goes through its keys BLOCK_N at a time, with an
online softmax in powers of two. Tiles that all rows see come first and need no mask.

Head h of Q looks at head h / (heads / heads_kv) of K and V. With CAUSAL row i sees the keys up to i.
"""

import triton
import triton.language as tl


@triton.jit
def tiles(
    sums, total, most, q, K, V, k_row, v_row, start, end, rows, seq_k, factor,
    HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The tiles of keys from `start` to `end` are added to a row's sums, its total and its largest score."""
    dims = tl.arange(0, HEAD_DIM)
    K += start * k_row
    V += start * v_row
    for first in range(start, end, BLOCK_N):
        places = tl.arange(0, BLOCK_N)
        keys = first + places
        k_at = K + places[None, :] * k_row + dims[:, None]
        v_at = V + places[:, None] * v_row + dims[None, :]
        k = tl.load(k_at, keys[None, :] < seq_k, 0.0) if MASKED else tl.load(k_at)
        scores = tl.dot(q, k)
        if MASKED:
            seen = keys[None, :] < seq_k
            if CAUSAL:
                seen = seen & (keys[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        # The difference comes first: the compiler would fuse it with a product before it, which the maximum's is not.
        powers = tl.math.exp2((scores - higher[:, None]) * factor)
        shrunk = tl.math.exp2((most - higher) * factor)
        total = total * shrunk + tl.sum(powers, 1)
        sums = sums * shrunk[:, None]
        v = tl.load(v_at, keys[:, None] < seq_k, 0.0) if MASKED else tl.load(v_at)
        sums = tl.dot(powers.to(v.dtype), v, sums)
        most = higher
        K += BLOCK_N * k_row
        V += BLOCK_N * v_row
    return sums, total, most


@triton.jit
def attention(
    Q, K, V, O, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
    heads, heads_kv, seq_q, seq_k, scale,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(seq_q, BLOCK_M)
    block = tl.program_id(0) % blocks
    if CAUSAL:  # those with the most keys begin first
        block = blocks - 1 - block
    place = tl.program_id(0) // blocks
    batch = (place // heads).to(tl.int64)
    head = (place % heads).to(tl.int64)
    head_kv = head // (heads // heads_kv)
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_DIM)
    here = rows[:, None] < seq_q
    q = tl.load(Q + batch * q_batch + head * q_head + rows[:, None] * q_row + dims[None, :], here, 0.0)
    K += batch * k_batch + head_kv * k_head
    V += batch * v_batch + head_kv * v_head
    factor = scale * 1.4426950408889634
    sums = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    most = tl.full([BLOCK_M], float("-inf"), tl.float32)
    end = seq_k
    whole = seq_k // BLOCK_N * BLOCK_N
    if CAUSAL:
        end = min(seq_k, (block + 1) * BLOCK_M)
        whole = min(whole, block * BLOCK_M // BLOCK_N * BLOCK_N)
    sums, total, most = tiles(
        sums, total, most, q, K, V, k_row, v_row, 0, whole, rows, seq_k, factor, HEAD_DIM, BLOCK_N, CAUSAL, False
    )
    sums, total, most = tiles(
        sums, total, most, q, K, V, k_row, v_row, whole, end, rows, seq_k, factor, HEAD_DIM, BLOCK_N, CAUSAL, True
    )
    o_at = O + batch * o_batch + head * o_head + rows[:, None] * o_row + dims[None, :]
    tl.store(o_at, (sums / total[:, None]).to(O.dtype.element_ty), here)
