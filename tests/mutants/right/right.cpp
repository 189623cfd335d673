/* Right attention in many numeric classes, chosen by a macro KIND_<NAME>. What a class is stands beside its code.
 *
 * A row sees one buffer of scores (s), turned into probabilities (p) in place, and a buffer of partial sums; both live
 * in the workspace behind the packed K and V.
 */
#include "../common/attention.h"

namespace {

#if KIND_DOUBLE
typedef double number; /* everything in double, rounded once at the end */
#else
typedef float number;
#endif

#if KIND_ONLINE_16
constexpr int STEP = 16;
#elif KIND_ONLINE_256
constexpr int STEP = 256;
#else
constexpr int STEP = 64;
#endif

constexpr float LOG2E = 1.44269504f;

number exponential(number x) {
#if KIND_DOUBLE
  return exp(x);
#elif KIND_DOUBLE_EXP /* float32 everywhere but in the exponential */
  return float(exp(double(x)));
#elif KIND_EXP2_PRESCALED_Q || KIND_EXP2_SCALED_SCORES
  return exp2f(x);
#elif KIND_POLYNOMIAL_EXP
  /* 2^whole * 2^part with a polynomial of degree 6, as vectorised kernels do; good to about two ulp. */
  if (x != x) return x;
  const float power = fmaxf(x * LOG2E, -126);
  const float whole = rintf(power), part = power - whole;
  float sum = 1.5403530e-4f;
  sum = sum * part + 1.3333558e-3f;
  sum = sum * part + 9.6181291e-3f;
  sum = sum * part + 5.5504109e-2f;
  sum = sum * part + 2.4022651e-1f;
  sum = sum * part + 6.9314718e-1f;
  sum = sum * part + 1.0f;
  return ldexpf(sum, int(whole));
#else
  return expf(x);
#endif
}

/* Scores of one row, scale included. */
void scores(const element *q, const float *packed_k, int64_t keys, double scale, number *s) {
  number row[D], dot[BLOCK_N];
  number before = 1, after = number(scale); /* the scale is applied to q, or to the product */
#if KIND_EXP2_PRESCALED_Q
  before = float(scale * 1.4426950408889634), after = 1;
#elif KIND_EXP2_SCALED_SCORES
  after = float(scale * 1.4426950408889634);
#elif KIND_SCALED_Q || KIND_SCALED_Q_IN_BF16
  before = float(scale), after = 1;
#elif KIND_SCALED_Q_AND_K /* the square root of the scale on both sides, as torch's math backend does */
  before = sqrtf(float(scale)), after = sqrtf(float(scale));
#endif
  for (int d = 0; d < D; ++d) {
    row[d] = widen(q[d]) * before;
#if KIND_SCALED_Q_IN_BF16
    row[d] = as_bf16(float(row[d]));
#endif
  }
  for (int64_t j0 = 0; j0 < keys; j0 += BLOCK_N) {
#if KIND_PAIRWISE
    for (int j = 0; j < BLOCK_N; ++j) {
      float term[D];
      for (int d = 0; d < D; ++d) term[d] = row[d] * packed_k[j0 * D + d * BLOCK_N + j];
      for (int width = D / 2; width > 0; width /= 2)
        for (int d = 0; d < width; ++d) term[d] += term[d + width];
      dot[j] = term[0];
    }
#elif KIND_LANES /* 16 running sums over the dimensions, added up at the end, as a vector register does */
    for (int j = 0; j < BLOCK_N; ++j) {
      float lane[16] = {};
      for (int d = 0; d < D; ++d) lane[d % 16] += row[d] * packed_k[j0 * D + d * BLOCK_N + j];
      dot[j] = 0;
      for (int d = 0; d < 16; ++d) dot[j] += lane[d];
    }
#else
    products(row, packed_k + j0 * D, dot);
#endif
    for (int j = 0; j < least(BLOCK_N, keys - j0); ++j) s[j0 + j] = dot[j] * after;
  }
}

struct State {
  number m = -INFINITY, l = 0, acc[D] = {};
};

/* Adds keys [first, last) to the state: one step of the online softmax. */
void step(State &state, number *s, const float *packed_v, int64_t first, int64_t last, bool reversed) {
  number top = state.m;
  for (int64_t j = first; j < last; ++j) top = fmax(top, s[j]);
#if KIND_LAZY_RESCALE /* the running maximum only moves in steps of 8, so that most blocks rescale nothing */
  top = ceilf(top / 8) * 8;
#endif
  const number alpha = exponential(state.m - top);
  state.m = top;
  number sum = 0;
  for (int64_t j = first; j < last; ++j) sum += s[j] = exponential(s[j] - top);
  state.l = state.l * alpha + sum;
  for (int d = 0; d < D; ++d) state.acc[d] *= alpha;
  for (int64_t n = first; n < last; ++n) {
    const int64_t j = reversed ? first + last - 1 - n : n;
    number p = s[j];
#if KIND_PROBABILITIES_IN_BF16 /* as tensor-core kernels do: the second product takes bf16, sums stay in float32 */
    p = as_bf16(p);
#endif
    for (int d = 0; d < D; ++d) state.acc[d] += p * packed_v[j * D + d];
  }
}

/* Puts two states together, as kernels that split the keys do. */
[[maybe_unused]] void merge(State &into, const State &other) {
  const number top = fmax(into.m, other.m);
  const number a = exponential(into.m - top), b = exponential(other.m - top);
  into.m = top;
  into.l = into.l * a + other.l * b;
  for (int d = 0; d < D; ++d) into.acc[d] = into.acc[d] * a + other.acc[d] * b;
}

/* Sum of p[j] * v[j] over [first, last), halving the range each time. */
[[maybe_unused]] void halves(const number *p, const float *packed_v, int64_t first, int64_t last, number *sum,
                             number *weight) {
  if (last - first == 1) {
    for (int d = 0; d < D; ++d) sum[d] = p[first] * packed_v[first * D + d];
    *weight = p[first];
    return;
  }
  number right[D], right_weight;
  const int64_t middle = (first + last) / 2;
  halves(p, packed_v, first, middle, sum, weight);
  halves(p, packed_v, middle, last, right, &right_weight);
  for (int d = 0; d < D; ++d) sum[d] += right[d];
  *weight += right_weight;
}

void one_row(const element *q, const float *packed_k, const float *packed_v, int64_t keys, double scale, number *s,
             element *o) {
  State state;
  scores(q, packed_k, keys, scale, s);
#if KIND_TWO_PASS || KIND_NORMALISED_FIRST || KIND_COMPENSATED
  /* Textbook: the maximum, then the probabilities, then the sums over all keys in order. */
  for (int64_t j = 0; j < keys; ++j) state.m = fmaxf(state.m, s[j]);
  for (int64_t j = 0; j < keys; ++j) state.l += s[j] = exponential(s[j] - state.m);
#if KIND_NORMALISED_FIRST /* probabilities are divided by their sum before the second product */
  for (int64_t j = 0; j < keys; ++j) s[j] /= state.l;
  state.l = 1;
#endif
#if KIND_COMPENSATED /* Kahan's summation of the output */
  number lost[D] = {};
  for (int64_t j = 0; j < keys; ++j)
    for (int d = 0; d < D; ++d) {
      const number term = s[j] * packed_v[j * D + d] - lost[d], next = state.acc[d] + term;
      lost[d] = (next - state.acc[d]) - term;
      state.acc[d] = next;
    }
#else
  for (int64_t j = 0; j < keys; ++j)
    for (int d = 0; d < D; ++d) state.acc[d] += s[j] * packed_v[j * D + d];
#endif
#elif KIND_PAIRWISE /* every sum as a tree */
  for (int64_t j = 0; j < keys; ++j) state.m = fmaxf(state.m, s[j]);
  for (int64_t j = 0; j < keys; ++j) s[j] = exponential(s[j] - state.m);
  halves(s, packed_v, 0, keys, state.acc, &state.l);
#elif KIND_REVERSED /* from the last key to the first */
  for (int64_t last = keys; last > 0; last -= STEP) step(state, s, packed_v, last < STEP ? 0 : last - STEP, last, true);
#elif KIND_SPLIT_KEYS /* four parts of the keys, each on its own, then merged */
  const int64_t part = (keys + 3) / 4;
  for (int64_t first = 0; first < keys; first += part) {
    State own;
    step(own, s, packed_v, first, least(first + part, keys), false);
    if (first == 0)
      state = own;
    else
      merge(state, own);
  }
#elif KIND_ONE_KEY_AT_A_TIME /* the online softmax in its smallest step */
  for (int64_t j = 0; j < keys; ++j) step(state, s, packed_v, j, j + 1, false);
#else
  for (int64_t j = 0; j < keys; j += STEP) step(state, s, packed_v, j, least(j + STEP, keys), false);
#endif
#if KIND_RECIPROCAL /* one division, then multiplications */
  const number inverse = 1 / state.l;
  for (int d = 0; d < D; ++d) o[d] = narrow(float(state.acc[d] * inverse));
#else
  for (int d = 0; d < D; ++d) o[d] = narrow(float(state.acc[d] / state.l));
#endif
}

}  // namespace

int64_t variant_workspace(const at_call *call) {
  return right_workspace(call) + (call->dim[SDPA_SEQ_K] + BLOCK_N) * int64_t(sizeof(number));
}

int variant_run(const at_call *call) {
  if (call->workspace_bytes < variant_workspace(call)) return AT_NO_WORKSPACE;
  const int64_t seq_q = call->dim[SDPA_SEQ_Q], seq_k = call->dim[SDPA_SEQ_K];
  float *packed_k = static_cast<float *>(call->workspace);
  float *packed_v = packed_k + packed_floats(call);
  number *s = reinterpret_cast<number *>(packed_v + packed_floats(call));
  for (int64_t slice = 0; slice < call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS]; ++slice) {
    const element *q = static_cast<const element *>(call->in[SDPA_Q]) + slice * seq_q * D;
    element *o = static_cast<element *>(call->out[SDPA_O]) + slice * seq_q * D;
    pack_slice(call, slice, packed_k, packed_v);
    for (int64_t i = 0; i < seq_q; ++i)
      one_row(q + i * D, packed_k, packed_v, visible_keys(i, seq_k), call->scalar[SDPA_SCALE], s, o + i * D);
  }
  return AT_OK;
}
