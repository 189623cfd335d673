// From the partial results of a row to its output.
//
// The parts that share rows, warps of this block and of the others of its cluster, divide the output's fragments among
// themselves. Each sends to every part the fragments that this one merges and the state of its softmax, a float4 a lane
// each, into an inbox of that part's block.
#ifndef MMA_MERGE_H
#define MMA_MERGE_H

#include "mma_softmax.h"

// What the parts write to warp `warp_n` of a block, for row tile `m` that the caller shares with it.
AT_DEVICE float4 *inbox(unsigned char *shared, const Place &at, int warp_n, int m) {
  const int index = (m * WARPS_M + at.warp_m) * WARPS_N + warp_n;
  return (float4 *)(shared + INBOX_OFFSET) + index * PARTS * MESSAGE_FLOAT4 + at.lane;
}

// With INBOX_SIGNALS: completes when all that is written there has come.
AT_DEVICE uint64_t *inbox_barrier(unsigned char *shared, const Place &at, int warp_n) {
  return (uint64_t *)(shared + INBOX_BARRIER_OFFSET) + at.warp_m * WARPS_N + warp_n;
}

AT_DEVICE void prepare_inbox([[maybe_unused]] unsigned char *shared, [[maybe_unused]] const Place &at) {
#if SPLIT > 1 && SYNC_POLICY == 0
  if (at.part >= SHARERS || at.lane != 0) return;
  uint64_t *barrier = inbox_barrier(shared, at, at.warp_n);
  mbarrier_init(barrier, 1);
  mbarrier_init_fence();
  mbarrier_expect(barrier, ROW_TILES * PARTS * MESSAGE_FLOAT4 * sizeof(float4));
#endif
}

// Writes to a warp of the block that part `to` belongs to; `slot` and `barrier` are addresses in the caller's block.
AT_DEVICE void post(float4 *slot, float4 value, [[maybe_unused]] uint64_t *barrier, [[maybe_unused]] const Place &at,
                    [[maybe_unused]] int to) {
#if SPLIT == 1
  *slot = value;
#elif SYNC_POLICY == 0
  store_async_16(slot, value, barrier, to / WARPS_N * MULTICAST + at.member);
#else
  *const_cast<float4 *>(cluster_map(slot, to / WARPS_N * MULTICAST + at.member)) = value;
#endif
}

// A row tile's fragments and softmax, to all that merge a share of it.
AT_DEVICE void send(unsigned char *shared, const Place &at, const Partial &partial, int m) {
#pragma unroll
  for (int to = 0; to < SHARERS; to++) {
    float4 *slot = inbox(shared, at, to % WARPS_N, m) + at.part * MESSAGE_FLOAT4;
    uint64_t *barrier = inbox_barrier(shared, at, to % WARPS_N);
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
      const float(&piece)[4] = partial.output[to * SHARE + i];
      post(slot + i * 32, make_float4(piece[0], piece[1], piece[2], piece[3]), barrier, at, to);
    }
    const float4 state = make_float4(partial.max[0], partial.sum[0], partial.max[1], partial.sum[1]);
    post(slot + SHARE * 32, state, barrier, at, to);
  }
}

// Meets the parts that write to each other's inboxes.
AT_DEVICE void meet_parts(const Place &at) {
#if SPLIT > 1
  cluster_arrive();
  cluster_wait();
#else
  if (INBOX_APART && WARPS_M > 1)
    named_barrier_sync(1 + WARPS_N + at.warp_m, 32 * WARPS_N);
  else
    __syncthreads();
#endif
}

// The share of a row tile that the caller merges, from what all parts have sent.
AT_DEVICE void receive(float (&output)[SHARE][4], float (&sum)[2], const float4 *messages) {
  float max[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int from = 0; from < PARTS; from++) {
    const float4 state = messages[from * MESSAGE_FLOAT4 + SHARE * 32];
    max[0] = fmaxf(max[0], state.x);
    max[1] = fmaxf(max[1], state.z);
  }
#pragma unroll
  for (int from = 0; from < PARTS; from++) {
    const float4 state = messages[from * MESSAGE_FLOAT4 + SHARE * 32];
    const float low = exponential(state.x - finite(max[0])), high = exponential(state.z - finite(max[1]));
    sum[0] = fmaf(low, state.y, sum[0]);
    sum[1] = fmaf(high, state.w, sum[1]);
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
      const float4 piece = messages[from * MESSAGE_FLOAT4 + i * 32];
      output[i][0] = fmaf(low, piece.x, output[i][0]);
      output[i][1] = fmaf(low, piece.y, output[i][1]);
      output[i][2] = fmaf(high, piece.z, output[i][2]);
      output[i][3] = fmaf(high, piece.w, output[i][3]);
    }
  }
}

// Writes COUNT neighbouring fragments of 16 rows, `first` the number of the first. Lanes 2 i and 2 i + 1 trade words,
// so that each writes 8 bytes of one fragment instead of 4 bytes of two.
template <int COUNT>
AT_DEVICE void store(const Place &at, element *o, int first_row, int first, const float (&output)[COUNT][4],
                     const float (&sum)[2]) {
  const int pair = at.lane % 2;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = first_row + at.lane / 4 + half * 8;
    const float factor = __fdividef(1.0f, sum[half]);
    uint32_t *words = (uint32_t *)(o + ((int64_t)at.slice * at.seq_q + row) * HEAD_DIM) + first * 4 + at.lane % 4;
    const bool valid = (FIXED && AT_SEQ_Q(at) % CLUSTER_ROWS == 0) || row < at.seq_q;
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
      const uint32_t even = pack(output[i][half * 2] * factor, output[i][half * 2 + 1] * factor);
      if constexpr (COUNT == 1) {
        if (valid) words[0] = even;
      } else {
        const uint32_t odd = pack(output[i + 1][half * 2] * factor, output[i + 1][half * 2 + 1] * factor);
        const uint32_t traded = __shfl_xor_sync(~0u, pair ? even : odd, 1);
        const uint2 both = pair ? make_uint2(traded, odd) : make_uint2(even, traded);
        if (valid) *(uint2 *)(words + (i + pair) * 4 - pair) = both;
      }
    }
  }
}

// Merges what all parts have found and writes it.
AT_DEVICE void finish(const Place &at, element *o, Partial (&partial)[ROW_TILES], unsigned char *shared) {
  if (PARTS > 1 && !INBOX_APART) meet_parts(at);
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) {
    partial[m].sum[0] = quad_sum(partial[m].sum[0]);
    partial[m].sum[1] = quad_sum(partial[m].sum[1]);
    if constexpr (PARTS == 1)
      store(at, o, at.row + m * 16, 0, partial[m].output, partial[m].sum);
    else
      send(shared, at, partial[m], m);
  }
  if (PARTS == 1) return;
  if (!INBOX_SIGNALS) meet_parts(at);
  if (at.part >= SHARERS) return;
#if SPLIT > 1 && SYNC_POLICY == 0
  mbarrier_wait(inbox_barrier(shared, at, at.warp_n), 0);
#endif
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) {
    float output[SHARE][4] = {}, sum[2] = {};
    receive(output, sum, inbox(shared, at, at.warp_n, m));
    store(at, o, at.row + m * 16, at.part * SHARE, output, sum);
  }
}

#endif
