// rmsnorm on CUDA: LANES threads a row, in a warp, a block or a cluster of blocks.
//   LANES      threads of a block that share a row
//   ROWS       rows that a block computes side by side
//   TURNS      rows that the same threads compute one after another
//   CLUSTER    blocks that share a row; 1: none
//   VEC_WIDTH  elements of a load
//   HOLD       vectors of a row that a thread keeps in registers; it reads what is beyond them a second time
//   HOLD_W     1: a thread keeps its part of W in registers too, read before the first row's sum, not after it
//   STAGES     2: the next row is read into registers before this one is summed up
//   REGISTERS  that a thread may have: as many blocks as that leaves room for turn side by side on a multiprocessor
//   STREAM     1: the part of X that is held, which is read once, and Y are the first to leave the caches
// Rows that are no whole vectors are read element by element.
#include "rmsnorm_cuda.h"

#include "cuda_element.h"

constexpr int THREADS = LANES * ROWS;
// Each of a multiprocessor's four parts has 16384 registers, and whole warps.
constexpr int WARPS_SM = 4 * (16384 / (REGISTERS * 32)), BLOCKS_SM = WARPS_SM * 32 / THREADS;
constexpr int WARPS_A_ROW = LANES > 32 ? LANES / 32 : 1;

static_assert((LANES & (LANES - 1)) == 0 && THREADS % 32 == 0 && THREADS <= 1024, "whole warps, rows in halves");
static_assert(CLUSTER == 1 || ROWS == 1, "a cluster computes one row at a time");
static_assert(BLOCKS_SM > 0, "one block fits");
static_assert(HOLD > 0 || (!HOLD_W && STAGES == 1), "there is nothing to hold");

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(rmsnorm_args),
               .threads = THREADS,
               .rows = ROWS * TURNS,
               .split = CLUSTER,
               .cluster = CLUSTER};

// What one load or store moves: of long words, as the compiler takes pairs of int apart.
template <int BYTES>
struct Moved;
template <>
struct Moved<16> {
  using type = longlong2;
};
template <>
struct Moved<8> {
  using type = long long;
};
template <>
struct Moved<4> {
  using type = int;
};
template <>
struct Moved<2> {
  using type = short;
};

// WIDTH elements, as they lie in memory. Those of 16 bits stay two to a register: as elements, or as the floats that are
// made of them, they would take twice as many from one use to the next.
template <int WIDTH>
struct Vector {
  static constexpr int BYTES = WIDTH * sizeof(element), WORDS = BYTES < 4 ? 1 : BYTES / 4;
  using moved = typename Moved<BYTES>::type;
  uint32_t words[WORDS];

  // ONCE: nobody reads it a second time.
  template <bool ONCE = false>
  static __device__ __forceinline__ Vector load(const element *from) {
    const moved found = ONCE && STREAM ? __ldcs((const moved *)from) : *(const moved *)from;
    Vector x = {};
    memcpy(x.words, &found, BYTES);
    return x;
  }

  __device__ __forceinline__ void store(element *to) const {
    moved found;
    memcpy(&found, words, BYTES);
    if (STREAM)
      __stcs((moved *)to, found);
    else
      *(moved *)to = found;
  }

  // The floats that the compiler has made of it are not to be kept: they are made once more.
  __device__ __forceinline__ void forget_floats() {
#pragma unroll
    for (int i = 0; i < WORDS; ++i) asm volatile("" : "+r"(words[i]));
  }

  __device__ __forceinline__ void to_floats(float (&floats)[WIDTH]) const {
    if constexpr (BYTES < 4 || sizeof(element) == 4) {
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) floats[i] = to_float(*(const element *)&words[i]);
    } else {
#pragma unroll
      for (int i = 0; i < WORDS; ++i) {
        const float2 pair = unpack(words[i]);
        floats[2 * i] = pair.x;
        floats[2 * i + 1] = pair.y;
      }
    }
  }

  static __device__ __forceinline__ Vector of_floats(const float (&floats)[WIDTH]) {
    Vector y = {};
    if constexpr (BYTES < 4 || sizeof(element) == 4) {
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) *(element *)&y.words[i] = from_float(floats[i]);
    } else {
#pragma unroll
      for (int i = 0; i < WORDS; ++i) y.words[i] = pack(floats[2 * i], floats[2 * i + 1]);
    }
    return y;
  }
};

template <int WIDTH>
AT_DEVICE float sum_of_squares(const Vector<WIDTH> &x) {
  float floats[WIDTH], sum = 0;
  x.to_floats(floats);
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) sum += floats[i] * floats[i];
  return sum;
}

// What a thread has of a row: vectors at the columns `start`, `start + STRIDE`, and so on, the first HOLD in registers.
template <int WIDTH>
struct Part {
  static constexpr int STRIDE = CLUSTER * LANES * WIDTH;
  Vector<WIDTH> held[HOLD > 0 ? HOLD : 1];

  template <bool ONCE>
  __device__ __forceinline__ void read(const element *row, int start, int columns) {
#pragma unroll
    for (int i = 0; i < HOLD; ++i) {
      const int column = start + i * STRIDE;
      if (column < columns) {
        held[i] = Vector<WIDTH>::template load<ONCE>(row + column);
      } else {
        held[i] = {};
      }
    }
  }

  __device__ __forceinline__ void forget_floats() {
#pragma unroll
    for (int i = 0; i < HOLD; ++i) held[i].forget_floats();
  }

  __device__ __forceinline__ float squares(const element *row, int start, int columns) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < HOLD; ++i) sum += sum_of_squares(held[i]);
    for (int column = start + HOLD * STRIDE; column < columns; column += STRIDE)
      sum += sum_of_squares(Vector<WIDTH>::load(row + column));
    return sum;
  }
};

template <int WIDTH>
AT_DEVICE void multiply(element *to, const Vector<WIDTH> &x, const Vector<WIDTH> &w, float factor) {
  float products[WIDTH], weights[WIDTH];
  x.to_floats(products);
  w.to_floats(weights);
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) products[i] = products[i] * factor * weights[i];
  Vector<WIDTH>::of_floats(products).store(to);
}

// Partial sums, by the parity of the turn: who is a turn ahead writes the other half.
__shared__ float warp_sums[2][ROWS][WARPS_A_ROW];
__shared__ float block_sums[2];

// The sum over all threads of a row, the same for each of them.
AT_DEVICE float total(float sum, int group, int lane, int turn) {
#pragma unroll
  for (int apart = (LANES < 32 ? LANES : 32) / 2; apart > 0; apart /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, apart);
  if (LANES > 32) {
    float(&sums)[WARPS_A_ROW] = warp_sums[turn % 2][group];
    if (lane % 32 == 0) sums[lane / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < WARPS_A_ROW; ++i) sum += sums[i];
  }
#if CLUSTER > 1
  if (threadIdx.x == 0) block_sums[turn % 2] = sum;
  cluster_arrive();
  cluster_wait();
  sum = 0;
  for (uint32_t rank = 0; rank < CLUSTER; ++rank) sum += *cluster_map(&block_sums[turn % 2], rank);
#endif
  return sum;
}

template <int WIDTH>
AT_DEVICE void normalise(const rmsnorm_args &args) {
  constexpr int STRIDE = Part<WIDTH>::STRIDE;
  const int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES, columns = args.hidden_size;
#if CLUSTER > 1
  const int start = ((int)cluster_rank() * LANES + lane) * WIDTH;
#else
  const int start = lane * WIDTH;
#endif
  const element *x = (const element *)args.x, *w = (const element *)args.w;
  int64_t row = (int64_t)(blockIdx.x / CLUSTER) * (ROWS * TURNS) + group;
  Part<WIDTH> weights, part, next;
  // A row past the end has no columns: its threads take part in every sum and read and write nothing.
  next.template read<true>(x + row * columns, start, row < args.tokens ? columns : 0);
  if (HOLD_W) weights.template read<false>(w, start, columns);  // after X, which the sum waits for
  for (int turn = 0; turn < TURNS; ++turn, row += ROWS) {
    const int here = row < args.tokens ? columns : 0;
    const element *from = x + row * columns;
    const auto read_next = [&] {
      const bool more = turn + 1 < TURNS && row + ROWS < args.tokens;
      next.template read<true>(from + (int64_t)ROWS * columns, start, more ? columns : 0);
    };
    part = next;
    if (STAGES == 2) read_next();
    const float sum = total(part.squares(from, start, here), group, lane, turn);
    part.forget_floats();
    if (HOLD_W) weights.forget_floats();
    const float factor = 1.0f / sqrtf(sum / (float)columns + args.eps);
    element *to = (element *)args.y + row * columns;
#pragma unroll
    for (int i = 0; i < HOLD; ++i) {
      const int column = start + i * STRIDE;
      if (column < here)
        multiply(to + column, part.held[i], HOLD_W ? weights.held[i] : Vector<WIDTH>::load(w + column), factor);
    }
    for (int column = start + HOLD * STRIDE; column < here; column += STRIDE)
      multiply(to + column, Vector<WIDTH>::load(from + column), Vector<WIDTH>::load(w + column), factor);
    if (STAGES == 1) read_next();
  }
#if CLUSTER > 1
  cluster_arrive();  // no block ends while another one may still read its sums
  cluster_wait();
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_SM)
    variant_kernel(const __grid_constant__ rmsnorm_args args) {
  if (args.hidden_size % VEC_WIDTH == 0)
    normalise<VEC_WIDTH>(args);
  else
    normalise<1>(args);
}
