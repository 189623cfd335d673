// A row at a time, in float.
#include "sdpa_fp8.h"

#include "cpu_element.h"

#include <math.h>
#include <string.h>

namespace {

float e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const float size = (bits & 127) == 127 ? NAN
                     : exponent          ? ldexpf(1 + fraction / 8.0f, exponent - 7)
                                         : ldexpf(fraction / 8.0f, -6);
  return bits >> 7 ? -size : size;
}

const uint8_t *row_of(const at_call *call, int tensor, int64_t batch, int64_t head, int64_t row) {
  const int64_t *stride = call->in_stride[tensor];
  const int bytes = FP8_CACHE && tensor == SDPA_Q ? sizeof(element) : 1;
  return (const uint8_t *)call->in[tensor] + bytes * (batch * stride[0] + head * stride[1] + row * stride[2]);
}

float query(const uint8_t *row, int column) {
#if FP8_CACHE
  return to_float(((const element *)row)[column]);
#else
  return e4m3(row[column]);
#endif
}

float descale(const at_call *call, int which, int64_t batch, int64_t head) {
  return ((const float *)call->in[which])[batch * call->dim[SDPA_HEADS_KV] + head];
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *call) { return call->dim[SDPA_SEQ_K] * (int64_t)sizeof(float); }

extern "C" int variant_run(const at_call *call) {
  if (call->workspace_bytes < variant_workspace(call)) return AT_NO_WORKSPACE;
  float *weight = (float *)call->workspace, sums[HEAD_DIM];
  const int64_t *dim = call->dim, group = dim[SDPA_HEADS] / dim[SDPA_HEADS_KV];
  for (int64_t b = 0; b < dim[SDPA_BATCH]; b++)
    for (int64_t h = 0; h < dim[SDPA_HEADS]; h++)
      for (int64_t i = 0; i < dim[SDPA_SEQ_Q]; i++) {
        const int64_t of = h / group, ends = KEY_LENGTHS ? ((const int32_t *)call->in[SDPA_FP8_KEY_LENGTHS])[b] : dim[SDPA_SEQ_K];
        const int64_t place = CORNER == AT_BOTTOM_RIGHT ? i + ends - dim[SDPA_SEQ_Q] : i;
        const int64_t seen = CAUSAL && place + 1 < ends ? (place < 0 ? 0 : place + 1) : ends;
        const float scale = (float)call->scalar[SDPA_SCALE] * descale(call, SDPA_FP8_Q_DESCALE, b, of) *
                            descale(call, SDPA_FP8_K_DESCALE, b, of);
        const uint8_t *q = row_of(call, SDPA_Q, b, h, i);
        float most = -INFINITY, total = 0;
        for (int64_t j = 0; j < seen; j++) {
          const uint8_t *k = row_of(call, SDPA_K, b, of, j);
          float score = 0;
          for (int d = 0; d < HEAD_DIM; d++) score += query(q, d) * e4m3(k[d]);
          weight[j] = score * scale;
          most = fmaxf(most, weight[j]);
        }
        memset(sums, 0, sizeof sums);
        for (int64_t j = 0; j < seen; j++) {
          const float p = expf(weight[j] - most);
          const uint8_t *v = row_of(call, SDPA_V, b, of, j);
          total += p;
          for (int d = 0; d < HEAD_DIM; d++) sums[d] += p * e4m3(v[d]);
        }
        const int64_t *stride = call->out_stride[SDPA_O];
        element *o = (element *)call->out[SDPA_O] + b * stride[0] + h * stride[1] + i * stride[2];
        const float factor = seen ? descale(call, SDPA_FP8_V_DESCALE, b, of) / total : 0;
        for (int d = 0; d < HEAD_DIM; d++) o[d] = from_float(sums[d] * factor);
      }
  return AT_OK;
}
