// Wrong attention over views on CUDA, a thread a row: the mutations are in views_row.h.
#include "sdpa_cuda.h"

#include "cuda_element.h"

static __device__ float widen(element x) { return to_float(x); }
static __device__ element narrow(float x) { return from_float(x); }

#define ROW_CODE static __device__ inline
#include "views_row.h"

constexpr int THREADS = 64;

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(sdpa_args),
               .threads = THREADS,
               .rows = THREADS,
               .split = 1,
               .cluster = 1,
               .head_dim = HEAD_DIM};

/* scale_log2 is the cap in powers of 2 */
#define CAP (args.scale_log2 * 0.693147181f)

#if HAS_SINKS
#define SINKS_OF (const element *)args.more[SDPA_SINKS - SDPA_MORE]
#else
#define SINKS_OF nullptr
#endif

#if HAS_BIAS
#define BIAS_OF args.more[SDPA_BIAS - SDPA_MORE], args.bias_stride.batch, args.bias_stride.head, args.bias_stride.row
#else
#define BIAS_OF nullptr, 0, 0, 0
#endif

static __device__ int come[COUNTERS];

static __device__ Tensor tensor(const void *base, const sdpa_strides &stride) {
  return {(element *)base, stride.batch, stride.head, stride.row, false};
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ sdpa_args args) {
  const int blocks = (args.seq_q + THREADS - 1) / THREADS, slice = blockIdx.x / blocks;
  const int i = blockIdx.x % blocks * THREADS + threadIdx.x;
  if (i >= args.seq_q) return;
  const Call c = {tensor(args.q, args.q_stride), tensor(args.k, args.k_stride), tensor(args.v, args.v_stride),
                  tensor(args.o, args.o_stride), args.key_lengths, SINKS_OF, BIAS_OF, args.lse, args.batch, args.heads, args.heads_kv,
                  args.seq_q, args.seq_k, args.window_left, args.window_right, SOFTCAPPED ? args.scale * CAP : args.scale, CAP, come};
  view_row(c, slice / args.heads, slice % args.heads, i);
}
