// Softmax over rows on CUDA: a block of THREADS threads a row.
#include "softmax_cuda.h"

#include "cuda_element.h"

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(softmax_args),
               .threads = THREADS,
               .rows = 1,
               .split = 1,
               .cluster = 1};

// The largest number, or the sum, of all threads of the block.
template <bool LARGEST>
AT_DEVICE float over_block(float value) {
  __shared__ float parts[THREADS / 32];
  const auto both = [](float a, float b) { return LARGEST ? fmaxf(a, b) : a + b; };
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value = both(value, __shfl_xor_sync(0xffffffffu, value, apart));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = parts[0];
  for (int i = 1; i < THREADS / 32; ++i) value = both(value, parts[i]);
  __syncthreads();  // before parts are written again
  return value;
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ softmax_args args) {
  const element *x = (const element *)args.x + (int64_t)blockIdx.x * args.dim;
  element *y = (element *)args.y + (int64_t)blockIdx.x * args.dim;
  float largest = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < args.dim; i += THREADS) largest = fmaxf(largest, to_float(x[i]));
  largest = over_block<true>(largest);
  for (int64_t i = threadIdx.x; i < args.dim; i += THREADS) sum += expf((to_float(x[i]) - largest) / args.temperature);
  sum = over_block<false>(sum);
  for (int64_t i = threadIdx.x; i < args.dim; i += THREADS)
    y[i] = from_float(expf((to_float(x[i]) - largest) / args.temperature) / sum);
}
