// Attention as three steps, the textbook way: S = scale Q K^T and O = P V are batched products of cuBLAS on the tensor
// cores, and P = softmax(S) in between is the kernel of this file. S and P go through memory. cublas_host.cpp puts the
// steps together.
//
// A block has ROWS rows of S. It holds a panel of a row in registers: PANEL scores a lane. A row of one panel is read
// once. Of a longer row each of the three passes (maximum, sum, output) reads the panels that the pass before did not
// end with, so the passes go to and fro.
//
// Parameters:
//   SCORES      type of S in memory. FLOAT; ELEMENT: rounded to the element type, P takes the place of S
//   ROWS        rows a block
//   NUM_WARPS   warps a block; NUM_WARPS / ROWS of them share a row, or one has ROWS / NUM_WARPS rows in turn
//   VEC_WIDTH   neighbouring scores that a lane reads and writes at once
//   CHUNK       query rows of each slice whose S is in memory at a time; 0: all. With CAUSAL a chunk's products stop at
//               the last key that it sees
//   HEURISTIC   which of the algorithms that cuBLAS proposes for a product, best first
#include "sdpa_cuda.h"

#include "cublas_plan.h"
#include "cuda_element.h"

static constexpr int THREADS = 32 * NUM_WARPS;
static constexpr int ROW_WARPS = NUM_WARPS > ROWS ? NUM_WARPS / ROWS : 1;
static constexpr int WARP_ROWS = ROWS > NUM_WARPS ? ROWS / NUM_WARPS : 1;
static constexpr int PANEL = 32;
static constexpr int VECTORS = PANEL / VEC_WIDTH;
static constexpr int STEP = 32 * ROW_WARPS * VEC_WIDTH;  // from a lane's vector to its next
static constexpr int PANEL_COLUMNS = VECTORS * STEP;
static constexpr float LOG2_E = 1.44269504f;

static_assert(ROWS % NUM_WARPS == 0 || NUM_WARPS % ROWS == 0, "a row is for whole warps, or a warp for whole rows");
static_assert(VEC_WIDTH == 2 || VEC_WIDTH == 4 || VEC_WIDTH == 8, "a vector is at most a padded row's unit");
static_assert(CHUNK >= 0 && HEURISTIC >= 0, "neither can be negative");

template <int N>
struct alignas(2 * N) Elements {
  uint32_t word[N / 2];
};

#if defined(SCORES_FLOAT)
typedef float score;

struct alignas(VEC_WIDTH < 4 ? 4 * VEC_WIDTH : 16) Scores {
  float x[VEC_WIDTH];
};

AT_DEVICE void widen(float *x, const Scores &scores) {
#pragma unroll
  for (int e = 0; e < VEC_WIDTH; ++e) x[e] = scores.x[e];
}
#elif defined(SCORES_ELEMENT)
typedef element score;
typedef Elements<VEC_WIDTH> Scores;

AT_DEVICE void widen(float *x, const Scores &scores) {
#pragma unroll
  for (int w = 0; w < VEC_WIDTH / 2; ++w) {
    const float2 pair = unpack(scores.word[w]);
    x[2 * w] = pair.x;
    x[2 * w + 1] = pair.y;
  }
}
#else
#error "unknown SCORES"
#endif

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(softmax_args),
               .threads = THREADS,
               .rows = ROWS,
               .split = 1,
               .cluster = 1,
               .head_dim = HEAD_DIM,
               .host = {DTYPE, CAUSAL, sizeof(score), CHUNK, HEURISTIC}};

// A lane's part of a row: vector v of a panel begins STEP * v columns after the panel's first column of this lane. What
// begins at or after `visible` is neither loaded nor computed.

AT_DEVICE void load_panel(float (&x)[PANEL], const score *row, int column, int visible) {
  Scores scores[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v)  // all loads before the first use of one
    if (column + v * STEP < visible) scores[v] = *(const Scores *)(row + column + v * STEP);
#pragma unroll
  for (int v = 0; v < VECTORS; ++v, column += STEP) {
    if (column >= visible) break;
    widen(x + v * VEC_WIDTH, scores[v]);
#pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e)
      if (column + e >= visible) x[v * VEC_WIDTH + e] = -INFINITY;
  }
}

AT_DEVICE float panel_max(const float (&x)[PANEL], int column, int visible) {
  float result = -INFINITY;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v, column += STEP) {
    if (column >= visible) break;
#pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) result = fmaxf(result, x[v * VEC_WIDTH + e]);
  }
  return result;
}

// Scores to exponentials in place; returns their sum. The row's maximum is subtracted first: fused with the scaling, what
// a very large one lost by rounding would be left as an exponent.
AT_DEVICE float exponentials(float (&x)[PANEL], float max, int column, int visible) {
  float sum = 0;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v, column += STEP) {
    if (column >= visible) break;
#pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) {
      float &y = x[v * VEC_WIDTH + e];
      y = exp2_approx((y - max) * LOG2_E);
      sum += y;
    }
  }
  return sum;
}

AT_DEVICE void store_panel(element *row, const float (&x)[PANEL], float factor, int column, int visible, int width) {
#pragma unroll
  for (int v = 0; v < VECTORS; ++v, column += STEP) {
    if (column >= width) break;
    Elements<VEC_WIDTH> words = {};
    if (column < visible) {
#pragma unroll
      for (int w = 0; w < VEC_WIDTH / 2; ++w)
        words.word[w] = pack(x[v * VEC_WIDTH + 2 * w] * factor, x[v * VEC_WIDTH + 2 * w + 1] * factor);
    }
    *(Elements<VEC_WIDTH> *)(row + column) = words;
  }
}

template <bool MAXIMUM>
AT_DEVICE float combine(float a, float b) {
  return MAXIMUM ? fmaxf(a, b) : a + b;
}

// The maximum or sum over the row's lanes. `partial`, a place for each warp, is used once only.
template <bool MAXIMUM>
AT_DEVICE float reduce(float x, float *partial) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = combine<MAXIMUM>(x, __shfl_xor_sync(0xffffffffu, x, offset));
  if (ROW_WARPS == 1) return x;
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) partial[warp] = x;
  __syncthreads();
  const float *const first = partial + warp / ROW_WARPS * ROW_WARPS;
  x = first[0];
#pragma unroll
  for (int w = 1; w < ROW_WARPS; ++w) x = combine<MAXIMUM>(x, first[w]);
  return x;
}

// One row, of which `visible` scores count; `width` probabilities are written. Rows that do not exist have none of
// either and come along for the barriers. `to` may be where `from` is: a lane writes only what it has read.
AT_DEVICE void softmax(const score *from, element *to, int visible, int width) {
  __shared__ float partial[2][NUM_WARPS];
  const int first = threadIdx.x % (32 * ROW_WARPS) * VEC_WIDTH;
  const int last_panel = (visible - 1) / PANEL_COLUMNS;
  float x[PANEL], row_max = -INFINITY, row_sum = 0;
  for (int panel = 0; panel <= last_panel; ++panel) {
    const int column = panel * PANEL_COLUMNS + first;
    load_panel(x, from, column, visible);
    row_max = fmaxf(row_max, panel_max(x, column, visible));
  }
  const float max = reduce<true>(row_max, partial[0]);
  for (int panel = last_panel; panel >= 0; --panel) {
    const int column = panel * PANEL_COLUMNS + first;
    if (panel < last_panel) load_panel(x, from, column, visible);
    row_sum += exponentials(x, max, column, visible);
  }
  const float factor = 1.0f / reduce<false>(row_sum, partial[1]);
  for (int panel = 0; panel * PANEL_COLUMNS < width; ++panel) {
    const int column = panel * PANEL_COLUMNS + first;
    if (panel > 0) {
      load_panel(x, from, column, visible);
      exponentials(x, max, column, visible);
    }
    store_panel(to, x, factor, column, visible, width);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ softmax_args args) {
  const int width = (args.keys + CUBLAS_ROW_ELEMENTS - 1) / CUBLAS_ROW_ELEMENTS * CUBLAS_ROW_ELEMENTS;
  const int first = blockIdx.x * ROWS + threadIdx.x / 32 / ROW_WARPS * WARP_ROWS;
#pragma unroll 1
  for (int row = first; row < first + WARP_ROWS; ++row) {
    const bool exists = row < args.rows;
    const int position = CAUSAL ? args.first_row + row % args.chunk_rows : 0;
    const int visible = CAUSAL ? min(args.keys, position + 1) : args.keys;
    const int64_t offset = exists ? row * args.pitch : 0;
    softmax((const score *)args.scores + offset, (element *)args.probabilities + offset, exists ? visible : 0,
            exists ? width : 0);
  }
}
