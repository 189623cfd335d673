/* What the mutants and the right implementations share: element types, packing of K and V, and one right attention.
 *
 * K and V are packed once per head into the workspace as float32, in blocks of BLOCK_N keys: K transposed
 * (BLOCK_N floats per dimension), V as it is. Keys beyond seq_k are zero. Scores of a whole block are then plain loops
 * over BLOCK_N, which the compiler turns into vector code without being allowed to reorder a sum.
 */
#ifndef AUTOTUNER_TESTS_ATTENTION_H
#define AUTOTUNER_TESTS_ATTENTION_H

#include <math.h>
#include <string.h>

#include "sdpa.h"

constexpr int D = HEAD_DIM;
constexpr int BLOCK_N = 64;

#if DTYPE == AT_BFLOAT16
typedef uint16_t element;
#else
typedef float element;
#endif

static inline float widen(float x) { return x; }
static inline float widen(uint16_t x) {
  const uint32_t bits = uint32_t(x) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

/* To the nearest bfloat16, ties to even. */
static inline uint16_t bf16_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline float as_bf16(float x) { return widen(bf16_bits(x)); }
static inline float as_fp16(float x) { return float(_Float16(x)); }

static inline element narrow(float x) {
#if DTYPE == AT_BFLOAT16
  return bf16_bits(x);
#else
  return x;
#endif
}

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Floats that the packed K of one head takes; the packed V takes as many. */
static inline int64_t packed_floats(const at_call *call) {
  return (call->dim[SDPA_SEQ_K] + BLOCK_N - 1) / BLOCK_N * BLOCK_N * D;
}

/* Keys that row i sees. */
static inline int64_t visible_keys(int64_t i, int64_t seq_k) { return CAUSAL ? least(i + 1, seq_k) : seq_k; }

static inline void pack(const element *k, const element *v, int64_t seq_k, float *packed_k, float *packed_v) {
  for (int64_t j = 0; j < (seq_k + BLOCK_N - 1) / BLOCK_N * BLOCK_N; ++j) {
    float *column = packed_k + j / BLOCK_N * BLOCK_N * D + j % BLOCK_N;
    for (int d = 0; d < D; ++d) column[d * BLOCK_N] = j < seq_k ? widen(k[j * D + d]) : 0;
    for (int d = 0; d < D; ++d) packed_v[j * D + d] = j < seq_k ? widen(v[j * D + d]) : 0;
  }
}

/* dot[j] = q . k_j for the BLOCK_N keys of one packed block, summed over the first `dims` dimensions in order. */
template <class T>
static inline void products(const T *q, const float *block_k, T *dot, int dims = D) {
  T sum[BLOCK_N] = {};
  for (int d = 0; d < dims; ++d)
    for (int j = 0; j < BLOCK_N; ++j) sum[j] += q[d] * T(block_k[d * BLOCK_N + j]);
  for (int j = 0; j < BLOCK_N; ++j) dot[j] = sum[j];
}

/* One row, right: online softmax over blocks, scores in `float`. */
static inline void right_row(const element *q, const float *packed_k, const float *packed_v, int64_t keys, float scale,
                             element *o) {
  float row[D], acc[D] = {}, s[BLOCK_N];
  float m = -INFINITY, l = 0;
  for (int d = 0; d < D; ++d) row[d] = widen(q[d]);
  for (int64_t j0 = 0; j0 < keys; j0 += BLOCK_N) {
    const int count = int(least(BLOCK_N, keys - j0));
    products(row, packed_k + j0 * D, s);
    float top = m;
    for (int j = 0; j < count; ++j) top = fmaxf(top, s[j] *= scale);
    const float alpha = expf(m - top);
    m = top;
    l *= alpha;
    for (int d = 0; d < D; ++d) acc[d] *= alpha;
    for (int j = 0; j < count; ++j) {
      const float p = expf(s[j] - m);
      l += p;
      for (int d = 0; d < D; ++d) acc[d] += p * packed_v[(j0 + j) * D + d];
    }
  }
  for (int d = 0; d < D; ++d) o[d] = narrow(acc[d] / l);
}

/* Rows [first, last) of head `slice` (batch * heads + head), right; packed_k and packed_v as pack() left them. */
static inline void right_rows(const at_call *call, int64_t slice, int64_t first, int64_t last, const float *packed_k,
                              const float *packed_v, element *out) {
  const int64_t seq_q = call->dim[SDPA_SEQ_Q], seq_k = call->dim[SDPA_SEQ_K];
  const element *q = static_cast<const element *>(call->in[SDPA_Q]) + slice * seq_q * D;
  element *o = out + slice * seq_q * D;
  const float scale = float(call->scalar[SDPA_SCALE]);
  for (int64_t i = first; i < last; ++i)
    right_row(q + i * D, packed_k, packed_v, visible_keys(i, seq_k), scale, o + i * D);
}

static inline void pack_slice(const at_call *call, int64_t slice, float *packed_k, float *packed_v) {
  const int64_t seq_k = call->dim[SDPA_SEQ_K];
  pack(static_cast<const element *>(call->in[SDPA_K]) + slice * seq_k * D,
       static_cast<const element *>(call->in[SDPA_V]) + slice * seq_k * D, seq_k, packed_k, packed_v);
}

static inline int64_t right_workspace(const at_call *call) { return 2 * packed_floats(call) * int64_t(sizeof(float)); }

/* The whole op, right, written to `out`; needs right_workspace(call) bytes of workspace. */
static inline void right_attention(const at_call *call, element *out) {
  float *packed_k = static_cast<float *>(call->workspace);
  float *packed_v = packed_k + packed_floats(call);
  for (int64_t slice = 0; slice < call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS]; ++slice) {
    pack_slice(call, slice, packed_k, packed_v);
    right_rows(call, slice, 0, call->dim[SDPA_SEQ_Q], packed_k, packed_v, out);
  }
}

#endif
