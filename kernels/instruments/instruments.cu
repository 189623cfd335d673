// Device code of the harness: a fill of all shared memory, and a delay.
#include "geometry.h"
#include "instruments.h"
#include "variant.h"

constexpr int THREADS = 1024;

extern "C" __device__ const at_geometry variant_geometry = {.abi_version = AT_ABI_VERSION,
                                                            .args_bytes = sizeof(instrument_args),
                                                            .threads = THREADS,
                                                            .rows = 1,
                                                            .split = 1,
                                                            .cluster = 1,
                                                            .dynamic_shared = SHARED_BYTES};

extern __shared__ uint32_t shared[];

// A block holds all the shared memory of its multiprocessor, so that as many blocks as there are multiprocessors reach
// every one. The next kernel finds what they wrote.
static __device__ void fill(const instrument_args &args) {
  for (int i = threadIdx.x; i < SHARED_BYTES / 4; i += THREADS) shared[i] = args.word;
  __syncthreads();
  const uint32_t seen = shared[(threadIdx.x * 97) % (SHARED_BYTES / 4)];
  if (seen != args.word) *args.sink = seen;
}

static __device__ void spin(const instrument_args &args) {
  int64_t start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < args.nanoseconds);
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ instrument_args args) {
  if (args.nanoseconds > 0)
    spin(args);
  else
    fill(args);
}
