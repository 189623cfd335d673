/* Numerically wrong attention: blocked online softmax with one mutation, chosen by a macro MUTANT_<NAME>.
 *
 * Every mutation is one marked #if. With MUTANT_NONE nothing is mutated and the result is right.
 * ../expected.toml says what each mutant does and which check catches it.
 */
#include "../common/attention.h"

namespace {

float scale_of(const at_call *call) {
  float scale = float(call->scalar[SDPA_SCALE]);
#if MUTANT_SCALE_OFF
  scale *= 1.001f;
#elif MUTANT_SCALE_ONE_OVER_HEAD_DIM
  scale = 1.0f / D;
#elif MUTANT_SCALE_MISSING
  scale = 1;
#elif MUTANT_SCALE_TWICE
  scale *= scale;
#elif MUTANT_SCALE_OF_HEAD_DIM_64
  scale = 0.125f;
#endif
  return scale;
}

/* Keys that row i sees. */
int64_t keys_of_row(int64_t i, int64_t seq_q, int64_t seq_k) {
  int64_t keys = seq_k;
#if MUTANT_DROP_TAIL_KEY
  keys = seq_k - 1;
#elif MUTANT_DROP_RAGGED_TAIL
  keys = seq_k - seq_k % BLOCK_N;
#elif MUTANT_AT_MOST_2048_KEYS
  keys = least(seq_k, 2048);
#elif MUTANT_SINGLE_KEY_IGNORED
  if (seq_k == 1) keys = 0;
#endif
#if CAUSAL
  int64_t last = i;
#if MUTANT_CAUSAL_ONE_TOO_MANY
  last = i + 1;
#elif MUTANT_CAUSAL_ONE_TOO_FEW
  last = i - 1;
#elif MUTANT_CAUSAL_BOTTOM_RIGHT
  last = i + seq_k - seq_q;
#elif MUTANT_CAUSAL_DROPS_DIAGONAL_BLOCK
  last = i / BLOCK_N * BLOCK_N - 1;
#elif MUTANT_CAUSAL_IGNORED
  last = seq_k - 1;
#elif MUTANT_CAUSAL_BY_TILES_OF_16
  last = i | 15;
#endif
  keys = least(keys, last < 0 ? 0 : last + 1);
#endif
  (void)i, (void)seq_q;
  return keys;
}

/* 2^whole times a polynomial for 2^part: `degree` terms of the series of 2^x about 0. */
[[maybe_unused]] float coarse_exp(float x, int degree) {
  constexpr float SERIES[] = {1, 0.6931472f, 0.2402265f, 0.05550411f, 0.009618129f, 0.001333356f};
  const float power = fmaxf(x * 1.442695f, -126);
  const float whole = rintf(power), part = power - whole;
  float sum = 0;
  for (int i = degree; i >= 0; --i) sum = sum * part + SERIES[i];
  return ldexpf(sum, int(whole));
}

float exponential(float x) {
#if MUTANT_EXP_DEGREE_2
  return coarse_exp(x, 2);
#elif MUTANT_EXP_DEGREE_3
  return coarse_exp(x, 3);
#elif MUTANT_EXP_DEGREE_4
  return coarse_exp(x, 4);
#elif MUTANT_EXP_DEGREE_5
  return coarse_exp(x, 5);
#elif MUTANT_EXP_SCHRAUDOLPH
  /* The classic trick: write the scaled argument straight into the exponent and mantissa bits. */
  const int32_t bits = x < -87 ? 0 : int32_t(12102203.0f * x) + 1064866805;
  float value;
  memcpy(&value, &bits, 4);
  return value;
#elif MUTANT_EXP2_WITHOUT_LOG2E
  return exp2f(x);
#else
  return expf(x);
#endif
}

/* K and V of one head, packed as attention.h describes. */
void pack_head(const at_call *call, int64_t b, int64_t h, float *packed_k, float *packed_v) {
  const int64_t heads = call->dim[SDPA_HEADS], seq_k = call->dim[SDPA_SEQ_K];
  int64_t batch_of = b, head_of = h, stride = seq_k * D;
#if MUTANT_BATCHES_SWAPPED
  batch_of = call->dim[SDPA_BATCH] - 1 - b;
#elif MUTANT_HEAD_ZERO_FOR_ALL
  head_of = 0;
#elif MUTANT_KV_HEADS_SHIFTED
  head_of = (h + 1) % heads;
#elif MUTANT_KV_STRIDE_OF_SEQ_Q
  stride = call->dim[SDPA_SEQ_Q] * D;
#endif
  const element *k = static_cast<const element *>(call->in[SDPA_K]) + (batch_of * heads + head_of) * stride;
  const element *v = static_cast<const element *>(call->in[SDPA_V]) + (batch_of * heads + head_of) * stride;
#if MUTANT_K_AND_V_SWAPPED
  pack(v, k, seq_k, packed_k, packed_v);
#elif MUTANT_V_IS_K
  pack(k, k, seq_k, packed_k, packed_v);
#else
  pack(k, v, seq_k, packed_k, packed_v);
#endif
#if MUTANT_K_SHIFTED
  for (int64_t j = 0; j + 1 < seq_k; ++j)
    for (int d = 0; d < D; ++d)
      packed_k[(j / BLOCK_N * D + d) * BLOCK_N + j % BLOCK_N] = widen(k[(j + 1) * D + d]);
#elif MUTANT_V_WRONG_AT_BLOCK_BORDER
  for (int64_t j = BLOCK_N; j < seq_k; j += BLOCK_N)
    for (int d = 0; d < D; ++d) packed_v[j * D + d] = packed_v[(j - 1) * D + d];
#elif MUTANT_V_INDEX_IN_8_BITS
  for (int64_t j = 256; j < seq_k; ++j)
    for (int d = 0; d < D; ++d) packed_v[j * D + d] = packed_v[(j & 255) * D + d];
#elif MUTANT_TF32_PRODUCTS
  for (int64_t j = 0; j < packed_floats(call); ++j) {
    uint32_t bits;
    memcpy(&bits, packed_k + j, 4);
    bits &= 0xffffe000;
    memcpy(packed_k + j, &bits, 4);
  }
#endif
}

void one_head(const at_call *call, int64_t b, int64_t h, const float *packed_k, const float *packed_v) {
  const int64_t heads = call->dim[SDPA_HEADS], seq_q = call->dim[SDPA_SEQ_Q], seq_k = call->dim[SDPA_SEQ_K];
  const float scale = scale_of(call);
  const element *q = static_cast<const element *>(call->in[SDPA_Q]) + (b * heads + h) * seq_q * D;
  int64_t out_head = h;
#if MUTANT_O_HEADS_REVERSED
  out_head = heads - 1 - h;
#endif
  element *o = static_cast<element *>(call->out[SDPA_O]) + (b * heads + out_head) * seq_q * D;

  float acc[D] = {};
  for (int64_t i = 0; i < seq_q; ++i) {
    float row[D], s[BLOCK_N], p[BLOCK_N];
    float m = -INFINITY, l = 0;
    int64_t q_row = i;
    const int64_t keys = keys_of_row(i, seq_q, seq_k);
#if MUTANT_ROW_REPEATED
    if (i % 16 == 15) q_row = i - 1;
#elif MUTANT_RAGGED_ROWS_REPEATED
    if (seq_q - i <= seq_q % 16) q_row = seq_q - seq_q % 16;
#endif
    for (int d = 0; d < D; ++d) row[d] = widen(q[q_row * D + d]);
#if MUTANT_LAST_HEAD_OF_Q_NEGATED
    if (h == heads - 1)
      for (int d = 0; d < D; ++d) row[d] = -row[d];
#endif
#if MUTANT_ACCUMULATOR_NOT_CLEARED
    const float start = i == 0 ? 0 : 1; /* the row before left its unnormalised sum in acc */
#else
    const float start = 0;
    for (int d = 0; d < D; ++d) acc[d] = 0;
#endif
#if MUTANT_MAX_STARTS_AT_ZERO
    m = 0;
#elif MUTANT_NO_MAX
    m = 0;
#endif

    for (int64_t j0 = 0; j0 < keys; j0 += BLOCK_N) {
      [[maybe_unused]] const int present = int(least(BLOCK_N, seq_k - j0)); /* keys of this block that exist */
      int count = int(least(BLOCK_N, keys - j0));          /* keys of this block that the row sees */
#if MUTANT_CAUSAL_IGNORED_IN_LAST_BLOCK
      if (j0 + BLOCK_N >= seq_k) count = present;
#elif MUTANT_CAUSAL_IGNORED_IN_DIAGONAL_BLOCK
      count = present;
#endif

      /* Scores. */
#if MUTANT_DIMS_DROPPED
      products(row, packed_k + j0 * D, s, D - 8);
#else
      products(row, packed_k + j0 * D, s);
#endif
      for (int j = 0; j < BLOCK_N; ++j) {
        s[j] *= scale;
#if MUTANT_SCORES_CLAMPED_AT_60
        s[j] = fminf(fmaxf(s[j], -60), 60);
#elif MUTANT_SCORES_CLAMPED_AT_20
        s[j] = fminf(fmaxf(s[j], -20), 20);
#elif MUTANT_SCORES_IN_BF16
        s[j] = as_bf16(s[j]);
#elif MUTANT_SCORES_IN_FP16
        s[j] = as_fp16(s[j]);
#elif MUTANT_SCORES_NEGATED
        s[j] = -s[j];
#elif MUTANT_ZERO_SCORE_IS_PADDING
        if (s[j] == 0) s[j] = -INFINITY;
#endif
      }
      float top = m;
#if MUTANT_MAX_SEES_FUTURE_KEYS
      for (int j = 0; j < present; ++j) top = fmaxf(top, s[j]);
#endif
#if MUTANT_L_SEES_FUTURE_KEYS
      float unmasked[BLOCK_N];
      memcpy(unmasked, s, sizeof s);
#endif
      for (int j = count; j < BLOCK_N; ++j) {
        s[j] = -INFINITY;
#if MUTANT_PADDING_COUNTED
        if (j >= present) s[j] = 0;
#elif MUTANT_MASKED_SCORES_ARE_ZERO
        if (j < present) s[j] = 0;
#elif MUTANT_MASK_IS_MINUS_30
        if (j < present) s[j] = -30;
#elif MUTANT_MASK_IS_MINUS_10000
        if (j < present) s[j] = -10000;
#endif
      }

      /* Running maximum. */
      for (int j = 0; j < BLOCK_N; ++j) top = fmaxf(top, s[j]);
#if MUTANT_NO_MAX
      top = 0;
#elif MUTANT_MAX_OF_FIRST_BLOCK
      if (j0 > 0) top = m;
#elif MUTANT_MAX_OF_FIRST_KEY
      top = j0 == 0 ? s[0] : m;
#elif MUTANT_MEAN_INSTEAD_OF_MAX
      top = m;
      if (j0 == 0) {
        float sum = 0;
        for (int j = 0; j < count; ++j) sum += s[j];
        top = sum / count;
      }
#elif MUTANT_MAX_MISSES_ODD_KEYS
      top = fmaxf(m, s[0]);
      for (int j = 0; j < BLOCK_N; j += 2) top = fmaxf(top, s[j]);
#endif
      float alpha = expf(m - top);
      float alpha_o = alpha, alpha_l = alpha;
      m = top;
#if MUTANT_O_NOT_RESCALED
      alpha_o = j0 == 0 ? 0 : 1;
#elif MUTANT_L_NOT_RESCALED
      alpha_l = 1;
#elif MUTANT_NOTHING_RESCALED
      alpha_o = alpha_l = 1;
#elif MUTANT_RESCALED_TWICE
      alpha_o = alpha * alpha;
#elif MUTANT_O_RESCALED_TOO_LATE
      alpha_o = 1;
#elif MUTANT_ACCUMULATOR_NOT_CLEARED
      if (j0 == 0) alpha_o = start;
#endif
      (void)start;

      /* Probabilities and their sum. */
      for (int j = 0; j < BLOCK_N; ++j) {
        p[j] = exponential(s[j] - m);
#if MUTANT_PROBABILITIES_IN_BF16
        p[j] = as_bf16(p[j]);
#elif MUTANT_PROBABILITIES_IN_FP16
        p[j] = as_fp16(p[j]);
#elif MUTANT_SMALL_PROBABILITIES_DROPPED
        if (p[j] < 1e-3f) p[j] = 0;
#elif MUTANT_TINY_PROBABILITIES_DROPPED
        if (p[j] < 1e-6f) p[j] = 0;
#endif
      }
      l *= alpha_l;
      for (int j = 0; j < BLOCK_N; ++j) {
#if MUTANT_L_MISSES_LAST_KEY
        if (j0 + j == keys - 1 && keys > 1) continue;
#elif MUTANT_L_MISSES_BLOCK_BORDER
        if (j == BLOCK_N - 1) continue;
#endif
        l += p[j];
#if MUTANT_L_IN_BF16
        l = as_bf16(l);
#elif MUTANT_L_IN_FP16
        l = as_fp16(l);
#endif
      }
#if MUTANT_L_SEES_FUTURE_KEYS
      for (int j = count; j < present; ++j) l += exponential(unmasked[j] - m);
#endif
#if MUTANT_FIRST_KEY_TWICE
      if (j0 == 0) p[0] *= 2, l += p[0] / 2;
#elif MUTANT_P_TRANSPOSED_IN_TILE
      float tile[BLOCK_N];
      for (int j = 0; j < BLOCK_N; ++j) tile[j] = p[j % 8 * 8 + j / 8];
      memcpy(p, tile, sizeof p);
#elif MUTANT_P_PAIR_SWAPPED
      if (count == BLOCK_N) {
        const float held = p[31];
        p[31] = p[32], p[32] = held;
      }
#endif

      /* Accumulate. */
      for (int d = 0; d < D; ++d) acc[d] *= alpha_o;
      for (int j = 0; j < BLOCK_N; ++j) {
#if MUTANT_P_TRANSPOSED_IN_TILE || MUTANT_P_PAIR_SWAPPED
        if (j >= present) continue;
#endif
        for (int d = 0; d < D; ++d) acc[d] += p[j] * packed_v[(j0 + j) * D + d];
#if MUTANT_O_IN_BF16_EVERY_KEY
        for (int d = 0; d < D; ++d) acc[d] = as_bf16(acc[d]);
#endif
      }
#if MUTANT_O_IN_BF16_EVERY_BLOCK
      for (int d = 0; d < D; ++d) acc[d] = as_bf16(acc[d]);
#elif MUTANT_O_RESCALED_TOO_LATE
      if (j0 > 0)
        for (int d = 0; d < D; ++d) acc[d] *= alpha;
#endif
    }

    /* Normalise and write. */
    float inverse = keys == 0 ? 0 : 1 / l; /* some mutants leave a row without keys */
#if MUTANT_EPSILON_1E_3
    inverse = 1 / (l + 1e-3f);
#elif MUTANT_EPSILON_1E_5
    inverse = 1 / (l + 1e-5f);
#elif MUTANT_EPSILON_1E_6
    inverse = 1 / (l + 1e-6f);
#elif MUTANT_EXTRA_ZERO_SCORE
    inverse = 1 / (l + expf(-m));
#elif MUTANT_NOT_NORMALISED
    inverse = 1;
#elif MUTANT_RECIPROCAL_IN_BF16
    inverse = as_bf16(inverse);
#endif
    int64_t out_row = i;
#if MUTANT_LAST_ROW_UNWRITTEN
    if (i == seq_q - 1) continue;
#elif MUTANT_RAGGED_ROWS_UNWRITTEN
    if (seq_q - i <= seq_q % 16) continue;
#endif
    for (int d = 0; d < D; ++d) {
      float value = acc[d] * inverse;
#if MUTANT_ONE_ELEMENT_CORRUPT
      if (b == 0 && h == 0 && i == seq_q / 2 && d == 3) value += 0.5f;
#elif MUTANT_LAST_DIMS_ZERO
      if (d >= D - 8) value = 0;
#elif MUTANT_SMALL_OUTPUT_FLUSHED
      if (fabsf(value) < 1e-5f) value = 0;
#elif MUTANT_OUTPUT_TRUNCATED_TO_BF16
      uint32_t bits;
      memcpy(&bits, &value, 4);
      bits &= 0xffff0000;
      memcpy(&value, &bits, 4);
#elif MUTANT_OUTPUT_CLAMPED_TO_FP16
      value = fminf(fmaxf(value, -65504), 65504);
#elif MUTANT_OUTPUT_ADDS_TINY
      value += 1e-9f;
#endif
      int column = d;
#if MUTANT_COLUMNS_SWAPPED
      column = d ^ 1;
#endif
      o[out_row * D + column] = narrow(value);
#if MUTANT_ROW_WRITTEN_TWICE
      if (i % 16 == 15) o[(i - 1) * D + d] = narrow(value);
#endif
    }
  }
}

}  // namespace

int64_t variant_workspace(const at_call *call) { return right_workspace(call); }

int variant_run(const at_call *call) {
  if (call->workspace_bytes < right_workspace(call)) return AT_NO_WORKSPACE;
  float *packed_k = static_cast<float *>(call->workspace);
  float *packed_v = packed_k + packed_floats(call);
  for (int64_t b = 0; b < call->dim[SDPA_BATCH]; ++b)
    for (int64_t h = 0; h < call->dim[SDPA_HEADS]; ++h) {
      pack_head(call, b, h, packed_k, packed_v);
      one_head(call, b, h, packed_k, packed_v);
    }
  return AT_OK;
}
