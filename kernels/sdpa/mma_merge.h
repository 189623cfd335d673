// From the partial results of a row to its output.
//
// The parts that share rows, warps of this block and of the others of its cluster, divide the output's fragments among
// themselves. Each sends to every part the fragments that this one merges and the state of its softmax, a float4 a lane
// each, into an inbox of that part's block.
#ifndef MMA_MERGE_H
#define MMA_MERGE_H

#include "mma_softmax.h"
#include "sink.h"

// What the parts write to warp `warp_n` of a block, for row tile `m` that the caller shares with it.
AT_DEVICE float4 *inbox(unsigned char *shared, const Place &at, int warp_n, int m) {
  const int index = (m * WARPS_M + at.warp_m) * WARPS_N + warp_n;
  return (float4 *)(shared + INBOX_OFFSET) + index * MERGED * MESSAGE_FLOAT4 + at.lane;
}

// With INBOX_SIGNALS: completes when all that is written there has come.
AT_DEVICE uint64_t *inbox_barrier(unsigned char *shared, const Place &at, int warp_n) {
  return (uint64_t *)(shared + INBOX_BARRIER_OFFSET) + at.warp_m * WARPS_N + warp_n;
}

AT_DEVICE void prepare_inbox([[maybe_unused]] unsigned char *shared, [[maybe_unused]] const Place &at) {
#if CLUSTER_SPLIT > 1 && SYNC_POLICY == 0
  if (at.part >= SHARERS || at.lane != 0) return;
  uint64_t *barrier = inbox_barrier(shared, at, at.warp_n);
  mbarrier_init(barrier, 1);
  mbarrier_init_fence();
  mbarrier_expect(barrier, ROW_TILES * MERGED * MESSAGE_FLOAT4 * sizeof(float4));
#endif
}

// Writes to a warp of the block that part `to` belongs to; `slot` and `barrier` are addresses in the caller's block.
AT_DEVICE void post(float4 *slot, float4 value, [[maybe_unused]] uint64_t *barrier, [[maybe_unused]] const Place &at,
                    [[maybe_unused]] int to) {
#if CLUSTER_SPLIT == 1
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
    float4 *slot = inbox(shared, at, to % WARPS_N, m) + at.merging() * MESSAGE_FLOAT4;
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
#if CLUSTER_SPLIT > 1
  cluster_arrive();
  cluster_wait();
#else
  if (INBOX_APART && WARPS_M > 1)
    named_barrier_sync(1 + WARPS_N + at.warp_m, 32 * WARPS_N);
  else
    __syncthreads();
#endif
}

// What is subtracted from the maxima of parts; some row may have seen no key in any of them.
AT_DEVICE float most(float max) { return MAY_BE_BLIND ? finite(max) : max; }

// The share of a row tile that the caller merges, from what all parts have sent.
AT_DEVICE void receive(float (&output)[SHARE][4], float (&sum)[2], float (&max)[2], const float4 *messages,
                       float scale) {
#pragma unroll
  for (int from = 0; from < MERGED; from++) {
    const float4 state = messages[from * MESSAGE_FLOAT4 + SHARE * 32];
    max[0] = from == 0 ? state.x : fmaxf(max[0], state.x);
    max[1] = from == 0 ? state.z : fmaxf(max[1], state.z);
  }
#pragma unroll
  for (int from = 0; from < MERGED; from++) {
    const float4 state = messages[from * MESSAGE_FLOAT4 + SHARE * 32];
    const float low = exponential((state.x - most(max[0])) * scale), high = exponential((state.z - most(max[1])) * scale);
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

// What a row is divided by; a row that sees no key has summed up nothing, and gives 0.
AT_DEVICE float reciprocal(float sum) { return MAY_BE_BLIND && sum == 0 ? 0.0f : __fdividef(1.0f, sum); }

// ln(sum(exp(score))), of a maximum in powers of two and the sum relative to it.
AT_DEVICE float log_sum_exp(float max, float sum) {
  return MAY_BE_BLIND && sum == 0 ? -INFINITY : (max + __log2f(sum)) * 0.693147181f;
}

// The sink of a row's head. Nothing hides the way to it at the end: it is looked for earlier.
AT_DEVICE float sink_of([[maybe_unused]] const Place &at, [[maybe_unused]] const sdpa_args &args,
                        [[maybe_unused]] int row) {
#if HAS_SINKS
  return sink_of(args.more[SDPA_SINKS - SDPA_MORE], at.head_of(row));
#else
  return 0.0f;
#endif
}

// What the output of a row is multiplied by; with a sink maximum and sum take that in. Where the maximum is still wanted it
// becomes one of powers of two.
AT_DEVICE float closed([[maybe_unused]] const Place &at, [[maybe_unused]] const sdpa_args &args,
                       [[maybe_unused]] float sink, [[maybe_unused]] float &max, float &sum) {
#if HAS_SINKS || LSE
  max *= scale_log2(args, at);
#endif
#if HAS_SINKS
  const float decay = take_in(sink, max, sum);
  return decay * reciprocal(sum);
#elif FP8_CACHE
  return reciprocal(sum) * descale(args, SDPA_V, at);
#else
  return reciprocal(sum);
#endif
}

// Writes COUNT neighbouring fragments of 16 rows, `first` the number of the first. Lanes 2 i and 2 i + 1 trade words,
// so that each writes 8 bytes of one fragment instead of 4 bytes of two.
template <int COUNT>
AT_DEVICE void store(const Place &at, const sdpa_args &args, int first_row, int first, const float (&output)[COUNT][4],
                     const float (&sum)[2], const float (&max)[2], const float (&sink)[2]) {
  const int pair = at.lane % 2;
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    const int row = first_row + at.lane / 4 + half * 8;
    float row_max = max[half], row_sum = sum[half];
    const float factor = closed(at, args, sink[half], row_max, row_sum);
    element *to = (element *)args.o + at.place(row, args.o_stride);
    uint32_t *words = pair_of((uint32_t *)to, first, at.lane % 4);
    const bool valid = (FIXED && AT_SEQ_Q(at) % CLUSTER_ROWS == 0) || row < at.rows;
#if LSE
    if (valid && first == 0 && at.lane % 4 == 0) args.lse[at.lse_place(row)] = log_sum_exp(row_max, row_sum);
#endif
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
      const uint32_t even = pack(output[i][half * 2] * factor, output[i][half * 2 + 1] * factor);
      if constexpr (COUNT == 1) {
        if (valid) words[0] = even;
      } else {
        const uint32_t odd = pack(output[i + 1][half * 2] * factor, output[i + 1][half * 2 + 1] * factor);
        const uint32_t traded = __shfl_xor_sync(~0u, pair ? even : odd, 1);
        const uint2 both = FP8_CACHE  ? make_uint2(even, odd)
                           : pair ? make_uint2(traded, odd)
                                  : make_uint2(even, traded);
        if (valid) *(uint2 *)(words + (FP8_CACHE ? i * 4 : (i + pair) * 4 - pair)) = both;
      }
    }
  }
}

#if DEVICE_MERGE

AT_DEVICE unsigned char *block_workspace(const sdpa_args &args, unsigned block) {
  return (unsigned char *)args.workspace + (int64_t)block * BLOCK_WORKSPACE;
}

// It lies in the workspace, since launches may overlap on two streams: each has a workspace of its own.
AT_DEVICE unsigned long long *arrivals(const sdpa_args &args) {
  return &((sdpa_arrivals *)block_workspace(args, gridDim.x) + blockIdx.x / SPLIT)->word;
}

AT_DEVICE unsigned long long nobody_has_come(const sdpa_args &args) { return (unsigned long long)args.launch << 32; }

// A launch finds garbage there. It is looked at when a block begins, so that nobody waits for it, and replaced before the
// block comes: by the first to do so. The others, who have seen it too, exchange nothing. Coming is one addition then.
AT_DEVICE unsigned long long look_at_arrivals(const sdpa_args &args) {
  return threadIdx.x == 0 ? *(volatile unsigned long long *)arrivals(args) : nobody_has_come(args);
}

AT_DEVICE void prepare_arrivals(const sdpa_args &args, unsigned long long found) {
  if (found >> 32 != args.launch) atomicCAS(arrivals(args), found, nobody_has_come(args));
}

// As store(), but what the block has found goes to its workspace as it is.
template <int COUNT>
AT_DEVICE void hand_in(const Place &at, const sdpa_args &args, int first_row, int first, const float (&output)[COUNT][4],
                       const float (&sum)[2], const float (&max)[2], const float (&)[2]) {
  unsigned char *workspace = block_workspace(args, blockIdx.x);
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    const int row = first_row + at.lane / 4 + half * 8, here = row % BLOCK_ROWS;
    if (row >= at.rows) continue;
    float2 *to = pair_of((float2 *)workspace + here * (HEAD_DIM / 2), first, at.lane % 4);
#pragma unroll
    for (int i = 0; i < COUNT; i++) __stcg(pair_of(to, i, 0), make_float2(output[i][half * 2], output[i][half * 2 + 1]));
    if (first == 0 && at.lane % 4 == 0)
      __stcg((float2 *)(workspace + STATE_OFFSET) + here, make_float2(max[half], sum[half]));
  }
}

// Four neighbouring numbers of a row, merged.
struct Merged {
  float4 total = {};
  float max = -INFINITY, sum = 0;
  float sink;
};

// Blocks whose results are read at once, and for how many places at once: to read one after the other would wait for each.
static constexpr int BLOCKS_AT_ONCE = SPLIT < 16 ? SPLIT : 16, PLACES_AT_ONCE = 16 / BLOCKS_AT_ONCE;

// Merges some of the blocks, in their order, into what was found of one place in the blocks before.
AT_DEVICE void merge_some(Merged &found, const float2 (&state)[BLOCKS_AT_ONCE], const float4 (&piece)[BLOCKS_AT_ONCE],
                          float scale) {
  const float before = found.max;
#pragma unroll
  for (int i = 0; i < BLOCKS_AT_ONCE; i++) found.max = fmaxf(found.max, state[i].x);
  const float decay = exponential((before - most(found.max)) * scale);
  found.sum *= decay;
  found.total.x *= decay, found.total.y *= decay, found.total.z *= decay, found.total.w *= decay;
#pragma unroll
  for (int i = 0; i < BLOCKS_AT_ONCE; i++) {
    const float weight = exponential((state[i].x - most(found.max)) * scale);
    found.sum = fmaf(weight, state[i].y, found.sum);
    found.total.x = fmaf(weight, piece[i].x, found.total.x);
    found.total.y = fmaf(weight, piece[i].y, found.total.y);
    found.total.z = fmaf(weight, piece[i].z, found.total.z);
    found.total.w = fmaf(weight, piece[i].w, found.total.w);
  }
}

// Places of rows, each of four numbers, from what `splits` blocks from `block` on have found.
AT_DEVICE void merge_blocks(const sdpa_args &args, unsigned block, int splits, const int (&places)[PLACES_AT_ONCE],
                            Merged (&found)[PLACES_AT_ONCE], float scale) {
  for (int first = 0; first < splits; first += BLOCKS_AT_ONCE) {
    float2 state[PLACES_AT_ONCE][BLOCKS_AT_ONCE];
    float4 piece[PLACES_AT_ONCE][BLOCKS_AT_ONCE];
#pragma unroll
    for (int at = 0; at < PLACES_AT_ONCE; at++)
#pragma unroll
      for (int i = 0; i < BLOCKS_AT_ONCE; i++) {
        const bool exists = first + i < splits;
        const unsigned char *from = block_workspace(args, block + (exists ? first + i : 0));
        state[at][i] = __ldcg((const float2 *)(from + STATE_OFFSET) + places[at] / (HEAD_DIM / 4));
        piece[at][i] = __ldcg((const float4 *)from + places[at]);
        if (!exists) state[at][i].x = -INFINITY;
      }
#pragma unroll
    for (int at = 0; at < PLACES_AT_ONCE; at++) merge_some(found[at], state[at], piece[at], scale);
  }
}

// Writes a merged place of the rows from `first_row` on.
AT_DEVICE void store_merged(const Place &at, const sdpa_args &args, int first_row, int place, const Merged &found) {
  const int row = first_row + place / (HEAD_DIM / 4), column = place % (HEAD_DIM / 4);
  float max = found.max, sum = found.sum;
  const float factor = closed(at, args, found.sink, max, sum);
  const float4 total = found.total;
  element *to = (element *)args.o + at.place(row, args.o_stride) + column * 4;
  *(uint2 *)to = make_uint2(pack(total.x * factor, total.y * factor), pack(total.z * factor, total.w * factor));
#if LSE
  if (column == 0) args.lse[at.lse_place(row)] = log_sum_exp(max, sum);
#endif
}

// The last of the blocks that work to come merges what all have found, in their order: the result does not depend on who is
// last. It leaves the counter as a graph that launches with the same number again wants it.
AT_DEVICE void merge_on_device(const Place &at, const sdpa_args &args, unsigned char *shared) {
  int *last = (int *)shared;
  __syncthreads();
  if (threadIdx.x == 0) {
    *last = add_in_order(arrivals(args), 1) == nobody_has_come(args) + at.splits - 1;
    if (*last) *arrivals(args) = nobody_has_come(args);
  }
  __syncthreads();
  if (!*last) return;
  const int first_row = at.row - at.warp_m * WARP_ROWS, rows = least(BLOCK_ROWS, at.rows - first_row);
  const int count = rows * (HEAD_DIM / 4);
  for (int first = threadIdx.x; first < count; first += PLACES_AT_ONCE * THREADS) {
    int places[PLACES_AT_ONCE];
    Merged found[PLACES_AT_ONCE];
#pragma unroll
    for (int i = 0; i < PLACES_AT_ONCE; i++) {
      places[i] = least(first + i * THREADS, count - 1);
      found[i].sink = sink_of(at, args, first_row + places[i] / (HEAD_DIM / 4));
    }
    merge_blocks(args, blockIdx.x / SPLIT * SPLIT, at.splits, places, found, scale_log2(args, at));
#pragma unroll
    for (int i = 0; i < PLACES_AT_ONCE; i++)
      if (first + i * THREADS < count) store_merged(at, args, first_row, places[i], found[i]);
  }
}

#else

template <int COUNT>
AT_DEVICE void hand_in(const Place &at, const sdpa_args &args, int first_row, int first, const float (&output)[COUNT][4],
                       const float (&sum)[2], const float (&max)[2], const float (&sink)[2]) {
  store(at, args, first_row, first, output, sum, max, sink);
}

AT_DEVICE unsigned long long look_at_arrivals(const sdpa_args &) { return 0; }
AT_DEVICE void prepare_arrivals(const sdpa_args &, unsigned long long) {}
AT_DEVICE void merge_on_device(const Place &, const sdpa_args &, unsigned char *) {}

#endif

// Merges what the parts of the block, or of its cluster, have found, and hands it in.
AT_DEVICE void merge_parts(const Place &at, const sdpa_args &args, Partial (&partial)[ROW_TILES], unsigned char *shared) {
  if (MERGED > 1 && !INBOX_APART) meet_parts(at);
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) {
    partial[m].sum[0] = quad_sum(partial[m].sum[0]);
    partial[m].sum[1] = quad_sum(partial[m].sum[1]);
    if constexpr (MERGED == 1)
      hand_in(at, args, at.row + m * TILE_ROWS, 0, partial[m].output, partial[m].sum, partial[m].max,
              partial[m].sink);
    else
      send(shared, at, partial[m], m);
  }
  if (MERGED == 1) return;
  if (!INBOX_SIGNALS) meet_parts(at);
  if (at.merging() >= SHARERS) return;
#if CLUSTER_SPLIT > 1 && SYNC_POLICY == 0
  mbarrier_wait(inbox_barrier(shared, at, at.warp_n), 0);
#endif
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) {
    float output[SHARE][4] = {}, sum[2] = {}, max[2] = {-INFINITY, -INFINITY};
    receive(output, sum, max, inbox(shared, at, at.warp_n, m), scale_log2(args, at));
    hand_in(at, args, at.row + m * TILE_ROWS, at.merging() * SHARE, output, sum, max,
            partial[m].sink);
  }
}

AT_DEVICE void find_sinks(Partial (&partial)[ROW_TILES], const Place &at, const sdpa_args &args) {
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
    for (int half = 0; half < HALVES; half++)
      partial[m].sink[half] = sink_of(at, args, at.row + m * TILE_ROWS + at.lane / 4 + half * 8);
}

// Merges what all parts have found and writes it.
AT_DEVICE void finish(const Place &at, const sdpa_args &args, Partial (&partial)[ROW_TILES], unsigned char *shared) {
  merge_parts(at, args, partial, shared);
  merge_on_device(at, args, shared);
}

#endif
