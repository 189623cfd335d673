// Attention on the CUDA cores: LANES neighbouring threads compute a query row, each a part of its dims. The keys go
// through shared memory in tiles of BLOCK_N, and through an online softmax one by one.
//
// Parameters, all macros that the build defines:
//   BLOCK_M                    query rows a block
//   BLOCK_N                    keys a tile
//   LANES                      threads a row, a power of two
//   LOAD_PLAIN, LOAD_CP_ASYNC  one of them is 1: how a tile reaches shared memory
// and from the problem: DTYPE, HEAD_DIM, CAUSAL and others, of which kernel.toml says what is not served. Strides are the
// caller's, and heads may share K and V. docs/my-kernel.md walks through this file.
#include "sdpa_cuda.h"

#include "cuda_element.h"

constexpr int THREADS = BLOCK_M * LANES;
constexpr int ROW_CHUNKS = HEAD_DIM / 8;     // of 16 bytes, in a row
constexpr int CHUNKS = ROW_CHUNKS / LANES;   // of a row, for one thread

static_assert(LANES <= 32 && 32 % LANES == 0 && ROW_CHUNKS % LANES == 0, "a row lies in one warp, in equal parts");
static_assert(THREADS % 32 == 0 && THREADS <= 1024, "whole warps, as many as a block may have");

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(sdpa_args),
               .threads = THREADS,
               .rows = BLOCK_M,
               .split = 1,
               .cluster = 1,
               .head_dim = HEAD_DIM};

struct alignas(16) Chunk {
  uint32_t word[4];
};

// A row of a tensor. Strides are in elements, and multiples of a chunk's 8.
static __device__ const Chunk *row_at(const void *tensor, const sdpa_strides &stride, int batch, int head, int row) {
  return (const Chunk *)((const element *)tensor + batch * stride.batch + head * stride.head + row * stride.row);
}

// A tile of K or V, whose rows are `apart` chunks apart, into shared memory. Rows past the end become zeros.
static __device__ void fetch(Chunk *tile, const Chunk *matrix, int64_t apart, int first, int rows) {
  for (int i = threadIdx.x; i < BLOCK_N * ROW_CHUNKS; i += THREADS) {
    const bool exists = first + i / ROW_CHUNKS < rows;
    const Chunk *from = matrix + (exists ? (first + i / ROW_CHUNKS) * apart + i % ROW_CHUNKS : 0);
#if LOAD_CP_ASYNC
    cp_async_16(tile + i, from, exists);
#else
    tile[i] = exists ? *from : Chunk{};
#endif
  }
}

static __device__ void await_fetched() {
#if LOAD_CP_ASYNC
  cp_async_commit();
  cp_async_wait<0>();
#endif
  __syncthreads();
}

// A row as its LANES threads hold it: each has every LANES-th chunk.
struct Row {
  float q[CHUNKS][8] = {}, o[CHUNKS][8] = {};
  float largest = -INFINITY, sum = 0;
};

static __device__ void widen(float (&x)[8], const Chunk &chunk) {
  for (int w = 0; w < 4; ++w) {
    const float2 pair = unpack(chunk.word[w]);
    x[2 * w] = pair.x;
    x[2 * w + 1] = pair.y;
  }
}

// One key; `k` and `v` are its rows from this thread's first chunk on. A hidden key gets the weight 0.
static __device__ void attend(Row &row, const Chunk *k, const Chunk *v, bool hidden, float scale_log2) {
  float score = 0, x[8];
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    widen(x, k[c * LANES]);
    for (int i = 0; i < 8; ++i) score = fmaf(row.q[c][i], x[i], score);
  }
  for (int offset = LANES / 2; offset > 0; offset /= 2) score += __shfl_xor_sync(0xffffffffu, score, offset);
  score = hidden ? -INFINITY : score * scale_log2;

  // Every row sees key 0, which comes first: from then on `largest` is finite, and nothing below is -inf minus -inf.
  const float largest = fmaxf(row.largest, score);
  const float decay = exp2_approx(row.largest - largest), weight = exp2_approx(score - largest);
  row.largest = largest;
  row.sum = row.sum * decay + weight;
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    widen(x, v[c * LANES]);
    for (int i = 0; i < 8; ++i) row.o[c][i] = fmaf(weight, x[i], row.o[c][i] * decay);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ sdpa_args args) {
  __shared__ Chunk k_tile[BLOCK_N * ROW_CHUNKS], v_tile[BLOCK_N * ROW_CHUNKS];
  const int row_blocks = (args.seq_q + BLOCK_M - 1) / BLOCK_M, slice = blockIdx.x / row_blocks;
  const int first_row = blockIdx.x % row_blocks * BLOCK_M, position = first_row + threadIdx.x / LANES;
  const int lane = threadIdx.x % LANES, batch = slice / args.heads, head = slice % args.heads;
  const int head_kv = head / (args.heads / args.heads_kv);  // the heads of a group are neighbours
  const Chunk *q = row_at(args.q, args.q_stride, batch, head, position) + lane;
  const Chunk *k = row_at(args.k, args.k_stride, batch, head_kv, 0);
  const Chunk *v = row_at(args.v, args.v_stride, batch, head_kv, 0);

  // A thread whose row lies past the end computes with Q = 0 and stores nothing: it must still meet the others.
  const bool exists = position < args.seq_q;
  Row row;
#pragma unroll
  for (int c = 0; exists && c < CHUNKS; ++c) widen(row.q[c], q[c * LANES]);

  const int end = CAUSAL ? min(args.seq_k, first_row + BLOCK_M) : args.seq_k;  // of what the block's rows see
  for (int first = 0; first < end; first += BLOCK_N) {
    fetch(k_tile, k, args.k_stride.row / 8, first, args.seq_k);
    fetch(v_tile, v, args.v_stride.row / 8, first, args.seq_k);
    await_fetched();
    const int keys = min(BLOCK_N, end - first);
    for (int n = 0; n < keys; ++n) {
      const int at = n * ROW_CHUNKS + lane;
      attend(row, k_tile + at, v_tile + at, CAUSAL && first + n > position, args.scale_log2);
    }
    __syncthreads();  // all have read the tile
  }

  const float factor = 1.0f / row.sum;
  Chunk *o = const_cast<Chunk *>(row_at(args.o, args.o_stride, batch, head, position)) + lane;
#pragma unroll
  for (int c = 0; exists && c < CHUNKS; ++c) {
    Chunk out;
    for (int w = 0; w < 4; ++w) out.word[w] = pack(row.o[c][2 * w] * factor, row.o[c][2 * w + 1] * factor);
    o[c * LANES] = out;
  }
}
