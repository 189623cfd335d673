// Right attention on CUDA in many numeric classes, chosen by a macro KIND_<NAME>; a thread a row. What a class is
// stands beside its code. None may be rejected. Sums are in float32 everywhere.
#include "cuda_element.h"
#include "sdpa_cuda.h"

constexpr int THREADS = 32, D = HEAD_DIM;
constexpr float LOG2E = 1.44269504f;

#if KIND_ONE_KEY_AT_A_TIME
constexpr int STEP = 1;
#elif KIND_ONLINE_16
constexpr int STEP = 16;
#elif KIND_ONLINE_256
constexpr int STEP = 256;
#else
constexpr int STEP = 64;
#endif

AT_GEOMETRY = {.abi_version = AT_ABI_VERSION,
               .args_bytes = sizeof(sdpa_args),
               .threads = THREADS,
               .rows = THREADS,
               .split = 1,
               .cluster = 1,
               .head_dim = HEAD_DIM};

struct Head {
  const element *k, *v;
};

struct State {
  float m = -INFINITY, l = 0, acc[D] = {};
};

static __device__ float rounded(float x) { return to_float(from_float(x)); }

// e^x, or 2^x where the scores come in powers of two.
static __device__ float exponential(float x) {
#if KIND_EXP2_PRESCALED_Q || KIND_EXP2_SCALED_SCORES
  return exp2f(x);
#elif KIND_EX2_APPROX  // the special function unit
  return exp2_approx(x);
#elif KIND_FAST_EXP
  return __expf(x);
#elif KIND_POLYNOMIAL_EXP2  // 2^whole * 2^part with a polynomial of degree 5, as kernels do that spare that unit
  if (x != x) return x;
  const float power = fmaxf(x, -126), whole = rintf(power), part = power - whole;
  float sum = 1.3333558e-3f;
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

// The query as the products take it, and what is left to multiply the products by.
static __device__ float load_query(float *q, const element *row, const sdpa_args &args) {
  float before = 1, after = args.scale;
#if KIND_EXP2_PRESCALED_Q
  before = args.scale_log2, after = 1;
#elif KIND_EXP2_SCALED_SCORES || KIND_EX2_APPROX || KIND_POLYNOMIAL_EXP2
  after = args.scale_log2;
#elif KIND_SCALED_Q || KIND_SCALED_Q_IN_ELEMENT
  before = args.scale, after = 1;
#endif
  for (int d = 0; d < D; ++d) {
    q[d] = to_float(row[d]) * before;
#if KIND_SCALED_Q_IN_ELEMENT
    q[d] = rounded(q[d]);
#endif
  }
  return after;
}

// The product is rounded before the maximum is taken from it: fused with that, the largest score would lie a rounding of its
// own below or above its maximum, which for scores of 2^32 is hundreds.
static __device__ float score(const float *q, const element *k, float scale) {
#if KIND_PAIRWISE  // every sum as a tree
  float term[D];
  for (int d = 0; d < D; ++d) term[d] = q[d] * to_float(k[d]);
  for (int width = D / 2; width > 0; width /= 2)
    for (int d = 0; d < width; ++d) term[d] += term[d + width];
  return __fmul_rn(term[0], scale);
#elif KIND_LANES  // eight running sums, added up at the end, as threads that share a row do
  float lane[8] = {}, sum = 0;
  for (int d = 0; d < D; ++d) lane[d % 8] += q[d] * to_float(k[d]);
  for (int d = 0; d < 8; ++d) sum += lane[d];
  return __fmul_rn(sum, scale);
#else
  float sum = 0;
  for (int d = 0; d < D; ++d) sum += q[d] * to_float(k[d]);
#if KIND_SCORES_IN_ELEMENT  // as kernels do that keep the scores in memory between their two products
  const float s = __fmul_rn(sum, scale);
  return fabsf(s) < 6e4f ? rounded(s) : s;  // those that float16 has no room for stay as they are
#else
  return __fmul_rn(sum, scale);
#endif
#endif
}

// A probability as the second product takes it; the denominator takes it as it is.
static __device__ float for_product(float p) {
#if KIND_PROBABILITIES_IN_ELEMENT || KIND_SCORES_IN_ELEMENT || KIND_NORMALISED_FIRST  // as tensor cores take them
  return rounded(p);
#else
  return p;
#endif
}

// Adds p[0 .. count - 1] and their values to the state; `turn` is 1, or -1 from the last key to the first.
static __device__ void add(State &state, const float *p, const element *v, int count, int turn) {
#if KIND_PAIRWISE
  float term[STEP];
  for (int d = -1; d < D; ++d) {
    for (int j = 0; j < STEP; ++j) term[j] = j < count ? p[j] * (d < 0 ? 1 : to_float(v[j * D + d])) : 0;
    for (int width = STEP / 2; width > 0; width /= 2)
      for (int j = 0; j < width; ++j) term[j] += term[j + width];
    (d < 0 ? state.l : state.acc[d]) += term[0];
  }
#else
  for (int n = 0; n < count; ++n) {
    const int j = turn > 0 ? n : count - 1 - n;
    state.l += p[j];
    for (int d = 0; d < D; ++d) state.acc[d] += for_product(p[j]) * to_float(v[j * D + d]);
  }
#endif
}

// One step of the online softmax: the keys first .. last - 1.
static __device__ void step(State &state, const float *q, float scale, const Head &head, int first, int last,
                            int turn) {
  float p[STEP], top = state.m;
  for (int j = first; j < last; ++j) top = fmaxf(top, p[j - first] = score(q, head.k + (int64_t)j * D, scale));
#if KIND_LAZY_RESCALE  // the maximum only moves in steps of 8, so that most blocks rescale nothing
  top = ceilf(top / 8) * 8;
#endif
  const float alpha = exponential(state.m - top);
  state.m = top;
  state.l *= alpha;
  for (int d = 0; d < D; ++d) state.acc[d] *= alpha;
  for (int j = 0; j < last - first; ++j) p[j] = exponential(p[j] - top);
  add(state, p, head.v + (int64_t)first * D, last - first, turn);
}

// Puts two states together, as kernels that split the keys do.
[[maybe_unused]] static __device__ void merge(State &into, const State &other) {
  const float top = fmaxf(into.m, other.m), a = exponential(into.m - top), b = exponential(other.m - top);
  into.m = top;
  into.l = into.l * a + other.l * b;
  for (int d = 0; d < D; ++d) into.acc[d] = into.acc[d] * a + other.acc[d] * b;
}

// The textbook: the maximum over all keys, their sum, then the output.
[[maybe_unused]] static __device__ void in_passes(State &state, const float *q, float scale, const Head &head,
                                                  int keys) {
  for (int j = 0; j < keys; ++j) state.m = fmaxf(state.m, score(q, head.k + (int64_t)j * D, scale));
  float sum = 0;
  // A compiler may round a score in another way where it is computed again: none is above the maximum.
  const auto below = [&](int j) {
    const float x = score(q, head.k + (int64_t)j * D, scale) - state.m;
    return x > 0 ? 0 : x;
  };
  for (int j = 0; j < keys; ++j) sum += exponential(below(j));
  for (int j = 0; j < keys; ++j) {
    float p = exponential(below(j));
#if KIND_NORMALISED_FIRST  // probabilities are divided by their sum, and rounded, before the second product
    p /= sum;
#endif
    for (int d = 0; d < D; ++d) state.acc[d] += for_product(p) * to_float(head.v[(int64_t)j * D + d]);
  }
#if KIND_NORMALISED_FIRST
  state.l = 1;
#else
  state.l = sum;
#endif
}

static __device__ State attend(const float *q, float scale, const Head &head, int keys) {
  State state;
#if KIND_TWO_PASS || KIND_NORMALISED_FIRST
  in_passes(state, q, scale, head, keys);
#elif KIND_REVERSED
  for (int last = keys; last > 0; last -= STEP) step(state, q, scale, head, max(0, last - STEP), last, -1);
#elif KIND_SPLIT_KEYS  // four parts of the keys, each on its own, then merged
  const int part = (keys + 3) / 4;
  for (int first = 0; first < keys; first += part) {
    State own;
    const int end = min(first + part, keys);
    for (int j = first; j < end; j += STEP) step(own, q, scale, head, j, min(j + STEP, end), 1);
    merge(state, own);
  }
#else
  for (int j = 0; j < keys; j += STEP) step(state, q, scale, head, j, min(j + STEP, keys), 1);
#endif
  return state;
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ sdpa_args args) {
  const int blocks = (args.seq_q + THREADS - 1) / THREADS, row = blockIdx.x % blocks * THREADS + threadIdx.x;
  const int64_t slice = blockIdx.x / blocks, keys = slice * args.seq_k * D, mine = (slice * args.seq_q + row) * D;
  if (row >= args.seq_q) return;
  float q[D];
  const float scale = load_query(q, (const element *)args.q + mine, args);
  const Head head = {(const element *)args.k + keys, (const element *)args.v + keys};
  const State state = attend(q, scale, head, CAUSAL ? min(row + 1, args.seq_k) : args.seq_k);
  element *o = (element *)args.o + mine;
#if KIND_RECIPROCAL  // one division, then multiplications
  const float inverse = 1 / state.l;
  for (int d = 0; d < D; ++d) o[d] = from_float(state.acc[d] * inverse);
#else
  for (int d = 0; d < D; ++d) o[d] = from_float(state.acc[d] / state.l);
#endif
}
