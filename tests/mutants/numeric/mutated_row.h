/* A row of attention by a blocked online softmax, with one mutation, chosen by a macro MUTANT_<NAME>: what the mutants
 * for the CPU and for CUDA share. Every mutation is one marked #if. With MUTANT_NONE nothing is mutated and the result
 * is right. ../expected.toml says what each mutant does and which check catches it.
 *
 * The including file defines before: `element` with `widen` and `narrow`, `as_bf16` and `as_fp16` (a float rounded to
 * that type), D, BLOCK_N, `least`, and ROW_CODE, the qualifiers of a function. */
#ifndef AUTOTUNER_TESTS_MUTATED_ROW_H
#define AUTOTUNER_TESTS_MUTATED_ROW_H

struct Shape {
  int64_t batch, heads, seq_q, seq_k;
  float scale;
};

/* K and V of one head. */
struct Head {
  const element *k, *v;
};

ROW_CODE float scale_of(const Shape &shape) {
  float scale = shape.scale;
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
ROW_CODE int64_t keys_of_row(const Shape &shape, [[maybe_unused]] int64_t i) {
  int64_t keys = shape.seq_k;
#if MUTANT_DROP_TAIL_KEY
  keys = shape.seq_k - 1;
#elif MUTANT_ODD_KEY_DROPPED
  keys = shape.seq_k - shape.seq_k % 2;
#elif MUTANT_DROP_RAGGED_TAIL
  keys = shape.seq_k - shape.seq_k % BLOCK_N;
#elif MUTANT_AT_MOST_2048_KEYS
  keys = least(shape.seq_k, 2048);
#elif MUTANT_SINGLE_KEY_IGNORED
  if (shape.seq_k == 1) keys = 0;
#endif
#if CAUSAL
  int64_t last = i;
#if MUTANT_CAUSAL_ONE_TOO_MANY
  last = i + 1;
#elif MUTANT_CAUSAL_ONE_TOO_FEW
  last = i - 1;
#elif MUTANT_CAUSAL_BOTTOM_RIGHT
  last = i + shape.seq_k - shape.seq_q;
#elif MUTANT_CAUSAL_DROPS_DIAGONAL_BLOCK
  last = i / BLOCK_N * BLOCK_N - 1;
#elif MUTANT_CAUSAL_IGNORED
  last = shape.seq_k - 1;
#elif MUTANT_CAUSAL_BY_TILES_OF_16
  last = i | 15;
#endif
  keys = least(keys, last < 0 ? 0 : last + 1);
#endif
  return keys;
}

/* 2^whole times a polynomial for 2^part: `degree` terms of the series of 2^x about 0. */
[[maybe_unused]] ROW_CODE float coarse_exp(float x, int degree) {
  constexpr float SERIES[] = {1, 0.6931472f, 0.2402265f, 0.05550411f, 0.009618129f, 0.001333356f};
  if (x != x) return x;
  const float power = fmaxf(x * 1.442695f, -126);
  const float whole = rintf(power), part = power - whole;
  float sum = 0;
  for (int i = degree; i >= 0; --i) sum = sum * part + SERIES[i];
  return ldexpf(sum, int(whole));
}

ROW_CODE float exponential(float x) {
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
#elif MUTANT_NAN_DROPPED
  return expf(fmaxf(x, -87));
#elif MUTANT_EXP2_WITHOUT_LOG2E
  return exp2f(x);
#else
  return expf(x);
#endif
}

/* K and V of head h of batch b. */
ROW_CODE Head head_at(const Shape &shape, const element *k, const element *v, int64_t b, int64_t h) {
  int64_t batch_of = b, head_of = h, stride = shape.seq_k * D;
#if MUTANT_BATCHES_SWAPPED
  batch_of = shape.batch - 1 - b;
#elif MUTANT_HEAD_ZERO_FOR_ALL
  head_of = 0;
#elif MUTANT_KV_HEADS_SHIFTED
  head_of = (h + 1) % shape.heads;
#elif MUTANT_KV_STRIDE_OF_SEQ_Q
  stride = shape.seq_q * D;
#endif
  const int64_t offset = (batch_of * shape.heads + head_of) * stride;
#if MUTANT_V_THAT_OVERLAPS_K_IS_K || MUTANT_V_THAT_OVERLAPS_K_LIES_BEHIND_IT
  const int64_t elements = shape.batch * shape.heads * shape.seq_k * D, between = v - k;
  const bool overlap = between && between < elements && -between < elements;
#endif
#if MUTANT_K_AND_V_SWAPPED
  return {v + offset, k + offset};
#elif MUTANT_V_IS_K
  return {k + offset, k + offset};
#elif MUTANT_V_THAT_OVERLAPS_K_IS_K
  return {k + offset, (overlap ? k : v) + offset};
#elif MUTANT_V_THAT_OVERLAPS_K_LIES_BEHIND_IT
  return {k + offset, (overlap ? k + elements : v) + offset};
#else
  return {k + offset, v + offset};
#endif
}

/* Element d of key j. */
ROW_CODE float key_element(const Head &head, [[maybe_unused]] int64_t seq_k, int64_t j, int d) {
#if MUTANT_K_SHIFTED
  if (j + 1 < seq_k) ++j;
#endif
  float value = widen(head.k[j * D + d]);
#if MUTANT_TF32_PRODUCTS
  uint32_t bits;
  memcpy(&bits, &value, 4);
  bits &= 0xffffe000;
  memcpy(&value, &bits, 4);
#endif
  return value;
}

/* Element d of the value of key j. */
ROW_CODE float value_element(const Head &head, int64_t j, int d) {
#if MUTANT_V_WRONG_AT_BLOCK_BORDER
  if (j > 0 && j % BLOCK_N == 0) --j;
#elif MUTANT_V_INDEX_IN_8_BITS
  j &= 255;
#endif
#if MUTANT_V_AT_THE_ADDRESS_OF_K
  if (head.k == head.v) return 0;
#elif MUTANT_INFINITE_VALUES_CLEANED
  const float value = widen(head.v[j * D + d]);
  return fabsf(value) <= 3.3e38f ? value : 0;
#endif
  return widen(head.v[j * D + d]);
}

/* One row on its way through the blocks of keys. */
struct Row {
  int64_t b, h, i;       /* batch, head, row */
  int64_t keys;          /* that it sees */
  float q[D];
  float s[BLOCK_N];      /* scores of the block, then */
  float p[BLOCK_N];      /* probabilities */
  float m, l;            /* running maximum and denominator */
  float alpha_o, alpha_l; /* what the block's maximum rescales the sums by */
};

ROW_CODE void start_row(Row &row, const Shape &shape, const element *q, int64_t b, int64_t h, int64_t i) {
  row.b = b, row.h = h, row.i = i;
  row.keys = keys_of_row(shape, i);
  int64_t q_row = i;
#if MUTANT_ROW_REPEATED
  if (i % 16 == 15) q_row = i - 1;
#elif MUTANT_RAGGED_ROWS_REPEATED
  if (shape.seq_q - i <= shape.seq_q % 16) q_row = shape.seq_q - shape.seq_q % 16;
#endif
  for (int d = 0; d < D; ++d) row.q[d] = widen(q[q_row * D + d]);
#if MUTANT_LAST_HEAD_OF_Q_NEGATED
  if (h == shape.heads - 1)
    for (int d = 0; d < D; ++d) row.q[d] = -row.q[d];
#endif
  row.m = -INFINITY, row.l = 0;
#if MUTANT_MAX_STARTS_AT_ZERO || MUTANT_NO_MAX
  row.m = 0;
#elif MUTANT_MAX_STARTS_AT_MINUS_10000
  row.m = -10000;
#endif
}

/* Scores of the block, of which `present` keys exist and the row sees `count`; `unmasked` keeps them as they were. */
template <class Keys>
ROW_CODE void score_block(Row &row, const Keys &keys, float scale, int64_t j0, [[maybe_unused]] int present, int count,
                          [[maybe_unused]] float *unmasked) {
  float *s = row.s;
#if MUTANT_DIMS_DROPPED
  keys.products(row.q, j0, s, D - 8);
#else
  keys.products(row.q, j0, s, D);
#endif
  for (int j = 0; j < BLOCK_N; ++j) {
    s[j] *= scale;
#if MUTANT_SCORES_CLAMPED_AT_60
    s[j] = fminf(fmaxf(s[j], -60), 60);
#elif MUTANT_SCORES_CLAMPED_AT_20
    s[j] = fminf(fmaxf(s[j], -20), 20);
#elif MUTANT_INFINITE_SCORES_CLAMPED
    s[j] = fminf(s[j], 3e38f);
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
#if MUTANT_MAX_SEES_FUTURE_KEYS || MUTANT_L_SEES_FUTURE_KEYS
  memcpy(unmasked, s, sizeof row.s);
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
}

/* The running maximum after the block. */
ROW_CODE float new_maximum(const Row &row, [[maybe_unused]] int64_t j0, [[maybe_unused]] int present,
                           [[maybe_unused]] int count, [[maybe_unused]] const float *unmasked) {
  const float *s = row.s;
  float top = row.m;
#if MUTANT_MAX_SEES_FUTURE_KEYS
  for (int j = 0; j < present; ++j) top = fmaxf(top, unmasked[j]);
#endif
  for (int j = 0; j < BLOCK_N; ++j) top = fmaxf(top, s[j]);
#if MUTANT_NO_MAX
  top = 0;
#elif MUTANT_MAX_OF_FIRST_BLOCK
  if (j0 > 0) top = row.m;
#elif MUTANT_MAX_OF_FIRST_KEY
  top = j0 == 0 ? s[0] : row.m;
#elif MUTANT_MEAN_INSTEAD_OF_MAX
  top = row.m;
  if (j0 == 0) {
    float sum = 0;
    for (int j = 0; j < count; ++j) sum += s[j];
    top = sum / count;
  }
#elif MUTANT_MAX_MISSES_ODD_KEYS
  top = fmaxf(row.m, s[0]);
  for (int j = 0; j < BLOCK_N; j += 2) top = fmaxf(top, s[j]);
#elif MUTANT_MAX_IN_BF16
  top = as_bf16(top);
#elif MUTANT_MAX_IN_FP16
  top = as_fp16(top);
#elif MUTANT_MAX_AT_MOST_A_BILLION
  top = fminf(top, 1e9f);
#endif
  return top;
}

/* Moves the maximum; what that rescales the sums by. */
ROW_CODE float rescale(Row &row, float top, [[maybe_unused]] int64_t j0) {
  const float alpha = expf(row.m - top);
  row.alpha_o = row.alpha_l = alpha;
  row.m = top;
#if MUTANT_O_NOT_RESCALED
  row.alpha_o = j0 == 0 ? 0 : 1;
#elif MUTANT_L_NOT_RESCALED
  row.alpha_l = 1;
#elif MUTANT_NOTHING_RESCALED
  row.alpha_o = row.alpha_l = 1;
#elif MUTANT_RESCALED_TWICE
  row.alpha_o = alpha * alpha;
#elif MUTANT_O_RESCALED_TOO_LATE
  row.alpha_o = 1;
#elif MUTANT_ACCUMULATOR_NOT_CLEARED
  if (j0 == 0) row.alpha_o = 1; /* what the row before left, its unnormalised sum, stays */
#endif
  return alpha;
}

/* Probabilities and their sum. */
ROW_CODE void weigh(Row &row, [[maybe_unused]] int64_t j0, [[maybe_unused]] int present, [[maybe_unused]] int count,
                    [[maybe_unused]] const float *unmasked) {
  float *p = row.p, l = row.l * row.alpha_l;
  for (int j = 0; j < BLOCK_N; ++j) {
#if MUTANT_POWERS_OF_TWO_ROUNDED_APART
    const float shift = row.m * 1.442695f;
    p[j] = exp2f(fmaf(row.s[j], 1.442695f, -shift));
#else
    p[j] = exponential(row.s[j] - row.m);
#endif
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
  for (int j = 0; j < BLOCK_N; ++j) {
#if MUTANT_L_MISSES_LAST_KEY
    if (j0 + j == row.keys - 1 && row.keys > 1) continue;
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
  for (int j = count; j < present; ++j) l += exponential(unmasked[j] - row.m);
#endif
#if MUTANT_FIRST_KEY_TWICE
  if (j0 == 0) p[0] *= 2, l += p[0] / 2;
#elif MUTANT_P_TRANSPOSED_IN_TILE
  float tile[BLOCK_N];
  for (int j = 0; j < BLOCK_N; ++j) tile[j] = p[j % 8 * 8 + j / 8];
  memcpy(p, tile, sizeof row.p);
#elif MUTANT_P_PAIR_SWAPPED
  if (count == BLOCK_N) {
    const float held = p[31];
    p[31] = p[32], p[32] = held;
  }
#endif
  row.l = l;
}

/* Adds the block's weighted values to the accumulator. */
template <class Keys>
ROW_CODE void accumulate(const Row &row, const Keys &keys, int64_t j0, [[maybe_unused]] int present,
                         [[maybe_unused]] float alpha, float *acc) {
  for (int d = 0; d < D; ++d) acc[d] *= row.alpha_o;
  for (int j = 0; j < BLOCK_N; ++j) {
#if MUTANT_P_TRANSPOSED_IN_TILE || MUTANT_P_PAIR_SWAPPED
    if (j >= present) continue;
#endif
    for (int d = 0; d < D; ++d) acc[d] += row.p[j] * keys.value(j0 + j, d);
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

ROW_CODE float inverse_of(const Row &row) {
  float inverse = row.keys == 0 ? 0 : 1 / row.l; /* some mutants leave a row without keys */
#if MUTANT_EPSILON_1E_3
  inverse = 1 / (row.l + 1e-3f);
#elif MUTANT_EPSILON_1E_5
  inverse = 1 / (row.l + 1e-5f);
#elif MUTANT_EPSILON_1E_6
  inverse = 1 / (row.l + 1e-6f);
#elif MUTANT_EXTRA_ZERO_SCORE
  inverse = 1 / (row.l + expf(-row.m));
#elif MUTANT_NOT_NORMALISED
  inverse = 1;
#elif MUTANT_RECIPROCAL_IN_BF16
  inverse = as_bf16(inverse);
#endif
  return inverse;
}

/* Normalises and writes; `o` is the output of all heads. */
ROW_CODE void write_row(const Row &row, const Shape &shape, const float *acc, element *o) {
  const int64_t i = row.i;
  const float inverse = inverse_of(row);
  int64_t out_head = row.h;
#if MUTANT_O_HEADS_REVERSED
  out_head = shape.heads - 1 - row.h;
#endif
  o += (row.b * shape.heads + out_head) * shape.seq_q * D;
#if MUTANT_STORED_IN_16_BITS
  uint16_t *stored = reinterpret_cast<uint16_t *>(o - (row.b * shape.heads + out_head) * shape.seq_q * D);
  stored += ((row.b * shape.heads + out_head) * shape.seq_q + i) * D;
  for (int d = 0; d < D; ++d) {
    const float value = acc[d] * inverse;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    stored[d] = uint16_t(bits >> 16);
  }
  return;
#endif
#if MUTANT_LAST_ROW_UNWRITTEN
  if (i == shape.seq_q - 1) return;
#elif MUTANT_RAGGED_ROWS_UNWRITTEN
  if (shape.seq_q - i <= shape.seq_q % 16) return;
#endif
  for (int d = 0; d < D; ++d) {
    float value = acc[d] * inverse;
#if MUTANT_ONE_ELEMENT_CORRUPT
    if (row.b == 0 && row.h == 0 && i == shape.seq_q / 2 && d == 3) value += 0.5f;
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
    o[i * D + column] = narrow(value);
#if MUTANT_ROW_WRITTEN_TWICE
    if (i % 16 == 15) o[(i - 1) * D + d] = narrow(value);
#endif
  }
}

/* Row i of head h of batch b. `keys` gives products(q, j0, dot, dims), the products of q with the BLOCK_N keys from j0
 * on, and value(j, d); both are 0 for keys that do not exist. `acc` is what the row before left and this one leaves. */
template <class Keys>
ROW_CODE void mutated_row(const Shape &shape, const Keys &keys, const element *q, int64_t b, int64_t h, int64_t i,
                          float *acc, element *o) {
  Row row;
  float unmasked[BLOCK_N];
  const float scale = scale_of(shape);
  start_row(row, shape, q, b, h, i);
#if !MUTANT_ACCUMULATOR_NOT_CLEARED
  for (int d = 0; d < D; ++d) acc[d] = 0;
#endif
  for (int64_t j0 = 0; j0 < row.keys; j0 += BLOCK_N) {
    const int present = int(least(BLOCK_N, shape.seq_k - j0)); /* keys of this block that exist */
    int count = int(least(BLOCK_N, row.keys - j0));            /* keys of this block that the row sees */
#if MUTANT_CAUSAL_IGNORED_IN_LAST_BLOCK
    if (j0 + BLOCK_N >= shape.seq_k) count = present;
#elif MUTANT_CAUSAL_IGNORED_IN_DIAGONAL_BLOCK
    count = present;
#endif
    score_block(row, keys, scale, j0, present, count, unmasked);
    const float alpha = rescale(row, new_maximum(row, j0, present, count, unmasked), j0);
    weigh(row, j0, present, count, unmasked);
    accumulate(row, keys, j0, present, alpha, acc);
  }
  write_row(row, shape, acc, o);
}

#endif
