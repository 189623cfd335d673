// A simple attention kernel, right as it stands, with one fault of conduct, chosen by a macro MUTANT_<NAME>: the CUDA
// side of systemic.cpp. What the host side does wrong is named here too, for systemic_host.cpp, by at_geometry.host.
// ../expected_cuda.toml describes each mutant.
//
//   BLOCK_N keys a tile   DEAD: read by nobody
#include "cuda_element.h"
#include "sdpa_cuda.h"

#include "systemic_plan.h"

#if MUTANT_DEVICE_ASSERT
#undef NDEBUG
#include <assert.h>
#endif

constexpr int ROWS = 8, THREADS = 128, LANES = THREADS / ROWS, COLUMNS = HEAD_DIM / LANES;

#if MUTANT_TOO_MUCH_SHARED
constexpr int DYNAMIC = 300 * 1024;
#else
constexpr int DYNAMIC = 0;
#endif

#if MUTANT_MAX_FROM_WORKSPACE || MUTANT_ACCUMULATOR_FROM_WORKSPACE || MUTANT_WRITES_PAST_WORKSPACE
constexpr int WORKSPACE = HEAD_DIM * 4;
#elif MUTANT_WORKSPACE_NEGATIVE
constexpr int WORKSPACE = -1;
#else
constexpr int WORKSPACE = 0;
#endif

#if MUTANT_RETURNS_STATUS_7
constexpr int HOST = HOST_RETURNS_STATUS_7;
#elif MUTANT_REFUSES_EVERYTHING
constexpr int HOST = HOST_REFUSES_EVERYTHING;
#elif MUTANT_WRITES_NOTHING
constexpr int HOST = HOST_WRITES_NOTHING;
#elif MUTANT_IGNORES_LAUNCH_ERROR
constexpr int HOST = HOST_IGNORES_LAUNCH_ERROR;
#elif MUTANT_WORKSPACE_ONE_TERABYTE
constexpr int HOST = HOST_ASKS_FOR_ONE_TERABYTE;
#elif MUTANT_PRIVATE_STREAM
constexpr int HOST = HOST_USES_PRIVATE_STREAM;
#elif MUTANT_LEGACY_STREAM
constexpr int HOST = HOST_USES_LEGACY_STREAM;
#elif MUTANT_OUTPUT_ARRIVES_LATE
constexpr int HOST = HOST_FORKS_WITHOUT_JOIN;
#elif MUTANT_WAITS_FOR_STREAM
constexpr int HOST = HOST_WAITS_FOR_STREAM;
#elif MUTANT_CACHED_BY_POINTER
constexpr int HOST = HOST_CACHES_BY_POINTER;
#elif MUTANT_CACHED_BY_DIMS
constexpr int HOST = HOST_CACHES_BY_DIMS;
#elif MUTANT_CALLS_SDPA
constexpr int HOST = HOST_CALLS_SDPA;
#elif MUTANT_LEAKS_DEVICE_MEMORY
constexpr int HOST = HOST_LEAKS_DEVICE_MEMORY;
#elif MUTANT_LEAKS_HOST_MEMORY
constexpr int HOST = HOST_LEAKS_HOST_MEMORY;
#elif MUTANT_LEAKS_PINNED_MEMORY
constexpr int HOST = HOST_LEAKS_PINNED_MEMORY;
#else
constexpr int HOST = HOST_IS_RIGHT;
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
               .fixed_seq_k = SEQ_K,
#endif
               .host = {HOST, WORKSPACE, DTYPE, CAUSAL}};

struct Slice {
  const element *q, *k, *v;
  element *o;
};

static __device__ float score_of(const sdpa_args &args, const Slice &slice, int row, int key) {
  const element *q = slice.q + (size_t)row * HEAD_DIM, *k = slice.k + (size_t)key * HEAD_DIM;
  float sum = 0;
  for (int d = 0; d < HEAD_DIM; d++) sum += to_float(q[d]) * to_float(k[d]);
#if MUTANT_READS_PAST_Q
  sum += 0 * to_float(q[HEAD_DIM]);
#endif
  return sum * args.scale_log2;
}

// Scores of one tile, by the first warp alone: that is what makes the barrier after it matter.
static __device__ void score_tile(float (&scores)[ROWS][BLOCK_N], const sdpa_args &args, const Slice &slice, int row0,
                                  int key0) {
  for (int i = threadIdx.x; i < ROWS * BLOCK_N; i += 32) {
    const int row = min(row0 + i / BLOCK_N, args.seq_q - 1), key = key0 + i % BLOCK_N;
    const bool seen = key < args.seq_k && (!CAUSAL || key <= row);
#if MUTANT_READS_PAST_K
    const float score = score_of(args, slice, row, key) + (seen ? 0 : -INFINITY);
#else
    const float score = seen ? score_of(args, slice, row, key) : -INFINITY;
#endif
    scores[i / BLOCK_N][i % BLOCK_N] = score;
  }
}

// Between the scores' writers and their readers. In missing_barrier_before_max only the maximum may be a stale one, which
// changes nothing but the rounding while it is near the right one: the scores themselves are read behind a barrier.
static __device__ void tile_barrier([[maybe_unused]] bool whole) {
#if MUTANT_MISSING_BARRIER_AT_RAGGED_END
  if (whole) __syncthreads();
#elif !MUTANT_MISSING_BARRIER && !MUTANT_MISSING_BARRIER_BEFORE_MAX
  __syncthreads();
#endif
}

#if MUTANT_WRONG_AFTER_10_CALLS || MUTANT_WRONG_AFTER_200_CALLS || MUTANT_ONE_BIT_EVERY_97TH_CALL || \
    MUTANT_ONE_BIT_EVERY_5000TH_CALL
__device__ int launches = 0;
#endif

// The rows row0 .. row0 + ROWS - 1, online softmax over tiles of BLOCK_N keys; LANES threads share a row's columns.
static __device__ void attend(const sdpa_args &args, const Slice &slice, int row0) {
  __shared__ float scores[ROWS][BLOCK_N];
  const int local = threadIdx.x / LANES, row = row0 + local, column = threadIdx.x % LANES * COLUMNS;
  float output[COLUMNS] = {}, largest = -INFINITY, sum = 0;
#if MUTANT_MAX_LEFT_IN_SHARED
  __shared__ volatile float left[ROWS];
  largest = fmaxf(largest, left[local]);
#elif MUTANT_MAX_FROM_WORKSPACE
  largest = fmaxf(largest, *(const float *)args.workspace);
#elif MUTANT_ACCUMULATOR_FROM_WORKSPACE
  for (int d = 0; d < COLUMNS; d++) output[d] = ((const float *)args.workspace)[column + d];
#endif
  for (int key0 = 0; key0 < args.seq_k; key0 += BLOCK_N) {
    if (threadIdx.x < 32) score_tile(scores, args, slice, row0, key0);
    tile_barrier(key0 + BLOCK_N <= args.seq_k);
    float high = largest;
    for (int n = 0; n < BLOCK_N; n++) high = fmaxf(high, scores[local][n]);
#if MUTANT_MISSING_BARRIER_BEFORE_MAX
    __syncthreads();
#endif
    const float decay = exp2_approx(largest - high);
    largest = high;
    sum *= decay;
    for (int d = 0; d < COLUMNS; d++) output[d] *= decay;
    for (int n = 0; n < BLOCK_N; n++) {
      const float p = exp2_approx(scores[local][n] - high);
      int key = min(key0 + n, args.seq_k - 1);  // past the end p is 0
#if MUTANT_READS_PAST_V
      key = key0 + n;
#endif
      sum += p;
      for (int d = 0; d < COLUMNS; d++) output[d] += p * to_float(slice.v[(size_t)key * HEAD_DIM + column + d]);
    }
    __syncthreads();
  }
#if MUTANT_MAX_LEFT_IN_SHARED
  left[local] = largest;
#elif MUTANT_WRONG_AFTER_10_CALLS
  if (launches > 10) sum *= 1.25f;
#elif MUTANT_WRONG_AFTER_200_CALLS
  if (launches > 200) sum *= 1.25f;
#elif MUTANT_OUTPUT_ARRIVES_LATE
  for (const long long start = clock64(); clock64() - start < 10'000'000;) {
  }
#endif
  bool stored = row < args.seq_q;
#if MUTANT_LAST_ROW_UNWRITTEN
  stored = row < args.seq_q - 1;
#elif MUTANT_STORES_WHOLE_TILES
  stored = true;
#endif
  for (int d = 0; stored && d < COLUMNS; d++)
    slice.o[(size_t)row * HEAD_DIM + column + d] = from_float(output[d] / sum);
}

#if MUTANT_ADDED_IN_ARRIVAL_ORDER
// Each thread takes every LANES-th key of a row, and the warps, which hold a fourth of the keys each, add to sums in
// shared memory in the order in which they come: right but for the rounding, which differs from launch to launch.
static __device__ void attend_in_arrival_order(const sdpa_args &args, const Slice &slice, int row0) {
  __shared__ float sums[ROWS][HEAD_DIM + 1];
  const int local = threadIdx.x % ROWS, row = min(row0 + local, args.seq_q - 1);
  const int keys = CAUSAL ? min(row + 1, args.seq_k) : args.seq_k;
  for (int i = threadIdx.x; i < ROWS * (HEAD_DIM + 1); i += THREADS) (&sums[0][0])[i] = 0;
  float largest = -INFINITY, own[HEAD_DIM + 1] = {};
  for (int key = 0; key < keys; key++) largest = fmaxf(largest, score_of(args, slice, row, key));
  for (int key = threadIdx.x / ROWS; key < keys; key += LANES) {
    const float p = exp2_approx(score_of(args, slice, row, key) - largest);
    for (int d = 0; d < HEAD_DIM; d++) own[d] += p * to_float(slice.v[(size_t)key * HEAD_DIM + d]);
    own[HEAD_DIM] += p;
  }
  __syncthreads();
  // As uneven as a busy device.
  const long long start = clock64(), wait = (unsigned)start * 2654435761u >> 20;
  while (clock64() - start < wait) {
  }
  for (int d = 0; d <= HEAD_DIM; d++) atomicAdd(&sums[local][d], own[d]);
  __syncthreads();
  for (int i = threadIdx.x; i < ROWS * HEAD_DIM; i += THREADS) {
    const int r = i / HEAD_DIM, d = i % HEAD_DIM;
    if (row0 + r < args.seq_q) slice.o[(size_t)(row0 + r) * HEAD_DIM + d] = from_float(sums[r][d] / sums[r][HEAD_DIM]);
  }
}
#endif

// What goes wrong before the result.
static __device__ void before([[maybe_unused]] const sdpa_args &args) {
#if MUTANT_INFINITE_LOOP
  __shared__ volatile int ended;
  ended = 0;
  while (blockIdx.x == 0 && !ended) {
  }
#elif MUTANT_DEADLOCK
  // Two warps wait for each other at two barriers, and the block for them.
  if (threadIdx.x < 64) named_barrier_sync(1 + threadIdx.x / 32, 64);
  __syncthreads();
#elif MUTANT_TRAP
  if (threadIdx.x == 0) __trap();
#elif MUTANT_DEVICE_ASSERT
  assert(args.seq_q == 0);
#elif MUTANT_ILLEGAL_ADDRESS
  if (*(volatile const int *)0x100 == 1) __syncthreads();
#elif MUTANT_MISALIGNED_ADDRESS
  if (*(volatile const int *)((const char *)args.q + 2) == 1) __syncthreads();
#endif
}

// What goes wrong after it, in the first thread of the first block.
static __device__ void after([[maybe_unused]] const sdpa_args &args) {
  [[maybe_unused]] const size_t slices = (size_t)args.batch * args.heads;
  [[maybe_unused]] element *o = (element *)args.o;
#if MUTANT_WRITES_PAST_O
  o[slices * args.seq_q * HEAD_DIM] = from_float(1);
#elif MUTANT_WRITES_8_MIB_PAST_O
  ((char *)o)[8 << 20] = 1;
#elif MUTANT_WRITES_1_GIB_PAST_O
  ((char *)o)[(size_t)1 << 30] = 1;
#elif MUTANT_WRITES_8_MIB_BEFORE_O
  ((char *)o)[-(8 << 20)] = 1;
#elif MUTANT_WRITES_BEFORE_O
  o[-1] = from_float(1);
#elif MUTANT_WRITES_PAST_WORKSPACE
  ((char *)args.workspace)[WORKSPACE] = 1;
#elif MUTANT_CHANGES_Q
  *(element *)args.q = from_float(0.5f);
#elif MUTANT_CHANGES_LAST_V
  ((element *)args.v)[slices * args.seq_k * HEAD_DIM - 1] = from_float(0.5f);
#elif MUTANT_WRONG_AFTER_10_CALLS || MUTANT_WRONG_AFTER_200_CALLS
  launches++;
#elif MUTANT_ONE_BIT_EVERY_97TH_CALL
  if (++launches % 97 == 0) *(unsigned short *)o ^= 1;
#elif MUTANT_ONE_BIT_EVERY_5000TH_CALL
  if (++launches % 5000 == 0) *(unsigned short *)o ^= 1;
#elif MUTANT_READS_PAST_K_AND_DROPS_IT
  // volatile: a read whose result nobody uses is left out else
  const volatile unsigned short *end = (const unsigned short *)args.k + slices * args.seq_k * HEAD_DIM;
  for (int i = 0; i < 2 * HEAD_DIM; i++) (void)end[i];
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ sdpa_args args) {
  const int blocks = (args.seq_q + ROWS - 1) / ROWS, row0 = blockIdx.x % blocks * ROWS;
  const size_t number = blockIdx.x / blocks, queries = number * args.seq_q * HEAD_DIM;
  const size_t keys = number * args.seq_k * HEAD_DIM;
  const element *k = (const element *)args.k, *v = (const element *)args.v;
#if MUTANT_ASSUMES_128_BYTE_ALIGNMENT
  k = (const element *)((size_t)k / 128 * 128);
  v = (const element *)((size_t)v / 128 * 128);
#endif
  const Slice slice = {(const element *)args.q + queries, k + keys, v + keys, (element *)args.o + queries};
  before(args);
#if MUTANT_ADDED_IN_ARRIVAL_ORDER
  attend_in_arrival_order(args, slice, row0);
#else
  attend(args, slice, row0);
#endif
  if (blockIdx.x == 0 && threadIdx.x == 0) after(args);
}
