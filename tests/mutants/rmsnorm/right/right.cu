/* Right rmsnorm on CUDA, a thread a row: the numeric classes are in right_row.h. */
#include "rmsnorm_cuda.h"

#include "cuda_element.h"

#define ROW_CODE static __device__
#include "../common.h"

#include "right_row.h"

constexpr int THREADS = 32;

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
  if (row < c.tokens) right_row(c, row);
}
