"""Attention in Triton that computes something else, or does what no variant may: MUTANT says what; "none" is right."""

import triton
import triton.language as tl


@triton.jit
def tiles(
    sums, total, most, q, K, V, k_row, v_row, start, end, rows, seq_k, factor,
    HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, MUTANT: tl.constexpr,
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
        if MUTANT == "scores_in_bf16":
            scores = scores.to(tl.bfloat16).to(tl.float32)
        if MASKED and MUTANT != "masks_no_tail":
            seen = keys[None, :] < (seq_k - 1 if MUTANT == "last_key_unseen" else seq_k)
            if MUTANT == "first_key_unseen":
                seen = seen & (keys[None, :] > 0)
            if CAUSAL and MUTANT == "causal_off_by_one":
                seen = seen & (keys[None, :] < rows[:, None] + 2)
            elif CAUSAL and MUTANT != "causal_ignored_at_the_edge":
                seen = seen & (keys[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        if MUTANT == "no_running_maximum":
            higher = tl.full(most.shape, 0.0, tl.float32)
        if MUTANT == "exponent_clamped":
            scores = tl.maximum(scores, higher[:, None] - 8 / factor)
        # The difference comes first: the compiler would fuse it with a product before it, which the maximum's is not.
        powers = tl.math.exp2((scores - higher[:, None]) * factor)
        shrunk = tl.math.exp2((most - higher) * factor)
        if MUTANT == "total_not_shrunk":
            total += tl.sum(powers, 1)
        elif MUTANT == "total_in_bf16":
            total = (total * shrunk + tl.sum(powers, 1)).to(tl.bfloat16).to(tl.float32)
        else:
            total = total * shrunk + tl.sum(powers, 1)
        if MUTANT != "sums_not_shrunk":
            sums = sums * shrunk[:, None]
        v = tl.load(v_at, keys[:, None] < seq_k, 0.0) if MASKED and MUTANT != "values_past_the_end" else tl.load(v_at)
        if MUTANT == "first_tile_twice" and first == 0:
            sums = tl.dot(powers.to(v.dtype), v, sums)
        sums = tl.dot(powers.to(v.dtype), v, sums)
        if MUTANT == "sums_in_bf16":
            sums = sums.to(tl.bfloat16).to(tl.float32)
        most = higher
        K += BLOCK_N * k_row
        V += BLOCK_N * v_row
    return sums, total, most


@triton.jit
def attention(
    Q, K, V, O, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
    heads, heads_kv, seq_q, seq_k, scale,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, MUTANT: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(seq_q, BLOCK_M)
    block = tl.program_id(0) % blocks
    if CAUSAL:  # those with the most keys begin first
        block = blocks - 1 - block
    place = tl.program_id(0) // blocks
    batch = (place // heads).to(tl.int64)
    head = (place % heads).to(tl.int64)
    head_kv = head % heads_kv if MUTANT == "groups_interleaved" else head // (heads // heads_kv)
    if MUTANT == "one_head_of_keys":
        head_kv = head * 0
    if MUTANT == "batches_share_keys":
        k_batch = k_batch * 0
    if MUTANT == "rows_of_k_contiguous":
        k_row = HEAD_DIM
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_DIM)
    here = rows[:, None] < seq_q
    q = tl.load(Q + batch * q_batch + head * q_head + rows[:, None] * q_row + dims[None, :], here, 0.0)
    if MUTANT == "half_of_the_dims":
        q = tl.where(dims[None, :] < HEAD_DIM // 2, q, 0.0).to(q.dtype)
    K += batch * k_batch + head_kv * k_head
    V += batch * v_batch + head_kv * v_head
    factor = scale if MUTANT == "base_of_e_left_out" else scale * 1.4426950408889634
    if MUTANT == "scale_of_64":
        factor = 0.125 * 1.4426950408889634
    sums = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    most = tl.full([BLOCK_M], float("-inf"), tl.float32)
    end = min(seq_k, 2048) if MUTANT == "at_most_2048_keys" else seq_k
    seq_k = end
    whole = seq_k // BLOCK_N * BLOCK_N
    if CAUSAL:
        end = min(seq_k, (block + 1) * BLOCK_M)
        whole = min(whole, block * BLOCK_M // BLOCK_N * BLOCK_N)
    sums, total, most = tiles(
        sums, total, most, q, K, V, k_row, v_row, 0, whole, rows, seq_k, factor,
        HEAD_DIM, BLOCK_N, CAUSAL, False, MUTANT,
    )  # fmt: skip
    sums, total, most = tiles(
        sums, total, most, q, K, V, k_row, v_row, whole, end, rows, seq_k, factor,
        HEAD_DIM, BLOCK_N, CAUSAL, True, MUTANT,
    )  # fmt: skip
    o_at = O + batch * o_batch + head * o_head + rows[:, None] * o_row + dims[None, :]
    if MUTANT == "writes_past_o":
        here = rows[:, None] < seq_q + 1
    if MUTANT == "last_row_unwritten":
        here = rows[:, None] < seq_q - 1
    if MUTANT == "rows_past_4096_unwritten":
        here = here & (rows[:, None] < 4096)
    if MUTANT == "changes_q":
        tl.store(Q + batch * q_batch + head * q_head + rows[:, None] * q_row + dims[None, :], q * 0, here)
    if MUTANT == "adds_to_o":
        sums += 0.001 * tl.load(o_at, here, 0.0).to(tl.float32) * total[:, None]
    if MUTANT == "total_forgotten":
        total = total * 0 + 1
    tl.store(o_at, (sums / total[:, None]).to(O.dtype.element_ty), here)
