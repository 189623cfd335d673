// Attention from FP8 on the tensor cores of sm_89 and newer: a first kernel transposes V (turned_values.h), the second goes
// through the keys with products of 16x8x32 in warps.
//
// A block is WARPS warps, each with ROW_TILES times 16 rows of a head. They share a ring of tiles in shared memory, BLOCK_N
// keys of K and of the transposed V, which come by asynchronous copies. The scores of a tile, as powers of two and rounded
// to e4m3, are the left operand of the second product as they lie in registers. That product begins anew at each tile and is
// added to the row's in float: sums of FP8's products keep few bits. What a row gives depends on no other row.
//
// Parameters (integers):
//   WARPS      warps of a block, all along the rows
//   ROW_TILES  16-row tiles of a warp; with 2 each piece of K and V read from shared memory serves twice
//   BLOCK_N    keys of a tile
//   STAGES     tiles in the ring: one is at hand, the others are on their way
#include "cuda_element.h"
#include "turned_values.h"

static constexpr int THREADS = 32 * WARPS, WARP_ROWS = 16 * ROW_TILES, BLOCK_ROWS = WARPS * WARP_ROWS;
static constexpr int DEPTH = 32;                                         // elements that a product sums
static constexpr int TILE_BYTES = BLOCK_N * HEAD_DIM, SLOT_BYTES = 2 * TILE_BYTES;  // of K or V; of both
static constexpr int SHARED_BYTES = STAGES * SLOT_BYTES;
static constexpr int PIECE_BYTES = FP8_PIECE_KEYS * HEAD_DIM, STEP_ROWS = 16 * THREADS / HEAD_DIM;

// The largest probability of a row is 2^OFFSET, which e4m3 has: the small ones keep digits.
static constexpr float OFFSET = 8.0f;
// The shift of a row that has seen no key.
static constexpr float NOTHING_SEEN = -1e30f;

static_assert(FP8_PIECE_KEYS % BLOCK_N == 0 && BLOCK_N % DEPTH == 0, "a tile of V is one chunk, and whole products");
static_assert(HEAD_DIM == 64 || HEAD_DIM == 128, "rows of K are 64 or 128 bytes");
static_assert(STEP_ROWS % 8 == 0 && 16 * THREADS / BLOCK_N % 8 == 0, "the places of a thread's chunks are as far apart");
static_assert(STAGES >= 2, "the next tile is on its way");

AT_GEOMETRY = {
    .abi_version = AT_ABI_VERSION,
    .args_bytes = sizeof(fp8_args),
    .threads = THREADS,
    .rows = BLOCK_ROWS,
    .split = 1,
    .cluster = 1,
    .dynamic_shared = SHARED_BYTES,
    .head_dim = HEAD_DIM,
    .host = {WGMMA_TILE, BLOCK_N, 0},
};

AT_DEVICE int least(int a, int b) { return a < b ? a : b; }

// Where `chunk` of 16 bytes of a row of ROW_BYTES lies: the same chunk of eight rows is in eight different banks.
template <int ROW_BYTES>
AT_DEVICE int swizzled(int row, int chunk) {
  return row * ROW_BYTES + (chunk ^ row / (128 / ROW_BYTES) % (ROW_BYTES / 16)) * 16;
}

// A block's rows of a slice, and the tiles that any of them sees.
struct Item {
  int batch, head, kv;  // kv: the number of K's slice
  int row, keys, tiles;

  // Keys that row `number` sees.
  __device__ __forceinline__ int seen(const fp8_args &args, int number) const {
    if (!CAUSAL) return keys;
    return least(keys, number + 1 + (CORNER == AT_BOTTOM_RIGHT ? keys - args.seq_q : 0));
  }
  // Tiles that no row after `last` is needed for.
  __device__ __forceinline__ int tiles_to(const fp8_args &args, int last) const {
    const int end = seen(args, last);
    return end > 0 ? (end + BLOCK_N - 1) / BLOCK_N : 0;
  }
};

// Causal blocks start from the last rows, which see the most keys, so that the grid ends evenly.
AT_DEVICE Item locate(const fp8_args &args) {
  const int number = blockIdx.x, part = CAUSAL ? number / args.slices : number % args.row_blocks;
  const int slice = CAUSAL ? number % args.slices : number / args.row_blocks;
  Item at;
  at.batch = slice / args.heads;
  at.head = slice - at.batch * args.heads;
  at.kv = GROUPED ? slice / args.group : slice;
  at.row = (CAUSAL ? args.row_blocks - 1 - part : part) * BLOCK_ROWS;
#if KEY_LENGTHS
  at.keys = keys_of(args, at.batch);
#else
  at.keys = args.seq_k;
#endif
  at.tiles = at.tiles_to(args, least(at.row + BLOCK_ROWS, args.seq_q) - 1);
  return at;
}

// How K and V come. A slot has rows of K and then those of the transposed V. A thread copies the same chunk of every so many
// rows, a multiple of eight, after which the places of chunks repeat.
struct Loads {
  const unsigned char *k, *v;  // of this thread's first chunk
  int64_t k_row;
  int row, k_place, v_place;
  int keys, tiles;

  __device__ __forceinline__ Loads(const fp8_args &args, const Item &at)
      : k_row(args.k_stride.row), keys(at.keys), tiles(at.tiles) {
    const int head = GROUPED ? at.head / args.group : at.head, pieces = (args.seq_k + FP8_PIECE_KEYS - 1) / FP8_PIECE_KEYS;
    const int me = threadIdx.x, chunk = me % (HEAD_DIM / 16);
    row = me / (HEAD_DIM / 16);
    k = (const unsigned char *)args.k + at.batch * args.k_stride.batch + head * args.k_stride.head + chunk * 16;
    v = (const unsigned char *)args.turned + (int64_t)at.kv * pieces * PIECE_BYTES + me * 16;
    k_place = swizzled<HEAD_DIM>(row, chunk);
    v_place = TILE_BYTES + swizzled<BLOCK_N>(me / (BLOCK_N / 16), me % (BLOCK_N / 16));
  }

  // All threads begin to copy a tile, or none where there is none; one commit either way.
  __device__ __forceinline__ void begin(unsigned char *slot, int tile) const {
    if (tile < tiles) {
      int key = tile * BLOCK_N + row;
      const unsigned char *from = k + key * k_row;
#pragma unroll
      for (int first = 0; first < TILE_BYTES; first += 16 * THREADS) {
        if (TILE_BYTES % (16 * THREADS) && first + threadIdx.x * 16 >= TILE_BYTES) break;
        cp_async_16(slot + k_place + first, key < keys ? from : k, key < keys);
        cp_async_16(slot + v_place + first, v + (int64_t)tile * TILE_BYTES + first, true);
        key += STEP_ROWS;
        from += STEP_ROWS * k_row;
      }
    }
    cp_async_commit();
  }
};

typedef float Scores[BLOCK_N / 2];      // of lane 4 g + t columns 8 i + 2 t and the next one, of row g, then of row g + 8
typedef uint32_t Weights[BLOCK_N / 8];  // four probabilities each, as the second product takes them

// 16 rows: Q, and what the keys so far have given. `sum` is of the lane's own columns.
struct Rows {
  uint32_t queries[HEAD_DIM / 8];
  float output[HEAD_DIM / 8][4] = {};
  float shift[2] = {NOTHING_SEEN, NOTHING_SEEN}, decay[2], sum[2] = {};
  int row;  // the first

  __device__ __forceinline__ void read(const fp8_args &args, const Item &at, int first) {
    row = first;
    const unsigned char *const q =
        (const unsigned char *)args.q + at.batch * args.q_stride.batch + at.head * args.q_stride.head;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int mine = row + threadIdx.x % 32 / 4 + half * 8;
      const uint32_t *const words = (const uint32_t *)(q + mine * args.q_stride.row) + threadIdx.x % 4;
#pragma unroll
      for (int i = 0; i < HEAD_DIM / 16; i++) queries[i * 2 + half] = mine < args.seq_q ? words[i * 4] : 0;
    }
  }

  // Keys past the end, and those that a causal row does not see.
  __device__ __forceinline__ void mask(const fp8_args &args, const Item &at, Scores &scores, int key) const {
    if (key + BLOCK_N <= at.seen(args, row)) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int end = at.seen(args, row + threadIdx.x % 32 / 4 + half * 8) - key - threadIdx.x % 4 * 2;
#pragma unroll
      for (int i = 0; i < BLOCK_N / 4; i++)
        if (i / 2 * 8 + i % 2 >= end) scores[i / 2 * 4 + half * 2 + i % 2] = -INFINITY;
    }
  }

  // Shifts by the maximum so far; `decay` is what was summed before to be multiplied by. A score that is no number is none
  // after it too, and the maximum is that of the others.
  __device__ __forceinline__ void move_shift(const Scores &scores, float scale) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float max = scores[half * 2];
#pragma unroll
      for (int i = 1; i < BLOCK_N / 4; i++) max = fmaxf(max, scores[i / 2 * 4 + half * 2 + i % 2]);
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
      const float before = shift[half];
      shift[half] = fmaxf(max * scale - OFFSET, before);
      decay[half] = exp2_approx(before - shift[half]);
    }
  }

  // Probabilities, and their sum as they are rounded: what rounding moves in it, it moves in the output.
  __device__ __forceinline__ void soften(const Scores &scores, float scale, Weights &weights) {
    move_shift(scores, scale);
    float some[2] = {};
#pragma unroll
    for (int word = 0; word < BLOCK_N / 8; word++) {
      const int half = word % 2, first = 4 * (4 * (word / 4) + (word & 2)) + 2 * half;
      uint16_t pair[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const float even = exp2_approx(fmaf(scores[first + 4 * i], scale, -shift[half]));
        const float odd = exp2_approx(fmaf(scores[first + 4 * i + 1], scale, -shift[half]));
        pair[i] = pack_e4m3(even, odd);
        const float2 rounded = unpack_e4m3(pair[i]);
        some[half] += rounded.x + rounded.y;
      }
      weights[word] = join(pair[0], pair[1]);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) sum[half] = fmaf(sum[half], decay[half], some[half]);
  }

  // A row that has seen no key gives 0.
  __device__ __forceinline__ void write(const fp8_args &args, const Item &at) {
    const float descale = __ldg(args.v_descale + at.kv);
    element *const o = (element *)args.o + at.batch * args.o_stride.batch + at.head * args.o_stride.head;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float all = sum[half] + __shfl_xor_sync(~0u, sum[half], 1);
      all += __shfl_xor_sync(~0u, all, 2);
      const float factor = all == 0.0f ? 0.0f : descale / all;
      const int mine = row + threadIdx.x % 32 / 4 + half * 8;
      if (mine >= args.seq_q) continue;
#if LSE
      if (threadIdx.x % 4 == 0)
        args.lse[(int64_t)(at.batch * args.heads + at.head) * args.seq_q + mine] = (shift[half] + __log2f(all)) * 0.693147181f;
#endif
      uint32_t *const words = (uint32_t *)(o + mine * args.o_stride.row) + threadIdx.x % 4;
#pragma unroll
      for (int i = 0; i < HEAD_DIM / 8; i++)
        words[i * 4] = pack(output[i][half * 2] * factor, output[i][half * 2 + 1] * factor);
    }
  }
};

// Four 8x16 pieces of a tile whose rows are columns of a product's right operand: 16 of these, at 32 summed elements.
template <int ROW_BYTES>
AT_DEVICE void right_operands(uint32_t (&b)[4], const unsigned char *tile, int column, int depth) {
  const int lane = threadIdx.x % 32;
  ldmatrix_x4(b, tile + swizzled<ROW_BYTES>(column + lane % 8 + lane / 16 * 8, depth / 16 + lane / 8 % 2));
}

AT_DEVICE void score(Scores (&scores)[ROW_TILES], const Rows (&rows)[ROW_TILES], const unsigned char *keys) {
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; i++) scores[m][i] = 0.0f;
#pragma unroll
  for (int i = 0; i < HEAD_DIM / DEPTH; i++)
#pragma unroll
    for (int j = 0; j < BLOCK_N / 16; j++) {
      uint32_t k[4];
      right_operands<HEAD_DIM>(k, keys, j * 16, i * DEPTH);
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
        mma_m16n8k32((float(&)[4])scores[m][j * 8], rows[m].queries + i * 4, k[0], k[1]);
        mma_m16n8k32((float(&)[4])scores[m][j * 8 + 4], rows[m].queries + i * 4, k[2], k[3]);
      }
    }
}

AT_DEVICE void accumulate(Rows (&rows)[ROW_TILES], const Weights (&weights)[ROW_TILES], const unsigned char *values) {
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 16; i++) {
    float some[ROW_TILES][2][4] = {};
#pragma unroll
    for (int j = 0; j < BLOCK_N / DEPTH; j++) {
      uint32_t v[4];
      right_operands<BLOCK_N>(v, values, i * 16, j * DEPTH);
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
        mma_m16n8k32(some[m][0], weights[m] + j * 4, v[0], v[1]);
        mma_m16n8k32(some[m][1], weights[m] + j * 4, v[2], v[3]);
      }
    }
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
      for (int e = 0; e < 8; e++) {
        float &o = rows[m].output[i * 2 + e / 4][e % 4];
        o = fmaf(o, rows[m].decay[e / 2 % 2], some[m][e / 4][e % 4]);
      }
  }
}

extern "C" __global__ void __launch_bounds__(FP8_PIECE_THREADS) turn_kernel(const __grid_constant__ fp8_args args) {
  turn_values<BLOCK_N>(args);
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ fp8_args args) {
  extern __shared__ __align__(128) unsigned char shared[];
  const Item at = locate(args);
  const Loads loads(args, at);
#pragma unroll
  for (int slot = 0; slot < STAGES - 1; slot++) loads.begin(shared + slot * SLOT_BYTES, slot);

  const int first = at.row + __shfl_sync(~0u, threadIdx.x / 32, 0) * WARP_ROWS;
  const int own_tiles = least(at.tiles, at.tiles_to(args, first + WARP_ROWS - 1));
  const float scale = max_nan(args.scale_log2 * __ldg(args.q_descale + at.kv) * __ldg(args.k_descale + at.kv), 1e-30f);
  Rows rows[ROW_TILES];
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) rows[m].read(args, at, first + m * 16);

  int slot = 0, free = STAGES - 1;  // of this tile, and of the one before
#pragma unroll 1
  for (int tile = 0; tile < at.tiles; tile++) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // the tile has come for all, and all have done with the one before
    loads.begin(shared + free * SLOT_BYTES, tile + STAGES - 1);
    if (tile < own_tiles) {
      const unsigned char *const keys = shared + slot * SLOT_BYTES;
      Scores scores[ROW_TILES];
      Weights weights[ROW_TILES];
      score(scores, rows, keys);
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
        rows[m].mask(args, at, scores[m], tile * BLOCK_N);
        rows[m].soften(scores[m], scale, weights[m]);
      }
      accumulate(rows, weights, keys + TILE_BYTES);
    }
    free = slot;
    slot = slot + 1 == STAGES ? 0 : slot + 1;
  }
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) rows[m].write(args, at);
}
