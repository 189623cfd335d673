/* Attention for float32, ROWS query rows at a time, with an online softmax over blocks of BLOCK_N keys.
 *
 * Parameters, all macros that the build defines:
 *   BLOCK_N                         keys a block; a multiple of 16
 *   ROWS                            query rows that share one reading of K and V
 *   EXP_LIBM, EXP_POLY, EXP_COARSE  one of them is 1: how exp is computed
 * and from the problem: DTYPE, HEAD_DIM, CAUSAL and others, of which kernel.toml says what is not served. Strides are
 * the caller's, and heads may share K and V. One thread. docs/my-kernel.md walks through this file. */
#include <math.h>

#include "sdpa.h"

static_assert(DTYPE == AT_FLOAT32, "this example knows float32 only");

namespace {

constexpr int D = HEAD_DIM;
constexpr int LANES = 8;         /* floats a vector */
constexpr int WIDTH = 2 * LANES; /* columns a tile */
static_assert(D % WIDTH == 0 && BLOCK_N % WIDTH == 0, "whole tiles");

typedef float vec __attribute__((vector_size(4 * LANES)));           /* aligned: for our own arrays */
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4))); /* for tensors, aligned to 16 bytes only */
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

/* The largest score so far, before there is one: below every score, yet finite, so that a difference to it is no NaN. */
constexpr float LOWEST = -3e38f;

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* exp of arguments that are never positive; 0 where the result is below float's normal range. */
inline vec exponential(vec x) {
#if EXP_LIBM
  vec y;
  for (int lane = 0; lane < LANES; ++lane) y[lane] = expf(x[lane]);
  return y;
#else
  /* 2^t = 2^whole * 2^part with |part| <= 1/2, and a polynomial for 2^part: the series of 2^x about 0. */
  const vec t = (x < -87.0f ? vec{} - 87.0f : x) * 1.44269504f;
  const ivec whole = __builtin_convertvector(t - 0.5f, ivec);
  const vec part = t - __builtin_convertvector(whole, vec);
#if EXP_POLY
  vec sum = vec{} + 1.54035304e-4f;
  sum = sum * part + 1.33335581e-3f;
  sum = sum * part + 9.61812911e-3f;
  sum = sum * part + 5.55041087e-2f;
  sum = sum * part + 2.40226507e-1f;
#else /* EXP_COARSE: a deliberate mistake. Two terms of the series are not enough, and the gate rejects it. */
  vec sum = vec{} + 2.40226507e-1f;
#endif
  sum = sum * part + 6.93147181e-1f;
  sum = sum * part + 1.0f;
  const vec power = (vec)((whole + 127) << 23);
  return x < -87.0f ? vec{} : sum * power;
#endif
}

/* c[row][0..WIDTH) = sum over k of a[row][k] * b[k][0..WIDTH), for ROWS rows. Both products are made of it. */
inline void tile(const float *a, int a_stride, const float *b, int64_t b_stride, int depth, vec (&c)[ROWS][2]) {
  for (int r = 0; r < ROWS; ++r) c[r][0] = c[r][1] = vec{};
  for (int k = 0; k < depth; ++k) {
    const vec left = *(const loose *)(b + k * b_stride), right = *(const loose *)(b + k * b_stride + LANES);
    for (int r = 0; r < ROWS; ++r) {
      c[r][0] += a[r * a_stride + k] * left;
      c[r][1] += a[r * a_stride + k] * right;
    }
  }
}

/* ROWS rows: their queries, the scores of the current block, and the largest score, the sum of weights and the weighted
 * sum of V of all blocks so far. */
struct Rows {
  alignas(64) float q[ROWS][D], score[ROWS][BLOCK_N], o[ROWS][D];
  float top[ROWS], total[ROWS];
};

/* Turns a row's scores into weights; `visible` keys of the block count. Returns what earlier sums must be scaled by. */
inline float soften(Rows &rows, int r, int64_t visible) {
  vec *score = (vec *)rows.score[r];
  for (int64_t j = visible < 0 ? 0 : visible; j < BLOCK_N; ++j) rows.score[r][j] = -INFINITY; /* exp gives 0 */
  vec most = vec{} + rows.top[r], sum = {};
  for (int j = 0; j < BLOCK_N / LANES; ++j) most = score[j] > most ? score[j] : most;
  float top = most[0];
  for (int lane = 1; lane < LANES; ++lane) top = most[lane] > top ? most[lane] : top;
  for (int j = 0; j < BLOCK_N / LANES; ++j) sum += score[j] = exponential(score[j] - top);
  const float decay = exponential(vec{} + (rows.top[r] - top))[0];
  rows.top[r] = top;
  rows.total[r] *= decay;
  for (int lane = 0; lane < LANES; ++lane) rows.total[r] += sum[lane];
  return decay;
}

/* A tensor: where a row of it lies. Strides are in elements. */
struct Tensor {
  float *base;
  const int64_t *stride;

  float *row(int64_t batch, int64_t head, int64_t i) const {
    return base + batch * stride[SDPA_BATCH_STRIDE] + head * stride[SDPA_HEAD_STRIDE] + i * stride[SDPA_ROW_STRIDE];
  }
};

inline Tensor input(const at_call *call, int slot) { return {(float *)call->in[slot], call->in_stride[slot]}; }

/* One block of keys for ROWS rows. `packed` is its K transposed, D x BLOCK_N; rows of V are `apart` elements apart; row r
 * sees `visible[r]` keys of the block. */
inline void block(Rows &rows, const float *packed, const float *v, int64_t apart, int keys, const int64_t *visible) {
  vec sums[ROWS][2];
  for (int j = 0; j < BLOCK_N; j += WIDTH) {
    tile(rows.q[0], D, packed + j, BLOCK_N, D, sums);
    for (int r = 0; r < ROWS; ++r)
      for (int half = 0; half < 2; ++half) *(vec *)&rows.score[r][j + half * LANES] = sums[r][half];
  }
  float decay[ROWS];
  for (int r = 0; r < ROWS; ++r) decay[r] = soften(rows, r, visible[r]);
  for (int d = 0; d < D; d += WIDTH) {
    tile(rows.score[0], BLOCK_N, v + d, apart, keys, sums);
    for (int r = 0; r < ROWS; ++r)
      for (int half = 0; half < 2; ++half) {
        vec &o = *(vec *)&rows.o[r][d + half * LANES];
        o = o * decay[r] + sums[r][half];
      }
  }
}

/* K of one head as blocks of D x BLOCK_N; keys past the end are 0. */
void pack(const float *k, int64_t apart, int64_t seq_k, float *packed) {
  for (int64_t j0 = 0; j0 < seq_k; j0 += BLOCK_N)
    for (int d = 0; d < D; ++d)
      for (int j = 0; j < BLOCK_N; ++j) *packed++ = j0 + j < seq_k ? k[(j0 + j) * apart + d] : 0.0f;
}

}  // namespace

int64_t variant_workspace(const at_call *call) {
  return (call->dim[SDPA_SEQ_K] + BLOCK_N - 1) / BLOCK_N * BLOCK_N * D * int64_t(sizeof(float));
}

int variant_run(const at_call *call) {
  if (call->workspace_bytes < variant_workspace(call)) return AT_NO_WORKSPACE;
  const int64_t heads = call->dim[SDPA_HEADS], group = heads / call->dim[SDPA_HEADS_KV];
  const int64_t seq_q = call->dim[SDPA_SEQ_Q], seq_k = call->dim[SDPA_SEQ_K];
  const float scale = float(call->scalar[SDPA_SCALE]);
  const Tensor q = input(call, SDPA_Q), k = input(call, SDPA_K), v = input(call, SDPA_V);
  const Tensor o = {(float *)call->out[SDPA_O], call->out_stride[SDPA_O]};
  const int64_t k_apart = k.stride[SDPA_ROW_STRIDE], v_apart = v.stride[SDPA_ROW_STRIDE];
  float *packed = (float *)call->workspace;
  for (int64_t slice = 0; slice < call->dim[SDPA_BATCH] * heads; ++slice) {
    const int64_t batch = slice / heads, head = slice % heads; /* which shares K and V with the others of its group */
    const float *values = v.row(batch, head / group, 0);
    pack(k.row(batch, head / group, 0), k_apart, seq_k, packed);
    for (int64_t i0 = 0; i0 < seq_q; i0 += ROWS) {
      const int count = int(least(ROWS, seq_q - i0)); /* rows past the end are zeros, computed and not stored */
      Rows rows = {};
      for (int r = 0; r < ROWS; ++r) {
        rows.top[r] = LOWEST;
        for (int d = 0; d < D && r < count; ++d) rows.q[r][d] = q.row(batch, head, i0 + r)[d] * scale;
      }
      const int64_t seen = CAUSAL ? least(i0 + ROWS, seq_k) : seq_k;
      for (int64_t j0 = 0; j0 < seen; j0 += BLOCK_N) {
        const int keys = int(least(BLOCK_N, seen - j0));
        int64_t visible[ROWS];
        for (int r = 0; r < ROWS; ++r) visible[r] = CAUSAL ? least(i0 + r + 1 - j0, keys) : keys;
        block(rows, packed + j0 * D, values + j0 * v_apart, v_apart, keys, visible);
      }
      for (int r = 0; r < count; ++r)
        for (int d = 0; d < D; ++d) o.row(batch, head, i0 + r)[d] = rows.o[r][d] / rows.total[r];
    }
  }
  return AT_OK;
}
