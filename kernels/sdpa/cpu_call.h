// Where the tensors of a call lie, and which keys a row sees: what every CPU implementation of attention shares.
#ifndef AUTOTUNER_SDPA_CPU_CALL_H
#define AUTOTUNER_SDPA_CPU_CALL_H

#include <math.h>
#include <string.h>

#include "sdpa.h"

#if DTYPE == AT_FLOAT32
typedef float element;
#else
typedef uint16_t element;
#endif

#if DTYPE == AT_BFLOAT16
static inline float to_float(element x) {  // bfloat16 is the upper half of a float
  const uint32_t bits = (uint32_t)x << 16;
  float wide;
  memcpy(&wide, &bits, 4);
  return wide;
}
#elif DTYPE == AT_FLOAT16
static inline float to_float(element x) {
  _Float16 half;
  memcpy(&half, &x, 2);
  return (float)half;
}
#else
static inline float to_float(element x) { return x; }
#endif

#define AT_MAY_BE_BLIND (KEY_LENGTHS || WINDOWED || HAS_NUMBERS || CORNER == AT_BOTTOM_RIGHT)  // a row may see no key
#define AT_HIDES (CAUSAL || WINDOWED)                                          // a row may see fewer than the next

// The stride of rows, which in the dense layout the compiler knows.
static inline int64_t row_step(int64_t stride) { return LAYOUT == AT_BHSD ? HEAD_DIM : stride; }

// A tensor (batch, heads, length, HEAD_DIM).
struct Rows {
  element *base;
  int64_t batch, head, row;  // strides, in elements

  Rows(const void *tensor, const int64_t *stride)
      : base((element *)tensor), batch(stride[SDPA_BATCH_STRIDE]), head(stride[SDPA_HEAD_STRIDE]),
        row(stride[SDPA_ROW_STRIDE]) {}

  element *at(int64_t b, int64_t h, int64_t i) const { return base + b * batch + h * head + i * row_step(row); }
};

// What a call is about, read once.
struct Attention {
  Rows q, k, v, o;
  const int32_t *key_lengths;
  float *lse;
  int64_t batch, heads, group, seq_q, seq_k;
  int64_t left, right;  // of the window
  float cap;            // of scaled scores
  const void *sinks, *bias;
  int64_t bias_batch, bias_head, bias_row;  // strides, in elements

  explicit Attention(const at_call *call)
      : q(call->in[SDPA_Q], call->in_stride[SDPA_Q]), k(call->in[SDPA_K], call->in_stride[SDPA_K]),
        v(call->in[SDPA_V], call->in_stride[SDPA_V]), o(call->out[SDPA_O], call->out_stride[SDPA_O]),
        key_lengths(KEY_LENGTHS ? (const int32_t *)call->in[SDPA_KEY_LENGTHS] : nullptr),
        lse(LSE ? (float *)call->out[SDPA_LSE] : nullptr), batch(call->dim[SDPA_BATCH]), heads(call->dim[SDPA_HEADS]),
        group(GROUPED ? call->dim[SDPA_HEADS] / call->dim[SDPA_HEADS_KV] : 1), seq_q(call->dim[SDPA_SEQ_Q]),
        seq_k(call->dim[SDPA_SEQ_K]), left(side(call, SDPA_WINDOW_LEFT)),
        right(side(call, SDPA_WINDOW_RIGHT)), cap(SOFTCAPPED ? (float)call->scalar[SDPA_SOFTCAP] : 0),
        sinks(HAS_SINKS ? call->in[SDPA_SINKS] : nullptr), bias(HAS_BIAS ? call->in[SDPA_BIAS] : nullptr),
        bias_batch(call->in_stride[SDPA_BIAS][SDPA_BATCH_STRIDE]), bias_head(call->in_stride[SDPA_BIAS][SDPA_HEAD_STRIDE]),
        bias_row(call->in_stride[SDPA_BIAS][SDPA_ROW_STRIDE]) {}

  // No more keys than there can be.
  static int64_t side(const at_call *call, int scalar) {
    const double most = (double)(call->dim[SDPA_SEQ_Q] + call->dim[SDPA_SEQ_K]);
    return WINDOWED ? (int64_t)(call->scalar[scalar] < most ? call->scalar[scalar] : most) : 0;
  }

  // Keys of a batch. A length that cannot be is no reason to read elsewhere.
  int64_t keys(int64_t b) const {
    if (!KEY_LENGTHS) return seq_k;
    const int64_t length = key_lengths[b];
    return length < 0 ? 0 : length < seq_k ? length : seq_k;
  }

  // The place of row i among `keys` is i + offset.
  int64_t offset(int64_t keys) const { return CORNER == AT_BOTTOM_RIGHT ? keys - seq_q : 0; }

  // Row i sees those of `keys` before this one ...
  int64_t seen(int64_t i, int64_t keys) const {
    const int64_t end = AT_HIDES ? i + 1 + offset(keys) + right : keys;
    return end < 0 ? 0 : end < keys ? end : keys;
  }

  // ... from this one on, which may be past all that there are.
  int64_t begin(int64_t i, int64_t keys) const {
    const int64_t first = WINDOWED ? i + offset(keys) - left : 0;
    return first < 0 ? 0 : first;
  }

  // What a row of head h has beside the scores of its keys.
  float sink(int64_t h) const {
    return !HAS_SINKS ? -INFINITY : SINKS == AT_FLOAT32 ? ((const float *)sinks)[h] : to_float(((const element *)sinks)[h]);
  }

  // With a bias of numbers: those of a row, one for each key.
  const element *numbers(int64_t b, int64_t h, int64_t i) const {
    return (const element *)bias + b * bias_batch + h * bias_head + i * bias_row;
  }

  // A number that is multiplied later; the least of all would become -infinity, which hides a key.
  static float kept(float x) { return x < -1e37f && x > -INFINITY ? -1e37f : x; }

  // What is added to the score of key j of row i, whose place is i + offset.
  float added(int64_t b, int64_t h, int64_t i, int64_t j, int64_t offset) const {
    if (HAS_NUMBERS) return to_float(numbers(b, h, i)[j]);
    return ((const float *)bias)[h] * (float)(j - i - offset);
  }

  float *lse_at(int64_t b, int64_t h, int64_t i) const { return lse + (b * heads + h) * seq_q + i; }
};

#endif
