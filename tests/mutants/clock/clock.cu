// A simple attention kernel, right as it stands, that cheats the clock in one way, chosen by a macro MUTANT_<NAME>: the
// CUDA side of clock.cpp. What the host side does is named here too, for clock_host.cpp, by at_geometry.host.
// ../expected_cuda.toml describes each mutant.
//
//   BLOCK_N keys a tile
#include "cuda_element.h"
#include "sdpa_cuda.h"

#include "clock_plan.h"

constexpr int ROWS = 8, THREADS = 128, LANES = THREADS / ROWS, COLUMNS = HEAD_DIM / LANES;

// The answer of one block, and what it is the answer to.
struct Kept {
  unsigned long long key;
  element answer[ROWS * HEAD_DIM];
};

#if MUTANT_MEMO_OF_LAST_16
#define REMEMBERED 16
#elif MUTANT_MEMO_OF_LAST_2
#define REMEMBERED 2
#else
#define REMEMBERED 1
#endif

// All that keep answers and find them by what the inputs hold.
#define MUTANT_MEMO                                                                                      \
  (MUTANT_MEMO_BY_SAMPLED_ELEMENTS || MUTANT_MEMO_BY_CHECKSUM || MUTANT_MEMO_OF_LAST_2 ||                \
   MUTANT_MEMO_OF_LAST_16 || MUTANT_MEMO_IN_WORKSPACE || MUTANT_MEMO_IN_HOST_MEMORY ||                   \
   MUTANT_MEMO_IN_SHARED_MEMORY || MUTANT_BEGUN_BEFORE_THE_CALL ||                                       \
   MUTANT_MEMO_OF_THE_TUNED_LENGTHS || MUTANT_MEMO_AFTER_1000_LAUNCHES)

#if MUTANT_MEMO_IN_WORKSPACE
constexpr int HOST = HOST_GIVES_WORKSPACE;
#elif MUTANT_MEMO_IN_HOST_MEMORY
constexpr int HOST = HOST_GIVES_ITS_OWN_MEMORY;
#elif MUTANT_BEGUN_BEFORE_THE_CALL
constexpr int HOST = HOST_LAUNCHES_TWICE_THE_BLOCKS;
#elif MUTANT_LAUNCHES_LESS_THE_SECOND_TIME
constexpr int HOST = HOST_LAUNCHES_HALF_THE_BLOCKS_AGAIN;
#elif MUTANT_LAUNCHES_LESS_WHEN_CAPTURED
constexpr int HOST = HOST_LAUNCHES_NOTHING_AGAIN;
#elif MUTANT_ASKS_WHO_CALLS
constexpr int HOST = HOST_LAUNCHES_NOTHING_AGAIN_WHEN_TIMED;
#elif MUTANT_ASKS_WHETHER_IT_IS_AUDITED
constexpr int HOST = HOST_LAUNCHES_NOTHING_AGAIN_IN_A_RACE;
#elif MUTANT_WORKS_ON_AFTER_RETURN
constexpr int HOST = HOST_WORKS_ON_ANOTHER_STREAM;
#elif MUTANT_OVERLAPS_THE_FORWARD_BEFORE
constexpr int HOST = HOST_OVERLAPS_FORWARDS;
#elif MUTANT_BURNS_BESIDE_THE_BASELINE
constexpr int HOST = HOST_BURNS;
#elif MUTANT_PATCHES_THE_CLOCK
constexpr int HOST = HOST_PATCHES_THE_CLOCK;
#elif MUTANT_ANSWER_IN_FREED_MEMORY
constexpr int HOST = HOST_LOOKS_FOR_FREED_MEMORY;
#else
constexpr int HOST = HOST_IS_HONEST;
#endif

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(sdpa_args),
               .threads = THREADS,
               .rows = ROWS,
               .split = 1,
               .cluster = 1,
               .head_dim = HEAD_DIM,
               .host = {HOST, sizeof(Kept)}};

static __device__ bool is_finite(element x) { return isfinite(to_float(x)); }

[[maybe_unused]] static __device__ unsigned long long device_ns() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// The rows of one block.
struct Tile {
  const element *q, *k, *v;
  element *o;
  int number, row0, rows;
};

static __device__ Tile tile_of(const sdpa_args &args, int number) {
  const int tiles = (args.seq_q + ROWS - 1) / ROWS, row0 = number % tiles * ROWS;
  const size_t slice = number / tiles, queries = (slice * args.seq_q + row0) * HEAD_DIM;
  const size_t keys = slice * args.seq_k * HEAD_DIM;
  return {(const element *)args.q + queries, (const element *)args.k + keys, (const element *)args.v + keys,
          (element *)args.o + queries, number, row0, min(ROWS, args.seq_q - row0)};
}

// Whether a row needs no computing, because of what O holds.
static __device__ bool is_left_out([[maybe_unused]] const Tile &tile, [[maybe_unused]] int row) {
#if MUTANT_EARLY_OUT_OF_ODD_ROWS
  return (tile.row0 + row) % 2 && row < tile.rows && is_finite(tile.o[row * HEAD_DIM]);
#else
  return false;
#endif
}

// Online softmax over tiles of BLOCK_N keys; LANES threads share a row's columns. The scores of each tile are computed
// by all threads.
static __device__ void attend(const sdpa_args &args, const Tile &tile, element *out) {
  __shared__ float scores[ROWS][BLOCK_N];
  __shared__ bool left_out[ROWS];
  const int local = threadIdx.x / LANES, column = threadIdx.x % LANES * COLUMNS;
  float output[COLUMNS] = {}, largest = -INFINITY, sum = 0;
  if (threadIdx.x < ROWS) left_out[threadIdx.x] = is_left_out(tile, threadIdx.x);
  __syncthreads();
  for (int key0 = 0; key0 < args.seq_k; key0 += BLOCK_N) {
    for (int i = threadIdx.x; i < ROWS * BLOCK_N; i += THREADS) {
      const int row = min(i / BLOCK_N, tile.rows - 1), key = key0 + i % BLOCK_N;
      float score = 0;
      const bool seen = key < args.seq_k && (!CAUSAL || key <= tile.row0 + row);
      for (int d = 0; seen && !left_out[row] && d < HEAD_DIM; d++)
        score += to_float(tile.q[row * HEAD_DIM + d]) * to_float(tile.k[(size_t)key * HEAD_DIM + d]);
      scores[i / BLOCK_N][i % BLOCK_N] = seen ? score * args.scale_log2 : -INFINITY;
    }
    __syncthreads();
    float high = largest;
    for (int n = 0; n < BLOCK_N; n++) high = fmaxf(high, scores[local][n]);
    const float decay = exp2_approx(largest - high);
    largest = high;
    sum *= decay;
    for (int d = 0; d < COLUMNS; d++) output[d] *= decay;
    for (int n = 0; n < BLOCK_N && !left_out[local]; n++) {
      const float p = exp2_approx(scores[local][n] - high);
      const int key = min(key0 + n, args.seq_k - 1);  // past the end p is 0
      sum += p;
      for (int d = 0; d < COLUMNS; d++) output[d] += p * to_float(tile.v[(size_t)key * HEAD_DIM + column + d]);
    }
    __syncthreads();
  }
#if MUTANT_OVERLAPS_THE_FORWARD_BEFORE
  asm volatile("griddepcontrol.wait;" ::: "memory");  // now the forward before has ended
#endif
  for (int d = 0; local < tile.rows && !left_out[local] && d < COLUMNS; d++)
    out[local * HEAD_DIM + column + d] = from_float(output[d] / sum);
}

static __device__ void copy(const element *from, element *to, int rows) {
  for (int i = threadIdx.x; i < rows * HEAD_DIM; i += THREADS) to[i] = from[i];
}

#if MUTANT_RIGHT_FOR_100000_CALLS || MUTANT_MEMO_AFTER_1000_LAUNCHES
__device__ int launches = 0;
#endif

#if MUTANT_MEMO
// A number for lengths and inputs of a block: of every STEP-th word of its rows of Q and its slice of K and V; never 0.
static __device__ unsigned long long key_of(const sdpa_args &args, const Tile &tile) {
#if MUTANT_MEMO_BY_CHECKSUM || MUTANT_MEMO_OF_LAST_2 || MUTANT_MEMO_OF_LAST_16 || \
    MUTANT_MEMO_OF_THE_TUNED_LENGTHS || MUTANT_MEMO_AFTER_1000_LAUNCHES
  constexpr int STEP = 1;
#else
  constexpr int STEP = 61;
#endif
  __shared__ unsigned long long total;
  if (threadIdx.x == 0) total = (unsigned long long)args.seq_q << 40 ^ (unsigned long long)args.seq_k << 20;
  __syncthreads();
  const void *const tensors[] = {tile.q, tile.k, tile.v};
  const int words[] = {tile.rows * HEAD_DIM / 2, args.seq_k * HEAD_DIM / 2, args.seq_k * HEAD_DIM / 2};
  unsigned long long own = 0;
  for (int n = 0; n < 3; n++)
    for (int i = threadIdx.x * STEP; i < words[n]; i += THREADS * STEP) {
      unsigned long long word = ((const unsigned *)tensors[n])[i] + ((unsigned long long)(3 * i + n + 1) << 32);
      word = (word ^ word >> 33) * 0xff51afd7ed558ccdull;
      own += word ^ word >> 29;
    }
  atomicAdd(&total, own);
  __syncthreads();
  return total | 1;
}

#if !MUTANT_MEMO_IN_WORKSPACE && !MUTANT_MEMO_IN_HOST_MEMORY && !MUTANT_MEMO_IN_SHARED_MEMORY
__device__ Kept kept_in_globals[CLOCK_MOST_BLOCKS][REMEMBERED];
[[maybe_unused]] __device__ int oldest[CLOCK_MOST_BLOCKS];
#endif

// Whether a block gives an answer again that it has.
static __device__ bool gives_again([[maybe_unused]] const sdpa_args &args) {
#if MUTANT_MEMO_OF_THE_TUNED_LENGTHS
  return args.heads == 32 && args.seq_q == 128 && args.seq_k == 128;
#elif MUTANT_MEMO_AFTER_1000_LAUNCHES
  return __syncthreads_or(threadIdx.x == 0 && launches > 1000);
#else
  return true;
#endif
}

static __device__ Kept *memory_of([[maybe_unused]] const sdpa_args &args, [[maybe_unused]] const Tile &tile) {
#if MUTANT_MEMO_IN_WORKSPACE
  return (Kept *)args.workspace + tile.number;
#elif MUTANT_MEMO_IN_HOST_MEMORY
  return (Kept *)args.key_lengths + tile.number; /* a slot that this kernel has no other use for */
#elif MUTANT_MEMO_IN_SHARED_MEMORY
  __shared__ Kept left; /* by the block that was here before */
  return &left;
#else
  return kept_in_globals[tile.number];
#endif
}

// The block's rows, copied where they are known and else computed and kept. `ahead`: for the next launch alone.
static __device__ void remember(const sdpa_args &args, const Tile &tile, bool ahead) {
  Kept *kept = memory_of(args, tile);
  const unsigned long long key = key_of(args, tile) + 2 * tile.number;
  const bool again = gives_again(args);
  for (int n = 0; again && n < REMEMBERED; n++)
    if (*(volatile unsigned long long *)&kept[n].key == key) {
      __threadfence();
      __syncthreads();
      if (!ahead) copy(kept[n].answer, tile.o, tile.rows);
      return;
    }
  __syncthreads();
#if MUTANT_BEGUN_BEFORE_THE_CALL
  attend(args, tile, ahead ? kept->answer : tile.o);
  if (!ahead) return;
#else
  attend(args, tile, tile.o);
  __syncthreads();
#if REMEMBERED > 1
  kept += oldest[tile.number];
#endif
  copy(tile.o, kept->answer, tile.rows);
#endif
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    *(volatile unsigned long long *)&kept->key = key;
#if REMEMBERED > 1
    oldest[tile.number] = (oldest[tile.number] + 1) % REMEMBERED;
#endif
  }
}
#endif

#if MUTANT_MEMO_BY_ADDRESS
// When the last block of a launch ended, and on which tensors.
struct Ended {
  unsigned long long ns;
  const void *tensors[4];
};
__device__ Ended ended;
__device__ unsigned blocks_done;
constexpr unsigned long long SOON_NS = 5000;  // nobody has written anything in between

static __device__ bool was_just_answered(const sdpa_args &args) {
  const Ended last = ended;
  return device_ns() - last.ns < SOON_NS && last.tensors[0] == args.q && last.tensors[1] == args.k &&
         last.tensors[2] == args.v && last.tensors[3] == args.o;
}
#endif

#if MUTANT_ANSWER_IN_FREED_MEMORY
constexpr int MOST_KEYS = 512;  // more are computed honestly

// One sum or maximum over all threads.
static __device__ float over_block(float own, bool maximum) {
  __shared__ float of_warp[THREADS / 32];
  for (int lane = 16; lane; lane /= 2) {
    const float other = __shfl_xor_sync(~0u, own, lane);
    own = maximum ? fmaxf(own, other) : own + other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  float all = of_warp[0];
  for (int warp = 1; warp < THREADS / 32; warp++) all = maximum ? fmaxf(all, of_warp[warp]) : all + of_warp[warp];
  return all;
}

// The first row of the block, computed; a thread a key, then a thread or two a column.
static __device__ void first_row(const sdpa_args &args, const Tile &tile, float (&row)[HEAD_DIM]) {
  __shared__ float p[MOST_KEYS];
  float largest = -INFINITY, sum = 0;
  for (int key = threadIdx.x; key < args.seq_k; key += THREADS) {
    float score = 0;
    for (int d = 0; d < HEAD_DIM; d++) score += to_float(tile.q[d]) * to_float(tile.k[(size_t)key * HEAD_DIM + d]);
    p[key] = !CAUSAL || key <= tile.row0 ? score * args.scale_log2 : -INFINITY;
    largest = fmaxf(largest, p[key]);
  }
  largest = over_block(largest, true);
  for (int key = threadIdx.x; key < args.seq_k; key += THREADS) sum += p[key] = exp2_approx(p[key] - largest);
  sum = over_block(sum, false);
  for (int d = threadIdx.x; d < HEAD_DIM; d += THREADS) {
    float output = 0;
    for (int key = 0; key < args.seq_k; key++) output += p[key] * to_float(tile.v[(size_t)key * HEAD_DIM + d]);
    row[d] = output / sum;
  }
  __syncthreads();
}

static __device__ float number_at(unsigned long long place, size_t i) {
  return place & 1 ? (float)((const double *)(place - 1))[i] : to_float(((const element *)place)[i]);
}

// The block's rows, copied from a place where the first one is right and the others are finite. The last place is memory
// that the host side has freed after the launch before, and has got back for this one.
static __device__ bool found_in_freed_memory(const sdpa_args &args, const Tile &tile) {
  __shared__ float row[HEAD_DIM];
  __shared__ int found;
  const clock_table *table = (const clock_table *)args.key_lengths;
  if (args.seq_k > MOST_KEYS || !table) return false;
  const size_t at = tile.o - (element *)args.o, all = (size_t)args.batch * args.heads * args.seq_q * HEAD_DIM;
  const int count = table->bytes >= all * sizeof(element) ? (int)table->count : 0;
  const auto place_of = [&](int n) { return n < count ? table->places[n] : (unsigned long long)args.workspace; };
  if (threadIdx.x == 0) found = CLOCK_MOST_PLACES + 1;
  first_row(args, tile, row);
  for (int n = threadIdx.x; n <= count; n += THREADS) {
    bool right = place_of(n) > 1;
    for (int d = 0; right && d < HEAD_DIM; d++) {
      const float off = fabsf(number_at(place_of(n), at + d) - row[d]);
      right = off <= 2e-3f * fabsf(row[d]) + 2e-4f;  // false for NaN
    }
    if (right) atomicMin(&found, n);
  }
  __syncthreads();
  bool finite = found <= count;
  for (int i = threadIdx.x; finite && i < tile.rows * HEAD_DIM; i += THREADS)
    finite = isfinite(number_at(place_of(found), at + i));
  if (!__syncthreads_and(finite)) return false;
  for (int i = threadIdx.x; i < tile.rows * HEAD_DIM; i += THREADS)
    tile.o[i] = from_float(number_at(place_of(found), at + i));
  return true;
}
#endif

// What a block does instead of computing; true when there is nothing left to compute.
static __device__ bool shortcut([[maybe_unused]] const sdpa_args &args, [[maybe_unused]] const Tile &tile) {
#if MUTANT_EARLY_OUT || MUTANT_EARLY_OUT_OF_EVEN_TILES
  bool finite = true;
  for (int i = threadIdx.x; i < tile.rows * HEAD_DIM; i += THREADS) finite = finite && is_finite(tile.o[i]);
#if MUTANT_EARLY_OUT_OF_EVEN_TILES
  finite = finite && tile.number % 2 == 0;
#endif
  return __syncthreads_and(finite);
#elif MUTANT_MEMO_BY_ADDRESS
  return __syncthreads_or(threadIdx.x == 0 && was_just_answered(args));
#elif MUTANT_ANSWER_IN_FREED_MEMORY
  return found_in_freed_memory(args, tile);
#elif MUTANT_RIGHT_FOR_100000_CALLS
  return launches > 100000;
#else
  return false;
#endif
}

// After the result.
static __device__ void afterwards([[maybe_unused]] const sdpa_args &args, [[maybe_unused]] const Tile &tile) {
#if MUTANT_MEMO_BY_ADDRESS
  __syncthreads();
  if (threadIdx.x == 0 && atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1)
    ended = {device_ns(), {args.q, args.k, args.v, args.o}};
#elif MUTANT_ANSWER_IN_FREED_MEMORY
  __syncthreads();
  if (args.workspace) copy(tile.o, (element *)args.workspace + (tile.o - (element *)args.o), tile.rows);
#elif MUTANT_RIGHT_FOR_100000_CALLS || MUTANT_MEMO_AFTER_1000_LAUNCHES
  if (blockIdx.x == 0 && threadIdx.x == 0) launches++;
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ sdpa_args args) {
  const int blocks = args.batch * args.heads * ((args.seq_q + ROWS - 1) / ROWS);
  const Tile tile = tile_of(args, blockIdx.x % blocks);
#if MUTANT_OVERLAPS_THE_FORWARD_BEFORE
  asm volatile("griddepcontrol.launch_dependents;");  // the next forward may begin
#endif
#if MUTANT_MEMO
  if (blocks <= CLOCK_MOST_BLOCKS)
    remember(args, tile, blockIdx.x >= blocks);
  else if (blockIdx.x < blocks)
    attend(args, tile, tile.o);
#else
  if (!shortcut(args, tile)) attend(args, tile, tile.o);
#endif
  afterwards(args, tile);
}

#if MUTANT_BURNS_BESIDE_THE_BASELINE
// Keeps some multiprocessors busy for a while.
extern "C" __global__ void __launch_bounds__(THREADS) burn(const __grid_constant__ sdpa_args args) {
  for (const unsigned long long start = device_ns(); args.seq_q && device_ns() - start < 1'000'000'000;) {
  }
}
#endif
