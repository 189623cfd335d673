// Attention on the CUDA cores, without tensor cores: tiles in shared memory, register-tiled products in float32, online
// softmax. Read this one first; the other CUDA implementations compute the same with matrix instructions.
//
// A block has BLOCK_M query rows and goes through the keys in tiles of BLOCK_N. A warp has BLOCK_M / NUM_WARPS of the
// rows, for all keys and all of HEAD_DIM, so what it exchanges it exchanges within itself. Its 32 lanes form a grid of
// 32 / LANES rows by LANES columns; a lane has ROWS rows, and of each of them
//   KEYS scores        S = Q K^T    key LANES * j + lane                     (score)
//   DIMS outputs       O += P V     runs of VALUE_VEC dims, LANES runs apart (add_values)
// P goes from the lanes that computed it to all lanes of its row through shared memory.
//
// Parameters:
//   BLOCK_M, BLOCK_N  query rows a block, keys a tile
//   NUM_WARPS         warps a block
//   VEC_WIDTH         elements that one instruction copies from global to shared memory, or reads from there
//   REDUCE            how the lanes of a row agree on its maximum and sum. WARP: by shuffles; SHARED: in shared memory
//   STAGES            tiles of K and V in shared memory. 1: a tile is fetched when it is needed; 2: while the block is
//                     at work on the one before
//   PAD               unused elements after each row of Q, K and V in shared memory. Lanes read one column of
//                     neighbouring rows: without PAD these lie in the same banks
//   SYNC_POLICY       0: a warp's barrier for what a warp exchanges; the block's before a tile is read and before one
//                     is overwritten, which is the same one with STAGES = 2. 1: the block's barrier for each hazard.
//                     2: also after each phase
#include "sdpa_cuda.h"

#include "cuda_element.h"

static constexpr int THREADS = 32 * NUM_WARPS;
static constexpr int WARP_ROWS = BLOCK_M / NUM_WARPS;

// The power of two that makes a lane's tile of scores as square as can be: a square needs the fewest operands.
static constexpr int lanes_across() {
  int lanes = WARP_ROWS < 8 ? 32 / WARP_ROWS : 4;
  while (lanes < 32 && lanes < BLOCK_N && 4 * lanes * lanes * WARP_ROWS <= 32 * BLOCK_N) lanes *= 2;
  return lanes;
}

static constexpr int LANES = lanes_across();
static constexpr int ROW_STEP = 32 / LANES;  // a lane's rows are so far apart
static constexpr int ROWS = WARP_ROWS / ROW_STEP;
static constexpr int KEYS = BLOCK_N / LANES;
static constexpr int DIMS = HEAD_DIM / LANES;
static constexpr int VALUE_VEC = DIMS < VEC_WIDTH ? DIMS : VEC_WIDTH;
static constexpr int UNROLL = 8 / VEC_WIDTH;  // 8 dims of a dot product at a time

static_assert(BLOCK_M % NUM_WARPS == 0 && BLOCK_M * BLOCK_N >= THREADS, "every lane has a score of every tile");
static_assert(VEC_WIDTH == 2 || VEC_WIDTH == 4 || VEC_WIDTH == 8, "4, 8 or 16 bytes");
static_assert(PAD >= 0 && PAD % VEC_WIDTH == 0, "a row in shared memory is whole vectors");
static_assert(STAGES == 1 || STAGES == 2, "unknown STAGES");
static_assert(SYNC_POLICY >= 0 && SYNC_POLICY <= 2, "unknown SYNC_POLICY");

// Shared memory: Q, then a tile of K and one of V a stage, then P and the partial results of REDUCE = SHARED in float.
// With these pitches the rows of P that one warp writes to lie in different banks.
static constexpr int PITCH = HEAD_DIM + PAD;
static constexpr int P_PITCH = BLOCK_N + LANES;
static constexpr int TILE = BLOCK_N * PITCH;
static constexpr int P_OFFSET = (BLOCK_M * PITCH + 2 * STAGES * TILE) * (int)sizeof(element);
#if defined(REDUCE_SHARED)
static constexpr int PARTIALS = BLOCK_M * LANES;
#elif defined(REDUCE_WARP)
static constexpr int PARTIALS = 0;
#else
#error "unknown REDUCE"
#endif
static constexpr int SHARED_BYTES = P_OFFSET + (BLOCK_M * P_PITCH + PARTIALS) * (int)sizeof(float);

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(sdpa_args),
               .threads = THREADS,
               .rows = BLOCK_M,
               .split = 1,
               .cluster = 1,
               .dynamic_shared = SHARED_BYTES,
               .head_dim = HEAD_DIM};

template <int N>
struct alignas(2 * N) Elements {  // N elements that are read or written by one instruction
  uint32_t word[N / 2];
};

struct alignas(16) Floats {
  float x[4];
};

// What was written is about to be read, by lanes of the same warp.
AT_DEVICE void exchange() {
  if (SYNC_POLICY == 0)
    __syncwarp();
  else
    __syncthreads();
}

AT_DEVICE void end_of_phase() {
  if (SYNC_POLICY == 2) __syncthreads();
}

// Begins to copy COUNT rows; those from `existing` on become zeros.
template <int COUNT>
AT_DEVICE void fetch(element *to, const element *from, int existing) {
  constexpr unsigned ROW_VECTORS = HEAD_DIM / VEC_WIDTH, VECTORS = COUNT * ROW_VECTORS;
#pragma unroll 4
  for (unsigned first = 0; first < VECTORS; first += THREADS) {
    const unsigned i = first + threadIdx.x;
    if (VECTORS % THREADS != 0 && i >= VECTORS) return;
    const int row = i / ROW_VECTORS, column = i % ROW_VECTORS * VEC_WIDTH;
    const bool valid = row < existing;
    cp_async<2 * VEC_WIDTH>(to + row * PITCH + column, from + (valid ? row * HEAD_DIM + column : 0), valid);
  }
}

// s = Q K^T for this lane's rows and keys; q and k are the first of them.
AT_DEVICE void score(float (&s)[ROWS][KEYS], const element *q, const element *k) {
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < KEYS; ++j) s[i][j] = 0;
#pragma unroll UNROLL
  for (int d = 0; d < HEAD_DIM; d += VEC_WIDTH) {
    Elements<VEC_WIDTH> query[ROWS], key[KEYS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) query[i] = *(const Elements<VEC_WIDTH> *)(q + i * ROW_STEP * PITCH + d);
#pragma unroll
    for (int j = 0; j < KEYS; ++j) key[j] = *(const Elements<VEC_WIDTH> *)(k + j * LANES * PITCH + d);
#pragma unroll
    for (int w = 0; w < VEC_WIDTH / 2; ++w) {
      float2 b[KEYS];
#pragma unroll
      for (int j = 0; j < KEYS; ++j) b[j] = unpack(key[j].word[w]);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        const float2 a = unpack(query[i].word[w]);
#pragma unroll
        for (int j = 0; j < KEYS; ++j) s[i][j] = fmaf(a.y, b[j].y, fmaf(a.x, b[j].x, s[i][j]));
      }
    }
  }
}

// Scores become exponents of 2; with `hide`, those of keys that do not exist or that the row does not see become -inf.
// `row` and `key` are the lane's first in the sequence.
AT_DEVICE void scale_and_hide(float (&s)[ROWS][KEYS], float scale_log2, bool hide, int row, int key, int seq_k) {
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < KEYS; ++j) s[i][j] *= scale_log2;
  if (!hide) return;
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      const int end = CAUSAL ? min(seq_k, row + i * ROW_STEP + 1) : seq_k;
      if (key + j * LANES >= end) s[i][j] = -INFINITY;
    }
}

template <bool MAXIMUM>
AT_DEVICE float combine(float a, float b) {
  return MAXIMUM ? fmaxf(a, b) : a + b;
}

// Every lane of a row gets the maximum, or the sum, of what the lanes of that row have. `partial`, for REDUCE = SHARED,
// has LANES places a row and begins at this lane's first row; it may be written again after the next exchange.
template <bool MAXIMUM>
AT_DEVICE void reduce(float (&x)[ROWS], float *partial) {
#ifdef REDUCE_WARP
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2)
      x[i] = combine<MAXIMUM>(x[i], __shfl_xor_sync(0xffffffffu, x[i], offset));
#else
#pragma unroll
  for (int i = 0; i < ROWS; ++i) partial[i * ROW_STEP * LANES + threadIdx.x % LANES] = x[i];
  exchange();
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    x[i] = partial[i * ROW_STEP * LANES];
#pragma unroll
    for (int lane = 1; lane < LANES; ++lane) x[i] = combine<MAXIMUM>(x[i], partial[i * ROW_STEP * LANES + lane]);
  }
#endif
}

// Scores to probabilities relative to the new maximum of the row, which go to `p`, the place of this lane's first. What
// was summed so far was relative to the old maximum. row_sum is the sum over this lane's keys only.
AT_DEVICE void softmax(float (&s)[ROWS][KEYS], float (&o)[ROWS][DIMS], float (&row_max)[ROWS], float (&row_sum)[ROWS],
                       float *p, float *partial) {
  float tile_max[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    tile_max[i] = s[i][0];
#pragma unroll
    for (int j = 1; j < KEYS; ++j) tile_max[i] = fmaxf(tile_max[i], s[i][j]);
  }
  reduce<true>(tile_max, partial);
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    // Every row sees key 0, so the maximum is finite from the first tile on.
    const float new_max = fmaxf(row_max[i], tile_max[i]);
    const float decay = exp2_approx(row_max[i] - new_max);
    row_max[i] = new_max;
    row_sum[i] *= decay;
#pragma unroll
    for (int d = 0; d < DIMS; ++d) o[i][d] *= decay;
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      const float probability = exp2_approx(s[i][j] - new_max);
      row_sum[i] += probability;
      p[i * ROW_STEP * P_PITCH + j * LANES] = probability;
    }
  }
}

// o += P V for this lane's rows and dims. `p` is the first of these rows, `v` the first of these dims.
AT_DEVICE void add_values(float (&o)[ROWS][DIMS], const float *p, const element *v) {
#pragma unroll 2
  for (int n = 0; n < BLOCK_N; n += 4) {
    Floats probability[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) probability[i] = *(const Floats *)(p + i * ROW_STEP * P_PITCH + n);
#pragma unroll
    for (int u = 0; u < 4; ++u)
#pragma unroll
      for (int d = 0; d < DIMS; d += VALUE_VEC) {
        const Elements<VALUE_VEC> value = *(const Elements<VALUE_VEC> *)(v + (n + u) * PITCH + d * LANES);
#pragma unroll
        for (int w = 0; w < VALUE_VEC / 2; ++w) {
          const float2 b = unpack(value.word[w]);
#pragma unroll
          for (int i = 0; i < ROWS; ++i) {
            o[i][d + 2 * w] = fmaf(probability[i].x[u], b.x, o[i][d + 2 * w]);
            o[i][d + 2 * w + 1] = fmaf(probability[i].x[u], b.y, o[i][d + 2 * w + 1]);
          }
        }
      }
  }
}

// `out` is the first dim of this lane's first row; `existing` of the rows from there on lie in the tensor.
AT_DEVICE void store_output(element *out, const float (&o)[ROWS][DIMS], const float (&row_sum)[ROWS], int existing) {
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    if (i * ROW_STEP >= existing) return;
    const float factor = 1.0f / row_sum[i];
#pragma unroll
    for (int d = 0; d < DIMS; d += VALUE_VEC) {
      Elements<VALUE_VEC> words;
#pragma unroll
      for (int w = 0; w < VALUE_VEC / 2; ++w)
        words.word[w] = pack(o[i][d + 2 * w] * factor, o[i][d + 2 * w + 1] * factor);
      *(Elements<VALUE_VEC> *)(out + i * ROW_STEP * HEAD_DIM + d * LANES) = words;
    }
  }
}

// One block a multiprocessor is enough to ask for: otherwise the compiler may spill registers to make room for more.
extern "C" __global__ void __launch_bounds__(THREADS, 1) variant_kernel(const __grid_constant__ sdpa_args args) {
  extern __shared__ __align__(16) unsigned char shared[];
  element *const q_tile = (element *)shared, *const kv_tiles = q_tile + BLOCK_M * PITCH;
  float *const p_tile = (float *)(shared + P_OFFSET), *const partials = p_tile + BLOCK_M * P_PITCH;

  // Causal: the last rows see the most keys, so they go first and the blocks end together.
  const int row_blocks = (args.seq_q + BLOCK_M - 1) / BLOCK_M, slice = blockIdx.x / row_blocks;
  const int row_block = CAUSAL ? row_blocks - 1 - blockIdx.x % row_blocks : blockIdx.x % row_blocks;
  const int q0 = row_block * BLOCK_M, end = CAUSAL ? min(args.seq_k, q0 + BLOCK_M) : args.seq_k;
  const int tiles = (end + BLOCK_N - 1) / BLOCK_N;
  const int64_t q_offset = ((int64_t)slice * args.seq_q + q0) * HEAD_DIM;
  const int64_t kv_offset = (int64_t)slice * args.seq_k * HEAD_DIM;
  const element *const keys = (const element *)args.k + kv_offset, *const values = (const element *)args.v + kv_offset;

  const int column = threadIdx.x % LANES;
  const int row = threadIdx.x / 32 * WARP_ROWS + threadIdx.x % 32 / LANES;  // this lane's first, within the block

  const auto fetch_tile = [&](int tile) {
    const int n0 = tile * BLOCK_N;
    element *const to = kv_tiles + tile % STAGES * 2 * TILE;
    fetch<BLOCK_N>(to, keys + (int64_t)n0 * HEAD_DIM, args.seq_k - n0);
    fetch<BLOCK_N>(to + TILE, values + (int64_t)n0 * HEAD_DIM, args.seq_k - n0);
    cp_async_commit();
  };

  float o[ROWS][DIMS] = {}, row_max[ROWS], row_sum[ROWS] = {};
#pragma unroll
  for (int i = 0; i < ROWS; ++i) row_max[i] = -INFINITY;

  fetch<BLOCK_M>(q_tile, (const element *)args.q + q_offset, args.seq_q - q0);
  if (STAGES == 2) fetch_tile(0);
  for (int tile = 0; tile < tiles; ++tile) {
    const int n0 = tile * BLOCK_N;
    const element *const k_tile = kv_tiles + tile % STAGES * 2 * TILE, *const v_tile = k_tile + TILE;
    if (STAGES == 1) fetch_tile(tile);
    cp_async_wait<0>();
    __syncthreads();  // the tile is there; and with STAGES = 2 nobody works on the one before any more
    if (STAGES == 2 && tile + 1 < tiles) fetch_tile(tile + 1);

    float s[ROWS][KEYS];
    score(s, q_tile + row * PITCH, k_tile + column * PITCH);
    const bool hide = n0 + BLOCK_N > (CAUSAL ? min(args.seq_k, q0 + 1) : args.seq_k);
    scale_and_hide(s, args.scale_log2, hide, q0 + row, n0 + column, args.seq_k);
    end_of_phase();
    softmax(s, o, row_max, row_sum, p_tile + row * P_PITCH + column, partials + row * LANES);
    exchange();
    add_values(o, p_tile + row * P_PITCH, v_tile + column * VALUE_VEC);
    end_of_phase();
    if (STAGES == 1 || SYNC_POLICY > 0) __syncthreads();  // the tile may be overwritten
  }
  reduce<false>(row_sum, partials + row * LANES);
  store_output((element *)args.o + q_offset + row * HEAD_DIM + column * VALUE_VEC, o, row_sum, args.seq_q - q0 - row);
}
