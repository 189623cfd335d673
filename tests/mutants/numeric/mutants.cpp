/* Numerically wrong attention on the CPU: the mutations are in mutated_row.h. */
#include "../common/attention.h"

#define ROW_CODE static inline
#include "mutated_row.h"

namespace {

/* K and V of one head, packed as attention.h describes. */
struct Packed {
  float *k, *v;

  void fill(const Head &head, int64_t seq_k) {
    for (int64_t j = 0; j < (seq_k + BLOCK_N - 1) / BLOCK_N * BLOCK_N; ++j) {
      float *column = k + j / BLOCK_N * BLOCK_N * D + j % BLOCK_N;
      for (int d = 0; d < D; ++d) column[d * BLOCK_N] = j < seq_k ? key_element(head, seq_k, j, d) : 0;
      for (int d = 0; d < D; ++d) v[j * D + d] = j < seq_k ? value_element(head, j, d) : 0;
    }
  }

  void products(const float *q, int64_t j0, float *dot, int dims) const { ::products(q, k + j0 * D, dot, dims); }
  float value(int64_t j, int d) const { return v[j * D + d]; }
};

}  // namespace

int64_t variant_workspace(const at_call *call) { return right_workspace(call); }

int variant_run(const at_call *call) {
  if (call->workspace_bytes < right_workspace(call)) return AT_NO_WORKSPACE;
  const Shape shape = {call->dim[SDPA_BATCH], call->dim[SDPA_HEADS], call->dim[SDPA_SEQ_Q], call->dim[SDPA_SEQ_K],
                       float(call->scalar[SDPA_SCALE])};
  const element *q = static_cast<const element *>(call->in[SDPA_Q]);
  const element *k = static_cast<const element *>(call->in[SDPA_K]);
  const element *v = static_cast<const element *>(call->in[SDPA_V]);
  Packed packed = {static_cast<float *>(call->workspace), static_cast<float *>(call->workspace) + packed_floats(call)};
  for (int64_t slice = 0; slice < shape.batch * shape.heads; ++slice) {
    const int64_t b = slice / shape.heads, h = slice % shape.heads;
    packed.fill(head_at(shape, k, v, b, h), shape.seq_k);
    float acc[D] = {};
    for (int64_t i = 0; i < shape.seq_q; ++i)
      mutated_row(shape, packed, q + slice * shape.seq_q * D, b, h, i, acc, static_cast<element *>(call->out[SDPA_O]));
  }
  return AT_OK;
}
