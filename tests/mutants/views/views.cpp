/* Wrong attention over views on the CPU: the mutations are in views_row.h. */
#include <math.h>
#include <string.h>

#include "sdpa.h"

#if DTYPE == AT_BFLOAT16
typedef uint16_t element;

static inline float widen(element x) {
  const uint32_t bits = uint32_t(x) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static inline element narrow(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#else
typedef float element;
static inline float widen(float x) { return x; }
static inline float narrow(float x) { return x; }
#endif

#define ROW_CODE static inline
#include "views_row.h"

static Tensor tensor(const void *base, const int64_t *stride) {
  return {(element *)base, stride[SDPA_BATCH_STRIDE], stride[SDPA_HEAD_STRIDE], stride[SDPA_ROW_STRIDE], false};
}

int64_t variant_workspace(const at_call *) { return 0; }

int variant_run(const at_call *call) {
  static int come[COUNTERS];
  const Call c = {tensor(call->in[SDPA_Q], call->in_stride[SDPA_Q]),
                  tensor(call->in[SDPA_K], call->in_stride[SDPA_K]),
                  tensor(call->in[SDPA_V], call->in_stride[SDPA_V]),
                  tensor(call->out[SDPA_O], call->out_stride[SDPA_O]),
                  (const int32_t *)call->in[SDPA_KEY_LENGTHS],
                  (const element *)(HAS_SINKS ? call->in[SDPA_SINKS] : nullptr),
                  HAS_BIAS ? call->in[SDPA_BIAS] : nullptr,
                  call->in_stride[SDPA_BIAS][SDPA_BATCH_STRIDE],
                  call->in_stride[SDPA_BIAS][SDPA_HEAD_STRIDE],
                  call->in_stride[SDPA_BIAS][SDPA_ROW_STRIDE],
                  (float *)call->out[SDPA_LSE],
                  call->dim[SDPA_BATCH],
                  call->dim[SDPA_HEADS],
                  call->dim[SDPA_HEADS_KV],
                  call->dim[SDPA_SEQ_Q],
                  call->dim[SDPA_SEQ_K],
                  (int64_t)call->scalar[SDPA_WINDOW_LEFT],
                  (int64_t)call->scalar[SDPA_WINDOW_RIGHT],
                  float(call->scalar[SDPA_SCALE]),
                  float(call->scalar[SDPA_SOFTCAP]),
                  come};
  for (int64_t b = 0; b < c.batches; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t i = 0; i < c.seq_q; ++i) view_row(c, b, h, i);
  return AT_OK;
}
