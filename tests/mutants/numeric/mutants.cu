// Numerically wrong attention on CUDA, a thread for every second row of a tile of 64: mutations are in mutated_row.h.
//
// All of them make sense here but scores, probabilities and products that are no coarser than float16 when that is the
// element type; ../expected_cuda.toml lists those, and others that no case shows, as unseen.
#include "cuda_element.h"
#include "sdpa_cuda.h"

constexpr int THREADS = 32, ROWS = 64, D = HEAD_DIM, BLOCK_N = 64;

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(sdpa_args),
               .threads = THREADS,
               .rows = ROWS,
               .split = 1,
               .cluster = 1,
               .head_dim = HEAD_DIM};

static __device__ float widen(element x) { return to_float(x); }
static __device__ element narrow(float x) { return from_float(x); }
[[maybe_unused]] static __device__ float as_bf16(float x) { return __bfloat162float(__float2bfloat16_rn(x)); }
[[maybe_unused]] static __device__ float as_fp16(float x) { return __half2float(__float2half_rn(x)); }
static __device__ int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#define ROW_CODE static __device__
#include "mutated_row.h"

// K and V as they lie in memory.
struct Direct {
  Head head;
  int64_t seq_k;

  __device__ void products(const float *q, int64_t j0, float *dot, int dims) const {
    for (int j = 0; j < BLOCK_N; ++j) {
      float sum = 0;
      for (int d = 0; j0 + j < seq_k && d < dims; ++d) sum += q[d] * key_element(head, seq_k, j0 + j, d);
      dot[j] = sum;
    }
  }

  __device__ float value(int64_t j, int d) const { return j < seq_k ? value_element(head, j, d) : 0; }
};

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ sdpa_args args) {
  const Shape shape = {args.batch, args.heads, args.seq_q, args.seq_k, args.scale};
  const int blocks = (args.seq_q + ROWS - 1) / ROWS, slice = blockIdx.x / blocks, row0 = blockIdx.x % blocks * ROWS;
  const int b = slice / args.heads, h = slice % args.heads;
  const element *q = (const element *)args.q + (int64_t)slice * args.seq_q * D;
  const Direct keys = {head_at(shape, (const element *)args.k, (const element *)args.v, b, h), args.seq_k};
  float acc[D] = {};
  for (int i = row0 + threadIdx.x; i < row0 + ROWS && i < args.seq_q; i += THREADS)
    mutated_row(shape, keys, q, b, h, i, acc, (element *)args.o);
}
