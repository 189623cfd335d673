// Attention with the warp matrix functions of CUDA C++ (nvcuda::wmma) for both products.
//
// A block computes BLOCK_M queries of one head and goes through the keys in tiles of BLOCK_N:
//   scores   S = Q K^T                                                    (multiply_queries)
//   softmax  P = 2^(c S - max), its sum, and how far the max has moved    (softmax_rows)
//   output   O = O * decay + P V                                          (accumulate_output)
// Where an element of a fragment lies in its matrix is the compiler's secret. So S goes to shared memory, where two
// lanes take a row each and need no layout, and P comes back from there. O stays in fragments throughout; the rows of
// its elements are read off a fragment that was loaded from a table of row numbers (element_rows).
//
// A warp has rows of its own. Where there are more warps than 16-row tiles, the warps of the same rows form key groups:
// each takes its own keys of every tile with a running max, sum and output of its own, and the groups are merged once,
// at the end (store_output). No warp waits for another between the arrival of a tile and its release.
//
// Parameters:
//   BLOCK_M, BLOCK_N  queries a block, keys a tile
//   NUM_WARPS         warps that compute
//   STAGES            tiles of K and V that shared memory holds
//   PAD               elements between the rows of Q, K, V and P in shared memory: 8 keeps eight rows in distinct banks
//   PRODUCER_WARPS    warps that only copy K and V; 0: the computing warps copy, each group its own keys
//   ACC               float, half: the accumulators of S. Half accumulators overflow at 65504 before scaling
//   FIXED             1: SEQ_Q and SEQ_K are constants
//   SYNC_POLICY       0: a tile takes one barrier, among the warps of a key group, which releases the tile before as
//                        well; S and P belong to one warp and take __syncwarp
//                     1: a barrier of all computing warps a hazard: tile arrived, S written, P written, tile released
//                     2: as 1, and one before the first and after the last phase of every tile
//                     With producers, arrival and release are named barriers between them and all computing warps.
#include "wmma_shape.h"
#include "wmma_ring.h"

#include <mma.h>

namespace wmma = nvcuda::wmma;

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(sdpa_args),
               .threads = THREADS,
               .rows = BLOCK_M,
               .split = 1,
               .cluster = 1,
               .dynamic_shared = SHARED_BYTES,
               .head_dim = HEAD_DIM,
#if FIXED
               .fixed_seq_q = SEQ_Q,
               .fixed_seq_k = SEQ_K,
#endif
};

// The phases of a tile -----------------------------------------------------------------------------------------------

typedef wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, element, wmma::row_major> LeftFragment;
typedef wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, element, wmma::col_major> KeyFragment;
typedef wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, element, wmma::row_major> ValueFragment;
typedef wmma::fragment<wmma::accumulator, TILE, TILE, TILE, score> ScoreFragment;
typedef wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> OutputFragment;

// What a warp keeps from tile to tile. Two neighbouring lanes have a row of every row tile: the same max, and each the
// sum over its half of the keys.
struct Warp {
  LeftFragment q[ROW_TILES][DIM_TILES];
  OutputFragment o[ROW_TILES][DIM_TILES];
  int rows[OutputFragment::num_elements];  // of the elements of an accumulator
  float max[ROW_TILES], sum[ROW_TILES];    // max of scores before they are scaled, -inf before the first visible key
};

AT_DEVICE void load_query(LeftFragment &fragment, int row_tile, int dim_tile) {
  const element *rows = shared_array<element>(0) + (warp_first_row() + row_tile * TILE) * PITCH;
  wmma::load_matrix_sync(fragment, rows + dim_tile * TILE, PITCH);
}

AT_DEVICE void multiply_queries(Warp &warp, const element *keys) {
  score *scores = shared_array<score>(SCORES) + warp_first_state() * S_PITCH;
#pragma unroll
  for (int n = 0; n < KEY_TILES; n++) {
    ScoreFragment s[ROW_TILES];
    for (ScoreFragment &fragment : s) wmma::fill_fragment(fragment, score(0.0f));
#pragma unroll
    for (int d = 0; d < DIM_TILES; d++) {
      KeyFragment key;
      wmma::load_matrix_sync(key, keys + n * TILE * PITCH + d * TILE, PITCH);
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
        if (!QUERIES_STAY) load_query(warp.q[m][d], m, d);
        wmma::mma_sync(s[m], warp.q[m][d], key, s[m]);
      }
    }
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
      wmma::store_matrix_sync(scores + m * TILE * S_PITCH + n * TILE, s[m], S_PITCH, wmma::mem_row_major);
  }
}

AT_DEVICE void load_scores(float (&s)[4], const float *from) {
  const float4 four = *(const float4 *)from;
  s[0] = four.x, s[1] = four.y, s[2] = four.z, s[3] = four.w;
}

AT_DEVICE void load_scores(float (&s)[4], const __half *from) {
  const uint2 four = *(const uint2 *)from;
  const float2 low = __half22float2(*(const __half2 *)&four.x), high = __half22float2(*(const __half2 *)&four.y);
  s[0] = low.x, s[1] = low.y, s[2] = high.x, s[3] = high.y;
}

// A row of a row tile by each pair of lanes, which take four keys in turn. `visible`: how many of the keys it sees.
AT_DEVICE void softmax_rows(Warp &warp, int row_tile, int visible, float scale_log2) {
  constexpr int QUADS = WARP_KEYS / 8;
  const int half = lane() % 2, state = warp_first_state() + row_tile * TILE + lane() / 2;
  const score *scores = shared_array<score>(SCORES) + state * S_PITCH + half * 4;
  float s[QUADS][4];
#pragma unroll
  for (int i = 0; i < QUADS; i++) load_scores(s[i], scores + i * 8);
  if (visible < WARP_KEYS) {
#pragma unroll
    for (int i = 0; i < QUADS * 4; i++)
      if (i / 4 * 8 + half * 4 + i % 4 >= visible) s[i / 4][i % 4] = -INFINITY;
  }
  float largest[4] = {s[0][0], s[0][1], s[0][2], s[0][3]};
#pragma unroll
  for (int i = 4; i < QUADS * 4; i++) largest[i % 4] = fmaxf(largest[i % 4], s[i / 4][i % 4]);
  float row_max = fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]));
  row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 1));
  row_max = fmaxf(warp.max[row_tile], row_max);
  const float most = row_max == -INFINITY ? 0.0f : row_max;  // -inf minus -inf would be NaN
  const float decay = exp2_approx((warp.max[row_tile] - most) * scale_log2);
  element *probabilities = shared_array<element>(PROBABILITIES) + state * P_PITCH + half * 4;
  float sum[2] = {};
#pragma unroll
  for (int i = 0; i < QUADS; i++) {
    float p[4];
#pragma unroll
    for (int j = 0; j < 4; j++) p[j] = exp2_approx((s[i][j] - most) * scale_log2);
    sum[0] += p[0] + p[1];
    sum[1] += p[2] + p[3];
    *(uint2 *)(probabilities + i * 8) = make_uint2(pack(p[0], p[1]), pack(p[2], p[3]));
  }
  warp.sum[row_tile] = fmaf(warp.sum[row_tile], decay, sum[0] + sum[1]);
  warp.max[row_tile] = row_max;
  if (half == 0) shared_array<float>(DECAY)[state] = decay;
}

AT_DEVICE void accumulate_output(Warp &warp, const element *values) {
  const float *decay = shared_array<float>(DECAY) + warp_first_state();
  const element *probabilities = shared_array<element>(PROBABILITIES) + warp_first_state() * P_PITCH;
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
    for (int i = 0; i < OutputFragment::num_elements; i++) {
      const float factor = decay[m * TILE + warp.rows[i]];
#pragma unroll
      for (int d = 0; d < DIM_TILES; d++) warp.o[m][d].x[i] *= factor;
    }
#pragma unroll
  for (int n = 0; n < KEY_TILES; n++) {
    LeftFragment p[ROW_TILES];
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
      wmma::load_matrix_sync(p[m], probabilities + m * TILE * P_PITCH + n * TILE, P_PITCH);
#pragma unroll
    for (int d = 0; d < DIM_TILES; d++) {
      ValueFragment value;
      wmma::load_matrix_sync(value, values + n * TILE * PITCH + d * TILE, PITCH);
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) wmma::mma_sync(warp.o[m][d], p[m], value, warp.o[m][d]);
    }
  }
}

AT_DEVICE void use_tile(Warp &warp, const Block &block, int tile, float scale_log2) {
  const int group_row = key_group() * WARP_KEYS, first_key = tile * BLOCK_N + group_row;
  const int first_row = block.first_row + warp_first_row();
  // Without barriers of the block in between, a warp may leave out keys that none of its rows sees.
  if (CAUSAL && SYNC_POLICY == 0 && first_key >= first_row + WARP_ROWS) return;
  heavy_sync();
  multiply_queries(warp, key_tile(tile) + group_row * PITCH);
  phase_sync();
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) {
    int visible = WHOLE_KEYS ? WARP_KEYS : block.seq_k - first_key;
    if (CAUSAL) visible = min(visible, first_row + m * TILE + lane() / 2 + 1 - first_key);
    softmax_rows(warp, m, visible, scale_log2);
  }
  phase_sync();
  accumulate_output(warp, value_tile(tile) + group_row * PITCH);
  heavy_sync();
}

// Beginning and end --------------------------------------------------------------------------------------------------

AT_DEVICE void number_rows() {
#pragma unroll
  for (int i = 0; i < TILE * TILE; i += CONSUMERS)
    shared_array<float>(ROW_NUMBERS)[i + threadIdx.x] = (i + (int)threadIdx.x) / TILE;
}

// The row of each element of an accumulator, from a matrix whose elements are their row's number.
AT_DEVICE void element_rows(int (&rows)[OutputFragment::num_elements]) {
  OutputFragment numbers;
  wmma::load_matrix_sync(numbers, shared_array<float>(ROW_NUMBERS), TILE, wmma::mem_row_major);
#pragma unroll
  for (int i = 0; i < OutputFragment::num_elements; i++) rows[i] = (int)numbers.x[i];
}

AT_DEVICE void start_warp(Warp &warp) {
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
    for (int d = 0; d < DIM_TILES; d++) {
      if (QUERIES_STAY) load_query(warp.q[m][d], m, d);
      wmma::fill_fragment(warp.o[m][d], 0.0f);
    }
    warp.max[m] = -INFINITY;
    warp.sum[m] = 0.0f;
  }
  element_rows(warp.rows);
}

// Output, max and sum of the warp's key group into shared memory.
AT_DEVICE void share_output(Warp &warp) {
  float *output = shared_array<float>(0) + warp_first_state() * O_PITCH;
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) {
#pragma unroll
    for (int d = 0; d < DIM_TILES; d++)
      wmma::store_matrix_sync(output + m * TILE * O_PITCH + d * TILE, warp.o[m][d], O_PITCH, wmma::mem_row_major);
    const float sum = warp.sum[m] + __shfl_xor_sync(0xffffffff, warp.sum[m], 1);
    if (lane() % 2 == 0) {
      const int state = warp_first_state() + m * TILE + lane() / 2;
      shared_array<float>(ROW_MAX)[state] = warp.max[m];
      shared_array<float>(ROW_SUM)[state] = sum;
    }
  }
}

// Eight columns of a row, merged from the key groups.
AT_DEVICE uint4 merged_output(int row, int column, float scale_log2) {
  const float *row_max = shared_array<float>(ROW_MAX) + row, *row_sum = shared_array<float>(ROW_SUM) + row;
  const float *output = shared_array<float>(0) + row * O_PITCH + column;
  float largest = row_max[0];
#pragma unroll
  for (int g = 1; g < KEY_GROUPS; g++) largest = fmaxf(largest, row_max[g * BLOCK_M]);
  float sum = 0.0f, o[8] = {};
#pragma unroll
  for (int g = 0; g < KEY_GROUPS; g++) {
    const float weight = exp2_approx((row_max[g * BLOCK_M] - largest) * scale_log2);
    sum = fmaf(weight, row_sum[g * BLOCK_M], sum);
#pragma unroll
    for (int i = 0; i < 8; i++) o[i] = fmaf(weight, output[g * BLOCK_M * O_PITCH + i], o[i]);
  }
  const float inverse = 1.0f / sum;
  return make_uint4(pack(o[0] * inverse, o[1] * inverse), pack(o[2] * inverse, o[3] * inverse),
                    pack(o[4] * inverse, o[5] * inverse), pack(o[6] * inverse, o[7] * inverse));
}

AT_DEVICE void store_output(const Block &block, float scale_log2) {
  constexpr int ROW_CHUNKS = HEAD_DIM / 8;
#pragma unroll
  for (int i = 0; i < BLOCK_M * ROW_CHUNKS / CONSUMERS; i++) {
    const int row = (i * CONSUMERS + threadIdx.x) / ROW_CHUNKS, chunk = threadIdx.x % ROW_CHUNKS;
    const int64_t to = block.first_row + row;
    const uint4 merged = merged_output(row, chunk * 8, scale_log2);
    if (WHOLE_QUERIES || to < block.seq_q) ((uint4 *)block.o)[to * ROW_CHUNKS + chunk] = merged;
  }
}

AT_DEVICE void consume(const Block &block, float scale_log2) {
  copy_rows<BLOCK_M, CONSUMERS, WHOLE_QUERIES>(shared_array<element>(0), block.q, block.first_row, block.seq_q,
                                               threadIdx.x);
  cp_async_commit();
  if (!PRODUCER_WARPS) start_ring(block);
  number_rows();
  cp_async_wait<PRODUCER_WARPS ? 0 : STAGES>();
  consumer_sync();
  Warp warp;
  start_warp(warp);
  for (int tile = 0; tile < block.tiles; tile++) {
    acquire_tile(block, tile);
    use_tile(warp, block, tile, scale_log2);
    release_tile(block, tile);
  }
  consumer_sync();  // nobody reads Q or the ring any more
  share_output(warp);
  consumer_sync();
  store_output(block, scale_log2);
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ sdpa_args args) {
  const Block block = this_block(args);
  if (PRODUCER_WARPS && threadIdx.x >= CONSUMERS)
    produce(block);
  else
    consume(block, args.scale_log2);
}
