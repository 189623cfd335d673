// Attention in plain C++, the textbook algorithm: one query row at a time, keys in blocks, online softmax. Read this
// one first; cpu_simd.cpp computes the same with vectors, register tiles and packing.
//
// Parameters:
//   BLOCK_N               keys a block
//   UNROLL                independent partial sums of a dot product: a sum has to wait for the one before it
//   EXP                   LIBM: expf; POLY5: a polynomial of degree 5 (relative error 1.1e-7)
//   THREADS, SYNC_POLICY  how many threads, and how they meet: cpu_pool.h
#include <math.h>
#include <string.h>

#include "cpu_call.h"
#include "cpu_pool.h"

static_assert(HEAD_DIM % UNROLL == 0, "a row is whole groups of partial sums");

#if DTYPE == AT_BFLOAT16
static inline element from_float(float x) {  // to nearest, ties to even
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return (element)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
#elif DTYPE == AT_FLOAT16
static inline element from_float(float x) {  // to nearest, ties to even
  const _Float16 half = (_Float16)x;
  element bits;
  memcpy(&bits, &half, 2);
  return bits;
}
#else
static inline element from_float(float x) { return x; }
#endif

// e^x for x <= 0.
static inline float exponential(float x) {
#if defined(EXP_POLY5)
  float y = x * 1.44269504f;
  y = y > -126.0f ? y : -126.0f;
  const float n = (float)(int)(y - 0.5f);  // the nearest integer: the cast rounds towards zero
  const float f = y - n;
  const float power =
      1.0f + f * (0.693147004f + f * (0.240222424f + f * (0.0555073358f + f * (0.00967151299f + f * 0.00132647273f))));
  const uint32_t bits = (uint32_t)((int)n + 127) << 23;
  float scale;
  memcpy(&scale, &bits, 4);
  return x == x ? power * scale : x;  // of NaN the integer is anything
#else
  return expf(x);
#endif
}

static float dot(const float *q, const element *k) {
  float partial[UNROLL] = {};
  for (int d = 0; d < HEAD_DIM; d += UNROLL)
    for (int u = 0; u < UNROLL; ++u) partial[u] += q[d + u] * to_float(k[d + u]);
  float sum = 0;
  for (int u = 0; u < UNROLL; ++u) sum += partial[u];
  return sum;
}

// One row: the keys from `begin` on and before `keys` are visible to it, the rows of K and V lie at the strides of `call`.
// `sink` is one more score, without a value. `added` has what is added to a key's score. Returns its log-sum-exp.
template <class Added>
static float attend(const Attention &call, const float *q, const element *k, const element *v, element *o, int64_t begin,
                    int64_t keys, float sink, const Added &added) {
  float output[HEAD_DIM] = {}, scores[BLOCK_N];
  float row_max = -INFINITY, row_sum = 0;
  for (int64_t n0 = begin; n0 < keys; n0 += BLOCK_N) {
    const int count = (int)(keys - n0 < BLOCK_N ? keys - n0 : BLOCK_N);
    float new_max = row_max;
    for (int n = 0; n < count; ++n) {
      scores[n] = dot(q, k + (n0 + n) * row_step(call.k.row));
      if (SOFTCAPPED) scores[n] = call.cap * tanhf(scores[n] / call.cap);
      if (HAS_BIAS) scores[n] += added(n0 + n);
      new_max = scores[n] > new_max ? scores[n] : new_max;
    }
    const float shift = HAS_NUMBERS && new_max == -INFINITY ? 0 : new_max;  // of a row that has seen nothing yet
    // What was summed so far was relative to the old maximum.
    const float decay = n0 == begin ? 0 : exponential(row_max - shift);
    row_max = new_max;
    row_sum *= decay;
    for (int d = 0; d < HEAD_DIM; ++d) output[d] *= decay;
    for (int n = 0; n < count; ++n) scores[n] = exponential(scores[n] - shift);
    for (int n = 0; n < count; ++n) {
      row_sum += scores[n];
      for (int d = 0; d < HEAD_DIM; ++d) output[d] += scores[n] * to_float(v[(n0 + n) * row_step(call.v.row) + d]);
    }
  }
  const bool blind = AT_MAY_BE_BLIND && (keys <= begin || (HAS_NUMBERS && row_max == -INFINITY && row_sum == row_sum));
  float sum = blind ? 1 : row_sum;
  if (HAS_NUMBERS && blind)
    for (int d = 0; d < HEAD_DIM; ++d) output[d] = 0;
  if (HAS_SINKS && blind) row_max = sink;
  if (HAS_SINKS && !blind) {
    const float most = sink > row_max ? sink : row_max, decay = expf(row_max - most);
    sum = sum * decay + expf(sink - most);
    for (int d = 0; d < HEAD_DIM; ++d) output[d] *= decay;
    row_max = most;
  }
  for (int d = 0; d < HEAD_DIM; ++d) o[d] = from_float(output[d] / sum);
  return row_max + logf(sum);
}

// Each thread takes an equal run of rows; with a causal mask every THREADS-th row, because later rows see more keys.
static void run_thread(void *context, int thread) {
  const at_call &arguments = *(const at_call *)context;
  const Attention call(&arguments);
  const int64_t rows = call.batch * call.heads * call.seq_q;
  const int64_t begin = CAUSAL ? thread : rows * thread / THREADS;
  const int64_t end = CAUSAL ? rows : rows * (thread + 1) / THREADS;
  for (int64_t row = begin; row < end; row += CAUSAL ? THREADS : 1) {
    const int64_t slice = row / call.seq_q, i = row % call.seq_q, b = slice / call.heads, h = slice % call.heads;
    const element *from = call.q.at(b, h, i);
    float q[HEAD_DIM];
    for (int d = 0; d < HEAD_DIM; ++d) q[d] = to_float(from[d]) * (float)arguments.scalar[SDPA_SCALE];
    const int64_t offset = call.offset(call.keys(b));
    const auto added = [&](int64_t j) { return HAS_BIAS ? call.added(b, h, i, j, offset) : 0; };
    const float lse = attend(call, q, call.k.at(b, h / call.group, 0), call.v.at(b, h / call.group, 0),
                             call.o.at(b, h, i), call.begin(i, call.keys(b)), call.seen(i, call.keys(b)), call.sink(h), added);
    if (LSE) *call.lse_at(b, h, i) = lse;
  }
}

extern "C" int64_t variant_workspace(const at_call *) { return 0; }

extern "C" int variant_run(const at_call *call) { return pool_run(run_thread, (void *)call); }
