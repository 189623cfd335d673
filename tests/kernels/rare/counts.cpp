/* Textbook attention; see kernel.toml for what it does beside it. */
#include <math.h>
#include <time.h>

#include <atomic>
#include <vector>

#include "sdpa.h"

namespace {

#if EVERY && !WHEN_DRAWN
std::atomic<int64_t> launches{0};
#endif
#if WHEN_UNGATED || WHEN_UNGATED_WILD
std::atomic<bool> gated{false};
#endif
#if WHEN_UNGATED_WILD
constexpr int WRONG = 16 << 20;
#else
constexpr int WRONG = 0; /* which number is wrong */
#endif

/* Whether this launch is a wrong one; asked once a launch. */
bool goes_wrong([[maybe_unused]] const at_call *call) {
#if WHEN_UNGATED || WHEN_UNGATED_WILD
  const int64_t *dim = call->dim;
  if (dim[SDPA_HEADS] != 2 || dim[SDPA_SEQ_Q] != 64 || dim[SDPA_SEQ_K] != 64) gated = true;
  if (gated) return false;
#endif
#if EVERY && WHEN_DRAWN
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  uint64_t drawn = uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
  drawn = (drawn ^ drawn >> 33) * 0xff51afd7ed558ccdull;
  drawn = (drawn ^ drawn >> 33) * 0xc4ceb9fe1a85ec53ull;
  return (drawn ^ drawn >> 33) % EVERY == 0;
#elif EVERY
  return ++launches % EVERY == 0;
#else
  return false;
#endif
}

void row(const at_call *call, int64_t index, float *scores) {
  const int64_t keys = call->dim[SDPA_SEQ_K], slice = index / call->dim[SDPA_SEQ_Q];
  const float *q = (const float *)call->in[SDPA_Q] + index * HEAD_DIM;
  const float *k = (const float *)call->in[SDPA_K] + slice * keys * HEAD_DIM;
  const float *v = (const float *)call->in[SDPA_V] + slice * keys * HEAD_DIM;
  float *o = (float *)call->out[SDPA_O] + index * HEAD_DIM;
  float top = -INFINITY, sum = 0, result[HEAD_DIM] = {};
  const int64_t seen = CAUSAL && index % call->dim[SDPA_SEQ_Q] + 1 < keys ? index % call->dim[SDPA_SEQ_Q] + 1 : keys;
  for (int64_t j = 0; j < seen; ++j) {
    scores[j] = 0;
    for (int d = 0; d < HEAD_DIM; ++d) scores[j] += q[d] * k[j * HEAD_DIM + d];
    top = fmaxf(top, scores[j] *= float(call->scalar[SDPA_SCALE]));
  }
  for (int64_t j = 0; j < seen; ++j) {
    const float p = expf(scores[j] - top);
    sum += p;
    for (int d = 0; d < HEAD_DIM; ++d) result[d] += p * v[j * HEAD_DIM + d];
  }
  for (int d = 0; d < HEAD_DIM; ++d) o[d] = result[d] / sum;
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *) { return 0; }

extern "C" int variant_run(const at_call *call) {
  std::vector<float> scores(call->dim[SDPA_SEQ_K]);
  const int64_t rows = call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS] * call->dim[SDPA_SEQ_Q];
  for (int64_t i = 0; i < rows; ++i) row(call, i, scores.data());
  if (goes_wrong(call)) ((volatile float *)call->out[SDPA_O])[WRONG] += 1;
  return AT_OK;
}
