// A simple attention kernel, right as it stands, with one planted defect a MODE, for the tests of the gate and of the
// isolation around it.
//
//   MODE    right: none             hang: one thread never ends         fault: reads an address that is not mapped
//           race: no barrier between the scores' writers and their readers
//           shared: asks for more shared memory than any block may have
//           past_end: writes one element past the output      input: overwrites the first element of Q
//           late: wrong from the tenth launch on              unwritten: leaves the last row of O alone
//   BLOCK_N keys a tile   DEAD: read by nobody
#include "cuda_element.h"
#include "sdpa_cuda.h"

constexpr int ROWS = 8, THREADS = 128, LANES = THREADS / ROWS, COLUMNS = HEAD_DIM / LANES;

#if MODE_SHARED
constexpr int DYNAMIC = 300 * 1024;
#else
constexpr int DYNAMIC = 0;
#endif

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(sdpa_args),
               .threads = THREADS,
               .rows = ROWS,
               .split = 1,
               .cluster = 1,
               .dynamic_shared = DYNAMIC,
               .head_dim = HEAD_DIM,
#ifdef SEQ_Q
               .fixed_seq_q = SEQ_Q,
               .fixed_seq_k = SEQ_K
#endif
};

#if MODE_LATE
__device__ int launches = 0;
#endif

// Scores of one tile, by the first warp alone: that is what makes the barrier after it matter.
static __device__ void score(float (&scores)[ROWS][BLOCK_N], const sdpa_args &args, const element *q, const element *k,
                             int row0, int key0) {
  for (int i = threadIdx.x; i < ROWS * BLOCK_N; i += 32) {
    const int row = row0 + i / BLOCK_N, key = key0 + i % BLOCK_N;
    const bool seen = row < args.seq_q && key < args.seq_k && (!CAUSAL || key <= row);
    float sum = 0;
    for (int d = 0; seen && d < HEAD_DIM; d++)
      sum += to_float(q[(size_t)row * HEAD_DIM + d]) * to_float(k[(size_t)key * HEAD_DIM + d]);
    scores[i / BLOCK_N][i % BLOCK_N] = seen ? sum * args.scale_log2 : -INFINITY;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ sdpa_args args) {
  __shared__ float scores[ROWS][BLOCK_N];
  const int blocks = (args.seq_q + ROWS - 1) / ROWS, row0 = blockIdx.x % blocks * ROWS;
  const size_t slice = blockIdx.x / blocks;
  const element *q = (const element *)args.q + slice * args.seq_q * HEAD_DIM;
  const element *k = (const element *)args.k + slice * args.seq_k * HEAD_DIM;
  const element *v = (const element *)args.v + slice * args.seq_k * HEAD_DIM;
  element *o = (element *)args.o + slice * args.seq_q * HEAD_DIM;
  const int local = threadIdx.x / LANES, row = row0 + local, column = threadIdx.x % LANES * COLUMNS;
  float output[COLUMNS] = {}, largest = -INFINITY, sum = 0;
#if MODE_HANG
  __shared__ volatile int ended;
  ended = 0;
  while (blockIdx.x == 0 && !ended) {
  }
#endif
#if MODE_FAULT
  if (threadIdx.x == 0) sum += *(volatile const float *)(0x100);
#endif
  for (int key0 = 0; key0 < args.seq_k; key0 += BLOCK_N) {
    if (threadIdx.x < 32) score(scores, args, q, k, row0, key0);
#if !MODE_RACE
    __syncthreads();
#endif
    float high = largest;
    for (int n = 0; n < BLOCK_N; n++) high = fmaxf(high, scores[local][n]);
    const float decay = high == -INFINITY ? 1 : exp2_approx(largest - high);
    largest = high;
    sum *= decay;
    for (int d = 0; d < COLUMNS; d++) output[d] *= decay;
    for (int n = 0; n < BLOCK_N && key0 + n < args.seq_k; n++) {
      const float p = high == -INFINITY ? 0 : exp2_approx(scores[local][n] - high);
      sum += p;
      for (int d = 0; d < COLUMNS; d++) output[d] += p * to_float(v[(size_t)(key0 + n) * HEAD_DIM + column + d]);
    }
    __syncthreads();
  }
#if MODE_LATE
  if (blockIdx.x == 0 && threadIdx.x == 0) launches++;
  if (launches > 10) sum *= 1.25f;
#endif
#if MODE_UNWRITTEN
  if (row == args.seq_q - 1) return;
#endif
  for (int d = 0; row < args.seq_q && d < COLUMNS; d++)
    o[(size_t)row * HEAD_DIM + column + d] = from_float(output[d] / sum);
#if MODE_PAST_END
  if (blockIdx.x == 0 && threadIdx.x == 0)
    ((element *)args.o)[(size_t)args.batch * args.heads * args.seq_q * HEAD_DIM] = from_float(1.0f);
#endif
#if MODE_INPUT
  if (blockIdx.x == 0 && threadIdx.x == 0) *(element *)args.q = from_float(0.5f);
#endif
}
