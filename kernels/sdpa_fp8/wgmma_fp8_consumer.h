// A consumer warpgroup: 64 query rows of each work item, all keys that they see, tile by tile (Item::tile).
//
// The scores of the next tile are issued together with P V of this one, and the softmax begins as soon as the scores are
// there. What is in flight is not touched: while a product reads the probabilities of one tile, those of the next go to
// registers of their own. The two sets take turns, so tiles come in twos and nothing is moved but after an odd one, by an
// operation that ptxas does not see through. The first scores of the next item are issued before the output of this one
// is written.
//
// A sum of products keeps few bits: of thousands of probabilities, all positive, it would fall behind. So the sums of a
// tile's, which the rows of ones give, are added to those of the row in float and begin anew at each tile. Where one
// probability is much larger than the others, at a tile that moved the maximum, they are added up in float themselves.
// Numbers of O have both signs.
#ifndef WGMMA_FP8_CONSUMER_H
#define WGMMA_FP8_CONSUMER_H

#include "wgmma_fp8_softmax.h"

// Named barriers: a consumer's turn, and the meeting of its four warps.
static constexpr int TURN_BARRIER = 1, GROUP_BARRIER = TURN_BARRIER + 3;

struct Consumer {
  const fp8_args &args;
  unsigned char *shared;
  int group, warp, lane;
  Cursor<STAGES> keys, values;
  Cursor<1> query;
  Item at;          // the item at hand
  int row, tiles;   // of it: this consumer's first row, and the tiles that it sees
  float of_values;  // its descale of V
  float scale;      // that makes powers of two of its scores
  float output[OUTPUTS + 4];
  float sum[2], shift[2], decay[2];
  float uncounted[2];  // 0 where sum has the row's probabilities of the tile at hand, else 1
  Rows next_counted;   // sum has those of the next one
  Scores scores;
  Weights sets[2];     // probabilities of the tile at hand and of the next one, by turns
  uint32_t queries[QUERY_IN_REGISTERS ? HEAD_DIM / 8 : 1];

  __device__ __forceinline__ Consumer(const fp8_args &arguments, unsigned char *memory, int number)
      : args(arguments), shared(memory), group(number) {
    warp = __shfl_sync(~0u, threadIdx.x / 32, 0) % GROUP_WARPS;
    lane = threadIdx.x % 32;
    if (PING_PONG && group == 0) named_barrier_arrive(TURN_BARRIER, 2 * WARPGROUP);  // the first turn
  }

  __device__ __forceinline__ unsigned char *query_tile() const { return shared + QUERY_OFFSET + group * QUERY_BYTES; }
  __device__ __forceinline__ bool elected() const { return warp == 0 && lane == 0; }

  // Waiting and telling ------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void wait_keys() { mbarrier_wait(barrier(shared, KEYS_FULL + keys.slot), keys.parity); }
  __device__ __forceinline__ void wait_values() {
    mbarrier_wait(barrier(shared, VALUES_FULL + values.slot), values.parity);
  }
  __device__ __forceinline__ void release_keys() {
    if (lane == 0) mbarrier_arrive(barrier(shared, KEYS_FREE + keys.slot));
    keys.next();
  }
  __device__ __forceinline__ void release_values() {
    if (lane == 0) mbarrier_arrive(barrier(shared, VALUES_FREE + values.slot));
    values.next();
  }
  __device__ __forceinline__ void release_query() {
    if (QUERY_IN_REGISTERS) copy_engine_fence();  // an arrival would overtake these reads
    __syncwarp();
    if (lane == 0) mbarrier_arrive(barrier(shared, QUERY_FREE + group));
  }

  // Consumers take turns at issuing products, so that one's softmax falls into another's products. All take as many
  // turns for an item, whatever they see of it.
  __device__ __forceinline__ void await_turn() {
    if (PING_PONG) named_barrier_sync(TURN_BARRIER + group, 2 * WARPGROUP);
  }
  __device__ __forceinline__ void pass_turn() {
    if (PING_PONG) named_barrier_arrive(TURN_BARRIER + (group + 1) % CONSUMERS, 2 * WARPGROUP);
  }

  // Products -----------------------------------------------------------------------------------------------------------

  __device__ __forceinline__ void issue_scores() {
    const uint64_t q = row_matrix_descriptor<ROW_BYTES>(query_tile());
    const uint64_t k = row_matrix_descriptor<ROW_BYTES>(shared + KEYS_OFFSET + keys.slot * KEYS_BYTES);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / DEPTH; i++) {
      if constexpr (QUERY_IN_REGISTERS)
        wgmma_fp8(scores, queries + 4 * i, k + i * DEPTH / 16, i > 0);
      else
        wgmma_fp8(scores, q + i * DEPTH / 16, k + i * DEPTH / 16, i > 0);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_output(Weights &weights, bool add) {
    hold(output);
    hold(weights);
    wgmma_fence();
    const uint64_t v = row_matrix_descriptor<CHUNK_KEYS>(shared + VALUES_OFFSET + values.slot * VALUES_BYTES);
#pragma unroll
    for (int i = 0; i < BLOCK_N / DEPTH; i++)
      wgmma_fp8(output, weights + 4 * i, v + (i * DEPTH / CHUNK_KEYS * CHUNK_BYTES + i * DEPTH % CHUNK_KEYS) / 16,
                i > 0 || add);
    wgmma_commit();
  }

  // P V of the tile at hand has come.
  __device__ __forceinline__ void take_sums() {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      sum[half] = fmaf(output[SUMS + 2 * half], uncounted[half], sum[half]);
      output[SUMS + 2 * half] *= 0.0f;  // of one 0 in two registers ptxas makes copies of them all
    }
  }

  // An item --------------------------------------------------------------------------------------------------------------

  // Gives back the tiles above the diagonal and issues the scores of the first tile that is seen.
  __device__ __forceinline__ void begin(const Item &item) {
    at = item;
    const int kv = slice_kv(args, at.slice);
    const float of_q = __ldg(args.q_descale + kv), of_k = __ldg(args.k_descale + kv);
    of_values = __ldg(args.v_descale + kv);
    row = at.row + group * GROUP_ROWS;
    tiles = own_tiles(args, at, row);
    for (int hidden = at.tiles - tiles; CAUSAL && hidden > 0; hidden--) {
      wait_keys();
      __syncwarp();  // a lane that looks later must not find the phase after this one
      release_keys();
      await_turn();
      pass_turn();
      wait_values();
      __syncwarp();
      release_values();
    }
    mbarrier_wait(barrier(shared, QUERY_FULL + group), query.parity);
    query.next();
    if (QUERY_IN_REGISTERS) {
#pragma unroll
      for (int i = 0; i < HEAD_DIM / DEPTH; i++)
        ldmatrix_x4((uint32_t(&)[4])queries[4 * i], query_tile() + swizzled(warp * 16 + lane % 16, 2 * i + lane / 16));
      hold(queries);
      release_query();
    }
    wait_keys();
    hold(scores);
    wgmma_fence();
    issue_scores();
    scale = max_nan(args.scale_log2 * of_q * of_k, 1e-30f);
  }

  // Keys past the end, and those that a causal row does not see: of the last two tiles, as none is narrower than a group.
  __device__ __forceinline__ void mask(int turn) {
    static_assert(BLOCK_N >= GROUP_ROWS);
    if (turn < tiles - 2) return;
    const int key = at.tile(turn) * BLOCK_N;
    if (key + BLOCK_N <= at.seen(args, row)) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int end = at.seen(args, row + warp * 16 + lane / 4 + half * 8) - key - lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < BLOCK_N / 4; i++)
        if (i / 2 * 8 + i % 2 >= end) scores[i / 2 * 4 + half * 2 + i % 2] = -INFINITY;
    }
  }

  // The probabilities of the next tile, added up one by one, in the rows that moved.
  __device__ __forceinline__ void count(const Weights &next_weights) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float found = sum_of(next_weights, half);
      sum[half] += next_counted[half] ? found : 0.0f;
    }
  }

  // The next tile is the one at hand.
  __device__ __forceinline__ void take_counted() {
#pragma unroll
    for (int half = 0; half < 2; half++) uncounted[half] = next_counted[half] ? 0.0f : 1.0f, next_counted[half] = false;
  }

  __device__ __forceinline__ void first_tile() {
    release_keys();
    mask(tiles - 1);
    const float offset = SPECULATE && tiles > 1 ? (float)OFFSET : LARGE_OFFSET;
    softmax_exact<true>(scores, shift, decay, scale, offset, args.same, sets[0]);
    sum[0] = sum[1] = 0.0f;
    next_counted[0] = next_counted[1] = true;
    count(sets[0]);
  }

  // Issues the scores of the next tile and the output of the last, in the order in which they are waited for.
  __device__ __forceinline__ void issue_both(Weights &weights, bool add) {
    wait_keys();
    await_turn();
    hold(scores);
    hold(output);
    wgmma_fence();
    issue_scores();
    if (add) take_sums();
    take_counted();
    wait_values();
    issue_output(weights, add);
    if (PING_PONG == 1) pass_turn();
  }

  // True when what was summed before must be multiplied by `decay`.
  __device__ __forceinline__ bool soften(Weights &next_weights) {
    if constexpr (SPECULATE) return softmax_speculative(scores, shift, decay, scale, next_weights, next_counted);
    softmax_exact<false>(scores, shift, decay, scale, LARGE_OFFSET, args.same, next_weights);
#pragma unroll
    for (int half = 0; half < 2; half++) next_counted[half] = decay[half] != 1.0f;
    return any_lane(next_counted);
  }

  template <int SET>
  __device__ __forceinline__ void next_tile(int tile) {
    Weights &next_weights = sets[1 - SET];
    issue_both(sets[SET], tile < tiles - 2);
    wgmma_wait<1>();
    hold(scores);
    if (PING_PONG == 2) pass_turn();
    release_keys();
    mask(tile);
    const bool decays = soften(next_weights);
    hold(next_weights);
    wgmma_wait<0>();
    hold(output);
    release_values();
    if (__builtin_expect(decays, 0)) {
      take_sums();
#pragma unroll
      for (int i = 0; i < OUTPUTS; i++) output[i] *= decay[i / 2 % 2];
#pragma unroll
      for (int half = 0; half < 2; half++) sum[half] *= decay[half];
      count(next_weights);
    }
  }

  // The tiles after the first.
  __device__ __forceinline__ void other_tiles() {
    int tile = tiles - 2;
#pragma unroll 1
    for (; tile > 0; tile -= 2) {
      next_tile<0>(tile);
      next_tile<1>(tile - 1);
    }
    if (tile == 0) {
      next_tile<0>(0);
#pragma unroll
      for (int i = 0; i < BLOCK_N / 8; i++) sets[0][i] = copied(sets[1][i], args.same);
    }
  }

  __device__ __forceinline__ void last_output() {
    wait_values();
    if (tiles > 1) take_sums();
    take_counted();
    issue_output(sets[0], tiles > 1);
    wgmma_wait<0>();
    hold(output);
    release_values();
    take_sums();
  }

  // The end of an item ---------------------------------------------------------------------------------------------------

  // Of an item that another may follow before its output is written.
  struct Left {
    int slice, row;
    float descale;
  };
  __device__ __forceinline__ Left left() const { return {at.slice, row, of_values}; }

  // A row that has seen no key gives 0.
  __device__ __forceinline__ void normalize(const Left &of) {
    const float factor[2] = {sum[0] == 0.0f ? 0.0f : of.descale / sum[0], sum[1] == 0.0f ? 0.0f : of.descale / sum[1]};
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) output[i] *= factor[i / 2 % 2];
#if LSE
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int mine = of.row + warp * 16 + lane / 4 + half * 8;
      if (lane % 4 == 0 && mine < args.seq_q)
        args.lse[(int64_t)of.slice * args.seq_q + mine] = (shift[half] + __log2f(sum[half])) * 0.693147181f;
    }
#endif
  }

  __device__ __forceinline__ void store(const Left &of) {
    unsigned char *const tile = shared + OUTPUT_OFFSET + group * OUTPUT_BYTES;
    if (elected()) tma_store_wait();  // the item before has left
    named_barrier_sync(GROUP_BARRIER + group, WARPGROUP);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 16; i++) {
      const float *const o = output + 8 * i;
      stmatrix_x4(tile + i / 4 * O_PANEL + swizzled(warp * 16 + lane % 16, i % 4 * 2 + lane / 16), pack(o[0], o[1]),
                  pack(o[2], o[3]), pack(o[4], o[5]), pack(o[6], o[7]));
    }
    copy_engine_fence();
    named_barrier_sync(GROUP_BARRIER + group, WARPGROUP);
    if (elected()) {
      const Place place = place_of_output(args, of.slice);
#pragma unroll
      for (int panel = 0; panel < O_PANELS; panel++)
        tma_store_4d(&args.o_map, tile + panel * O_PANEL, panel * 64, of.row, place.head, place.batch);
      tma_store_commit();
    }
    __syncwarp();
  }
};

AT_DEVICE void consume(const fp8_args &args, unsigned char *shared, int group) {
  Consumer at(args, shared, group);
  Schedule schedule(args, shared);
  if (schedule.done()) return;
  at.begin(item(args, schedule.number));
  for (;;) {
    wgmma_wait<0>();
    hold(at.scores);
    at.first_tile();
    at.other_tiles();
    if (!QUERY_IN_REGISTERS) at.release_query();
    schedule.next(false, false);
    at.last_output();
    const Consumer::Left left = at.left();
    if (schedule.done()) {
      at.normalize(left);
      at.store(left);
      break;
    }
    at.begin(item(args, schedule.number));
    at.normalize(left);
    at.store(left);
  }
  if (at.elected()) tma_store_wait();
}

#endif
