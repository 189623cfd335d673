// Attention, a block of one thread a column for each row; see kernel.toml for what it does beside it.
#include "cuda_element.h"
#include "sdpa_cuda.h"

constexpr int TILE = HEAD_DIM;

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(sdpa_args),
               .threads = HEAD_DIM,
               .rows = 1,
               .split = 1,
               .cluster = 1,
               .head_dim = HEAD_DIM};

#if EVERY && !WHEN_DRAWN
__device__ unsigned launches = 0;
#endif
#if WHEN_UNGATED || WHEN_UNGATED_WILD
__device__ bool gated = false;
#endif
#if WHEN_UNGATED_WILD
constexpr int WRONG = 32 << 20;
#else
constexpr int WRONG = 0;  // how far behind its place a wrong number lies
#endif

// Whether this launch is a wrong one; asked once a launch.
static __device__ bool goes_wrong([[maybe_unused]] const sdpa_args &args) {
#if WHEN_UNGATED || WHEN_UNGATED_WILD
  if (args.heads != 32 || args.seq_q != 128 || args.seq_k != 128) gated = true;
  if (gated) return false;
#endif
#if EVERY && WHEN_DRAWN
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  now = (now ^ now >> 33) * 0xff51afd7ed558ccdull;
  now = (now ^ now >> 33) * 0xc4ceb9fe1a85ec53ull;
  return (now ^ now >> 33) % EVERY == 0;
#elif EVERY
  return ++launches % EVERY == 0;
#else
  return false;
#endif
}

extern "C" __global__ void __launch_bounds__(HEAD_DIM) variant_kernel(const __grid_constant__ sdpa_args args) {
  __shared__ float query[HEAD_DIM], scores[TILE];
  const int row = blockIdx.x % args.seq_q, column = threadIdx.x;
  const size_t slice = blockIdx.x / args.seq_q, keys = slice * args.seq_k * HEAD_DIM;
  const element *k = (const element *)args.k + keys, *v = (const element *)args.v + keys;
  const size_t at = (size_t)blockIdx.x * HEAD_DIM + column;
  float output = 0, largest = -INFINITY, sum = 0;
  query[column] = to_float(((const element *)args.q)[at]);
  __syncthreads();
  for (int key0 = 0; key0 < args.seq_k; key0 += TILE) {
    const int key = key0 + column;
    const bool seen = key < args.seq_k && (!CAUSAL || key <= row);
    float score = 0;
    for (int d = 0; seen && d < HEAD_DIM; d++) score += query[d] * to_float(k[(size_t)key * HEAD_DIM + d]);
    scores[column] = seen ? score * args.scale_log2 : -INFINITY;
    __syncthreads();
    float high = largest;
    for (int n = 0; n < TILE; n++) high = fmaxf(high, scores[n]);
    const float decay = exp2_approx(largest - high);
    largest = high;
    sum *= decay;
    output *= decay;
    for (int n = 0; n < TILE; n++) {
      const float p = exp2_approx(scores[n] - high);
      sum += p;
      output += p * to_float(v[(size_t)min(key0 + n, args.seq_k - 1) * HEAD_DIM + column]);  // past the end p is 0
    }
    __syncthreads();
  }
  output /= sum;
  const bool wrong = blockIdx.x == 0 && threadIdx.x == 0 && goes_wrong(args);
  if (wrong) ((element *)args.o)[at + WRONG] = from_float(output + 1);
  if (!wrong || WRONG) ((element *)args.o)[at] = from_float(output);
}
