/* Wrong rmsnorm on CUDA, a thread a row: wrong numbers (wrong_row.h), and faults that only a GPU has. */
#include "rmsnorm_cuda.h"

#include "cuda_element.h"

#define ROW_CODE static __device__
#include "../common.h"

#include "wrong_row.h"

#if MUTANT_FACTOR_WITHOUT_BARRIER
constexpr int THREADS = 128;  // one warp's threads wait for each other without being asked to
#else
constexpr int THREADS = 32;
#endif

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(rmsnorm_args),
               .threads = THREADS,
               .rows = THREADS,
               .split = 1,
               .cluster = 1};

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ rmsnorm_args args) {
  const Rows c = {(const element *)args.x, (const element *)args.w, (element *)args.y,
                  args.tokens,             args.hidden_size,        args.eps};
  const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
#if MUTANT_RETURNS_WHERE_Y_IS_FINITE
  if (row < c.tokens && isfinite(to_float(c.y[row * c.columns]))) return;
#elif MUTANT_STORES_WHOLE_BLOCKS
  if (row >= c.tokens)
    for (int64_t i = 0; i < c.columns; ++i) c.y[row * c.columns + i] = from_float(0);
#elif MUTANT_FACTOR_WITHOUT_BARRIER
  // The block's factors change places through shared memory, and nobody waits.
  __shared__ float factors[THREADS];
  const int other = THREADS - 1 - (int)threadIdx.x;
  const int64_t theirs = (int64_t)blockIdx.x * THREADS + other;
  factors[other] = theirs < c.tokens ? factor_of(c, theirs) : 0;
  if (row < c.tokens)
    for (int64_t i = 0; i < c.columns; ++i)
      c.y[row * c.columns + i] = from_float(to_float(c.x[row * c.columns + i]) * factors[threadIdx.x] * to_float(c.w[i]));
  return;
#endif
  if (row < c.tokens) mutated_row(c, row);
}
