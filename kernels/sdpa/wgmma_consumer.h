// A consumer warpgroup: 64 query rows of each work item, all keys that they see, from the last tile to the first.
//
// The scores of the next tile are issued together with P V of this one, so the tensor cores are busy while the softmax
// is computed; with OVERLAP the softmax begins as soon as the scores are there. With OVERLAP 2 P V is issued after them, for
// a warp waits at each product whose A is in registers until the tensor cores take it, and sees its scores no earlier.
// ptxas then lays these products among the exponentials. What is in flight is not touched:
// probabilities are rounded into their registers only when the product that reads those has ended. (Rounded before, and
// only moved then, they make ptxas serialise the products: it sees through the move.)
#ifndef WGMMA_CONSUMER_H
#define WGMMA_CONSUMER_H

#include "bias.h"
#include "sink.h"
#include "wgmma_places.h"
#include "wgmma_schedule.h"
#include "wgmma_softmax.h"

// Named barriers: a consumer's turn, and the meeting of its four warps.
static constexpr int TURN_BARRIER = 1, GROUP_BARRIER = TURN_BARRIER + 4;

struct Consumer {
  const wgmma_args &args;
  unsigned char *shared;
  int group, warp, lane;
  Cursor<STAGES> keys, values;
  Cursor<Q_BUFFERS> query;
#if HAS_NUMBERS
  Cursor<BIAS_SLOTS> biases;
#endif
  int stored = -1;  // the barrier of the Q buffer that a store of O still reads
  int slice, row, tiles;  // of the item at hand: this consumer's first row, and the tiles up to the last that it sees
#if WINDOWED
  int first, unseen;  // of these the first that is seen, and how many others see before it
#else
  static constexpr int first = 0, unseen = 0;
#endif
#if BIAS == AT_ALIBI
  RowBias slope;  // of the item's head: to look for it costs each tile a division and a read
#endif
#if HAS_SINKS
  float sink;  // of the item's head
#endif
  float output[HEAD_DIM / 2];
  Scores scores;
  uint32_t probabilities[BLOCK_N / 4];
  uint32_t queries[QUERY_IN_REGISTERS ? HEAD_DIM / 4 : 1];
  Softmax softmax;

  __device__ __forceinline__ Consumer(const wgmma_args &arguments, unsigned char *memory, int number)
      : args(arguments), shared(memory), group(number) {
    warp = __shfl_sync(~0u, threadIdx.x / 32, 0) % GROUP_WARPS;
    lane = threadIdx.x % 32;
    if (PING_PONG && group == 0) named_barrier_arrive(TURN_BARRIER, 2 * WARPGROUP);  // the first turn
  }

  __device__ __forceinline__ int query_buffer() const { return query.slot * CONSUMERS + group; }
  __device__ __forceinline__ unsigned char *query_tile() const {
    return shared + QUERY_OFFSET + query_buffer() * GROUP_BYTES;
  }
  __device__ __forceinline__ unsigned char *key_tile() const { return shared + KEYS_OFFSET + keys.slot * TILE_BYTES; }
#if HAS_NUMBERS
  __device__ __forceinline__ int bias_slot() const { return group * BIAS_SLOTS + biases.slot; }
#endif
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

  // Of a tile that was added, and is not wanted again.
  __device__ __forceinline__ void release_bias() {
#if HAS_NUMBERS
    if (!args.bias_boxes) return;
    copy_engine_fence();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(barrier(shared, BIAS_FREE + bias_slot()));
    biases.next();
#endif
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
    const uint64_t q = matrix_descriptor(query_tile()), k = matrix_descriptor(key_tile());
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
      const uint64_t columns = k + (i / 4 * TILE_PANEL + i % 4 * 32) / 16;
      if constexpr (QUERY_IN_REGISTERS)
        wgmma<0>(scores, queries + 4 * i, columns, i > 0, element());
      else
        wgmma(scores, q + (i / 4 * GROUP_PANEL + i % 4 * 32) / 16, columns, i > 0, element());
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_output(bool add) {
    const uint64_t v = matrix_descriptor(shared + VALUES_OFFSET + values.slot * TILE_BYTES, TILE_PANEL);
#pragma unroll
    for (int i = 0; i < KEYS; i++)
      wgmma<1>(output, probabilities + 4 * i, v + i * 16 * ROW_BYTES / 16, i > 0 || add, element());
    wgmma_commit();
  }

  // The scores of this warp's rows again, by products of one warp: the others have no need of them.
  __device__ __forceinline__ void rescore(int tile) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; i++) scores[i] = 0.0f;
#pragma unroll 1
    for (int i = 0; i < COLUMNS; i++) {
      uint32_t q[4], k[4];
      ldmatrix_x4(q, query_tile() + swizzled(GROUP_PANEL, warp * 16 + lane % 16, 2 * i + lane / 16));
#pragma unroll
      for (int j = 0; j < KEYS; j++) {
        ldmatrix_x4(k, key_tile() + swizzled(TILE_PANEL, j * 16 + lane / 16 * 8 + lane % 8, 2 * i + lane / 8 % 2));
        mma_m16n8k16((float(&)[4])scores[8 * j], q, k[0], k[1], element());
        mma_m16n8k16((float(&)[4])scores[8 * j + 4], q, k[2], k[3], element());
      }
    }
    copy_engine_fence();  // an arrival would overtake these reads
    __syncwarp();
    mask(tile);
  }

  // An item --------------------------------------------------------------------------------------------------------------

  // So many tiles that others see.
  __device__ __forceinline__ void give_back(int count) {
    for (; count > 0; count--) {
      wait_keys();
      __syncwarp();  // a lane that looks later must not find the phase after this one
      release_keys();
      await_turn();  // before V: without OVERLAP it may come only when those after this one have had this turn
      pass_turn();
      wait_values();
      __syncwarp();
      release_values();
    }
  }

  // Gives back the tiles above the diagonal and issues the scores of the first tile that is seen.
  __device__ __forceinline__ void begin(const Item &item) {
    slice = item.slice;
    row = item.row + group * GROUP_ROWS;
    tiles = own_tiles(args, item, row);
#if WINDOWED
    first = own_first(args, item, row, tiles);
    unseen = first - item.first;
#endif
#if BIAS == AT_ALIBI
    slope = bias_of(0);
#endif
    give_back(HIDES ? item.tiles - tiles : 0);
    mbarrier_wait(barrier(shared, QUERY_FULL + query_buffer()), query.parity);
#if HAS_SINKS
    sink = sink_beside(shared, query_buffer());
#endif
    if (QUERY_IN_REGISTERS) load_queries_to_registers();
    wait_keys();
    if (!OVERLAP) await_turn();
    hold(scores);
    wgmma_fence();
    issue_scores();
    if (!OVERLAP) pass_turn();
  }

  __device__ __forceinline__ void load_queries_to_registers() {
#pragma unroll
    for (int i = 0; i < COLUMNS; i++)
      ldmatrix_x4((uint32_t(&)[4])queries[4 * i],
                  query_tile() + swizzled(GROUP_PANEL, warp * 16 + lane % 16, 2 * i + lane / 16));
    hold(queries);
  }

  // Keys past the end, and those that a row does not see; before, scores are capped, and what is to be added is.
  __device__ __forceinline__ void mask(int tile) {
#if SOFTCAPPED
    cap(scores, args.scale);
#endif
    const int key = tile * BLOCK_N, after = keys_after(args);
#if HAS_NUMBERS
    if (args.bias_boxes) add_bias_from_boxes(); else add_bias(key);
#elif HAS_BIAS
    add_bias(key);
#endif
#if WINDOWED
    if (key < row + GROUP_ROWS - 1 - args.window_left) mask_before(key);
#endif
    if (key + BLOCK_N <= (HIDES ? least(args.seq_k, row + 1 + after) : args.seq_k)) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int my_row = row + warp * 16 + lane / 4 + half * 8;
      const int end = (HIDES ? least(args.seq_k, my_row + 1 + after) : args.seq_k) - key - lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < HALF; i++)
        if (i / 2 * 8 + i % 2 >= end) scores[place(half, i)] = -INFINITY;
    }
  }

#if HAS_BIAS
  __device__ __forceinline__ RowBias bias_of(int my_row) const {
    return row_bias(args.more[SDPA_BIAS - SDPA_MORE], args.bias_stride, slice / args.heads, slice % args.heads, my_row,
                    my_row, args.seq_k, args.scale_log2);
  }

  __device__ __forceinline__ void add_bias(int key) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int my_row = least(row + warp * 16 + lane / 4 + half * 8, args.seq_q - 1);
#if BIAS == AT_ALIBI
      RowBias bias = slope;
      bias.place = my_row;
#else
      const RowBias bias = bias_of(my_row);
#endif
#pragma unroll
      for (int i = 0; i < HALF; i += 2) {
        const float2 pair = bias.of(key + lane % 4 * 2, i / 2 * 8);
        scores[place(half, i)] += pair.x;
        scores[place(half, i + 1)] += pair.y;
      }
    }
  }
#endif

#if HAS_NUMBERS
  // The bias of 16 keys lies as ldmatrix hands out a tile of A: each lane has the pairs that go to its scores.
  __device__ __forceinline__ void add_bias_from_boxes() {
    const unsigned char *const tile = shared + BIAS_OFFSET + bias_slot() * BIAS_BYTES;
    const float unit = RowBias::unit_of(args.scale_log2);
    mbarrier_wait(barrier(shared, BIAS_FULL + bias_slot()), biases.parity);
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
      uint32_t pairs[4];
      ldmatrix_x4(pairs, tile + swizzled(GROUP_PANEL, warp * 16 + lane % 16, 2 * i + lane / 16));
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float2 pair = unpack(pairs[j]);
        scores[8 * i + 2 * j] = fmaf(RowBias::kept(pair.x), unit, scores[8 * i + 2 * j]);
        scores[8 * i + 2 * j + 1] = fmaf(RowBias::kept(pair.y), unit, scores[8 * i + 2 * j + 1]);
      }
    }
  }
#endif

#if WINDOWED
  __device__ __forceinline__ void mask_before(int key) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int my_row = row + warp * 16 + lane / 4 + half * 8;
      const int begin = my_row - args.window_left - key - lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < HALF; i++)
        if (i / 2 * 8 + i % 2 < begin) scores[place(half, i)] = -INFINITY;
    }
  }
#endif

  __device__ __forceinline__ void round_probabilities() {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 4; i++) probabilities[i] = pack(scores[2 * i], scores[2 * i + 1]);
  }

  __device__ __forceinline__ void rescale(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; i++) output[i] *= factor[i / 2 % 2];
  }

  // The first tile, whose scores have come: exact, whatever follows.
  __device__ __forceinline__ void first_tile() {
    release_keys();
    mask(tiles - 1);
    release_bias();
    softmax_exact<true>(softmax, scores, args.scale_log2);
    round_probabilities();
    if (stored >= 0 && elected()) {
      tma_store_wait();
      mbarrier_arrive(barrier(shared, stored));
    }
  }

  // Issues the scores of the next tile and the output of the last, in the order in which they are waited for.
  __device__ __forceinline__ void issue_both(bool add) {
    if (OVERLAP) wait_keys(); else wait_values();
    await_turn();
    hold(scores);
    hold(output);
    hold(probabilities);
    wgmma_fence();
    if (OVERLAP) issue_scores(); else issue_output(add);
    if (OVERLAP) wait_values(); else wait_keys();
    wgmma_fence();
    if (OVERLAP) issue_output(add); else issue_scores();
    pass_turn();
  }

  // The scores alone: the output follows when they are there.
  __device__ __forceinline__ void issue_scores_first() {
    wait_keys();
    await_turn();
    hold(scores);
    wgmma_fence();
    issue_scores();
    wait_values();
  }

  // No branch comes between these products and the exponentials after them, or ptxas does not mix them.
  __device__ __forceinline__ void weave_output(bool add) {
    hold(output);
    hold(probabilities);
    wgmma_fence();
    issue_output(add);
  }

  // True when what was summed before must be multiplied by softmax.decay.
  __device__ __forceinline__ bool soften(int tile) {
    if constexpr (SPECULATE) {
      return softmax_speculative(softmax, scores, args.scale_log2, [&](Scores &) { rescore(tile); });
    } else {
      softmax_exact<false>(softmax, scores, args.scale_log2);
      return true;
    }
  }

  __device__ __forceinline__ void next_tile(int tile) {
    if (WEAVES) issue_scores_first(); else issue_both(tile < tiles - 2);
    wgmma_wait<OVERLAP == 1 ? 1 : 0>();
    hold(scores);
    if (WEAVES) pass_turn();
    if (!SPECULATE) release_keys();
    mask(tile);
    if (!SPECULATE) release_bias();
    if (WEAVES) weave_output(tile < tiles - 2);
    const bool decays = soften(tile);
    if (SPECULATE) {  // the way back reads them
      release_keys();
      release_bias();
    }
    wgmma_wait<0>();
    hold(output);
    hold(probabilities);
    release_values();
    round_probabilities();
    if (decays) rescale(softmax.decay);
  }

  __device__ __forceinline__ void issue_last_output() {
    wait_values();
    if (!OVERLAP) await_turn();
    hold(output);
    hold(probabilities);
    wgmma_fence();
    issue_output(tiles > first + 1);
    if (!OVERLAP) pass_turn();
  }

  // The end of an item ---------------------------------------------------------------------------------------------------

  // Q is read for the last time. Where O takes its place it is freed when O has been stored.
  __device__ __forceinline__ void release_query() {
    if (!OUTPUT_APART) return;
    if (QUERY_IN_REGISTERS || SPECULATE) copy_engine_fence();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(barrier(shared, QUERY_FREE + query_buffer()));
  }

  // What the rows are multiplied by at the end, found while the last product is computed. An IEEE division would branch for
  // its rare cases, which took 3 % of an item of few tiles.
  __device__ __forceinline__ void find_factors([[maybe_unused]] int of_slice, [[maybe_unused]] int of_row,
                                               float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = quad_sum(softmax.sum[half]), decay = 1.0f;
#if HAS_SINKS && LSE
      decay = take_in(sink, softmax.max[half], sum);
#elif HAS_SINKS
      sum += share_of(sink, softmax.max[half]);
#endif
#if LSE
      store_log_sum_exp(of_slice, of_row + warp * 16 + lane / 4 + half * 8, softmax.max[half], sum);
#endif
      const bool blind = (WINDOWED || HAS_NUMBERS) && sum == 0;  // a row that sees no key gives 0
      factor[half] = blind ? 0.0f : __fdividef(decay, sum);
    }
  }

  // ln(sum(exp(score))) of a row, by one of the four lanes that have it: the sum is relative to 2^max.
  __device__ __forceinline__ void store_log_sum_exp(int of_slice, int of_row, float max, float sum) {
    if (lane % 4 == 0 && of_row < args.seq_q)
      args.lse[(int64_t)of_slice * args.seq_q + of_row] = (max + __log2f(sum)) * 0.693147181f;
  }

  // O goes through shared memory: to where its Q was, in `buffer`, or to its own place.
  __device__ __forceinline__ void store(int to_slice, int to_row, int buffer) {
    unsigned char *const tile = shared + (OUTPUT_APART ? OUTPUT_OFFSET + group * GROUP_BYTES : buffer * GROUP_BYTES);
    if (OUTPUT_APART && elected()) tma_store_wait();  // the item before has left
    named_barrier_sync(GROUP_BARRIER + group, WARPGROUP);
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
      const float *const o = output + 8 * i;
      stmatrix_x4(tile + swizzled(GROUP_PANEL, warp * 16 + lane % 16, 2 * i + lane / 16), pack(o[0], o[1]),
                  pack(o[2], o[3]), pack(o[4], o[5]), pack(o[6], o[7]));
    }
    copy_engine_fence();
    named_barrier_sync(GROUP_BARRIER + group, WARPGROUP);
    if (elected()) {
      const Place place = place_of_output(args, to_slice);
#pragma unroll
      for (int panel = 0; panel < PANELS; panel++)
        store_box(&args.o_map, tile + panel * GROUP_PANEL, panel * 64, to_row, place);
      tma_store_commit();
      if (!OUTPUT_APART && Q_BUFFERS == 1) {
        tma_store_wait();
        mbarrier_arrive(barrier(shared, QUERY_FREE + buffer));
      }
    }
    __syncwarp();
    if (!OUTPUT_APART && Q_BUFFERS == 2) stored = QUERY_FREE + buffer;
  }
};

// The ticket of the next item is drawn when the tiles of this one are loaded, for which those that this consumer does not see
// must be given back: they come last, and who waited for the ticket before would wait for ever.
static constexpr bool NEXT_AFTER_UNSEEN = WINDOWED && !EARLY_START;

AT_DEVICE void consume(const wgmma_args &args, unsigned char *shared, int group) {
  Consumer at(args, shared, group);
  Schedule schedule(args, shared);
  at.begin(item(args, schedule.number));
  while (true) {
    wgmma_wait<0>();
    hold(at.scores);
    at.first_tile();
#pragma unroll 1
    for (int tile = at.tiles - 2; tile >= at.first; tile--) at.next_tile(tile);
    at.release_query();
    if (!NEXT_AFTER_UNSEEN) schedule.next(false, false);
    const int slice = at.slice, row = at.row, buffer = at.query_buffer();
    at.query.next();
    float factors[2];
    // The last product is issued in both branches: it must not be in flight where they part.
    if (EARLY_START && !schedule.done()) {
      at.issue_last_output();
      at.find_factors(slice, row, factors);
      at.begin(item(args, schedule.number));
      wgmma_wait<1>();
      hold(at.output);
      at.release_values();
      at.rescale(factors);
      at.store(slice, row, buffer);
    } else {
      at.issue_last_output();
      at.find_factors(slice, row, factors);
      wgmma_wait<0>();
      hold(at.output);
      at.release_values();
      at.give_back(at.unseen);
      if (NEXT_AFTER_UNSEEN) schedule.next(false, false);
      at.rescale(factors);
      at.store(slice, row, buffer);
      if (schedule.done()) break;
      at.begin(item(args, schedule.number));
    }
  }
  if (at.elected()) tma_store_wait();
}

#endif
