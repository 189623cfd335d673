/* A row of attention over views, in SPLIT parts that are merged, with one mutation, chosen by a macro MUTANT_<NAME>: what
 * the mutants for the CPU and for CUDA share. Every mutation is one marked #if. With MUTANT_NONE the result is right.
 * ../views.toml says what each does and which check catches it.
 *
 * The including file defines before: `element` with `widen` and `narrow`, and ROW_CODE, the qualifiers of a function. */
#ifndef AUTOTUNER_TESTS_VIEWS_ROW_H
#define AUTOTUNER_TESTS_VIEWS_ROW_H

constexpr int D = HEAD_DIM, SPLIT = 3, COUNTERS = 1 << 20;

struct Tensor {
  element *base;
  int64_t batch, head, row; /* strides */
  bool wraps;               /* offsets have 32 bits */
};

struct Call {
  Tensor q, k, v, o;
  const int32_t *lengths;
  const element *sinks; /* null: none */
  const void *bias;
  int64_t bias_batch, bias_head, bias_row; /* strides */
  float *lse;
  int64_t batches, heads, heads_kv, seq_q, seq_k;
  int64_t left, right; /* of the window */
  float scale, cap;
  int *come; /* parts of each row that have come; 0 between launches */
};

/* What a part has found: the largest score, the sum of weights relative to it, and the weighted sum of V. */
struct Part {
  float most, sum, o[D];
};

ROW_CODE int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

/* NaN where one of them is. */
ROW_CODE float larger(float a, float b) { return a > b || a != a ? a : b; }

/* An index times a stride. */
ROW_CODE int64_t stepped(int64_t index, int64_t stride) {
#if MUTANT_PRODUCTS_WITH_STRIDES_IN_32_BITS
  return (int)((uint32_t)index * (uint32_t)stride);
#elif MUTANT_PRODUCTS_WITH_STRIDES_UNSIGNED
  return (uint32_t)index * (uint32_t)stride;
#else
  return index * stride;
#endif
}

ROW_CODE element *at(const Tensor &x, int64_t b, int64_t h, int64_t i) {
  const int64_t offset = stepped(b, x.batch) + stepped(h, x.head) + stepped(i, x.row);
  return x.base + (x.wraps ? (int)offset : offset);
}

ROW_CODE Tensor queries_of(const Call &c) {
  Tensor q = c.q;
#if MUTANT_OFFSETS_OF_Q_IN_32_BITS
  q.wraps = true;
#endif
  return q;
}

ROW_CODE Tensor keys_of(const Call &c) {
  Tensor k = c.k;
#if MUTANT_STRIDES_OF_Q_FOR_K
  k.batch = c.q.batch, k.head = c.q.head, k.row = c.q.row;
#elif MUTANT_ROWS_OF_K_CONTIGUOUS
  k.row = D;
#elif MUTANT_HEADS_AND_ROWS_OF_K_SWAPPED
  k.head = c.k.row, k.row = c.k.head;
#elif MUTANT_STRIDE_0_TAKEN_FOR_UNSET
  if (!k.batch) k.batch = c.heads_kv * c.seq_k * D;
#elif MUTANT_OFFSETS_OF_K_IN_32_BITS
  k.wraps = true;
#endif
  return k;
}

ROW_CODE Tensor values_of(const Call &c) {
  Tensor v = c.v;
#if MUTANT_STRIDES_OF_K_FOR_V
  v.batch = c.k.batch, v.head = c.k.head, v.row = c.k.row;
#elif MUTANT_BATCHES_OF_V_CONTIGUOUS
  v.batch = c.heads_kv * c.seq_k * D;
#elif MUTANT_OFFSETS_OF_V_IN_32_BITS
  v.wraps = true;
#endif
  return v;
}

ROW_CODE Tensor output_of(const Call &c) {
  Tensor o = c.o;
#if MUTANT_STRIDES_OF_Q_FOR_O
  o.batch = c.q.batch, o.head = c.q.head, o.row = c.q.row;
#elif MUTANT_O_CONTIGUOUS
  o.batch = c.heads * c.seq_q * D, o.head = c.seq_q * D, o.row = D;
#elif MUTANT_OFFSETS_OF_O_IN_32_BITS
  o.wraps = true;
#endif
  return o;
}

ROW_CODE int64_t head_kv(const Call &c, int64_t h) {
  int64_t group = c.heads / c.heads_kv;
#if MUTANT_GROUP_MODULO
  return h % c.heads_kv;
#elif MUTANT_GROUP_IGNORED
  return lesser(h, c.heads_kv - 1);
#elif MUTANT_GROUP_DIVIDED_BY_HEADS_KV
  return lesser(h / c.heads_kv, c.heads_kv - 1);
#elif MUTANT_GROUP_AT_MOST_2
  group = lesser(group, 2);
  return lesser(h / group, c.heads_kv - 1);
#endif
  return h / group;
}

ROW_CODE int64_t length_of(const Call &c, int64_t b) {
#if MUTANT_LENGTHS_IGNORED
  return c.seq_k;
#elif MUTANT_LENGTH_OF_BATCH_0
  b = 0;
#endif
  int64_t length = c.lengths ? c.lengths[b] : c.seq_k;
#if !MUTANT_LENGTHS_PAST_ALL_KEYS
  length = lesser(length, c.seq_k);
#endif
#if MUTANT_LENGTH_ONE_TOO_MANY
  length = lesser(length + 1, c.seq_k);
#elif MUTANT_LENGTH_ONE_TOO_FEW
  if (length > 1) --length;
#elif MUTANT_LENGTHS_IN_TILES_OF_16
  length = lesser((length + 15) / 16 * 16, c.seq_k);
#endif
  return length;
}

/* The first key that row i sees; some key past the length where there is none. */
ROW_CODE int64_t first_of(const Call &c, int64_t i, int64_t length) {
  int64_t left = c.left, offset = CORNER == AT_BOTTOM_RIGHT ? length - c.seq_q : 0;
#if MUTANT_WINDOW_ONE_TOO_MANY
  ++left;
#elif MUTANT_WINDOW_ONE_TOO_FEW
  --left;
#elif MUTANT_WINDOW_AT_TOP_LEFT
  offset = 0;
#elif MUTANT_WINDOW_OF_THE_TENSOR
  offset = c.seq_k - c.seq_q;
#endif
  int64_t first = i + offset - left;
#if MUTANT_WINDOW_IN_TILES_OF_16
  first = first / 16 * 16;
#elif MUTANT_WINDOW_OF_THE_FIRST_ROW
  first -= i;
#elif MUTANT_WINDOW_IGNORED
  first = 0;
#endif
  return !WINDOWED || first < 0 ? 0 : first;
}

/* The keys before this one row i sees. */
ROW_CODE int64_t seen_by(const Call &c, int64_t i, int64_t length) {
  if (!CAUSAL && !WINDOWED) return length;
  int64_t offset = CORNER == AT_BOTTOM_RIGHT ? length - c.seq_q : 0;
#if MUTANT_TOP_LEFT
  offset = 0;
#elif MUTANT_CORNER_OF_THE_TENSOR
  offset = c.seq_k - c.seq_q;
#elif MUTANT_CORNER_ONE_TOO_FEW
  if (c.seq_q > 1) --offset;
#endif
#if MUTANT_WINDOW_RIGHT_IGNORED
  if (!CAUSAL) return length;
#endif
  const int64_t end = i + 1 + offset + (CAUSAL ? 0 : c.right);
  return end < 0 ? 0 : lesser(end, length);
}

/* A score, scaled and capped. */
ROW_CODE float capped(const Call &c, float score, float scale) {
  if (!SOFTCAPPED) return score * scale;
  float cap = c.cap;
#if MUTANT_SOFTCAP_IGNORED
  return score * scale;
#elif MUTANT_SOFTCAP_BEFORE_SCALE
  return cap * tanhf(score / cap) * scale;
#elif MUTANT_SOFTCAP_IN_POWERS_OF_2
  cap /= 1.442695f;
#elif MUTANT_SOFTCAP_CLAMPS
  score *= scale;
  return score > cap ? cap : score < -cap ? -cap : score;
#elif MUTANT_SOFTCAP_NOT_MULTIPLIED
  return tanhf(score * scale / cap);
#elif MUTANT_SOFTCAP_LOSES_THE_SIGN
  score = score < 0 ? -score : score;
#endif
  return cap * tanhf(score * scale / cap);
}

/* A score with what is added to it. */
ROW_CODE float biased(const Call &c, float score, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (!HAS_BIAS) return score;
#if MUTANT_BIAS_IGNORED || MUTANT_SLOPES_IGNORED
  return score;
#elif MUTANT_BIAS_OF_ANOTHER_HEAD || MUTANT_SLOPE_OF_ANOTHER_HEAD
  h = head_kv(c, h);
#elif MUTANT_BIAS_OF_BATCH_0
  b = 0;
#endif
  if (HAS_NUMBERS) {
    int64_t row = c.bias_row;
#if MUTANT_BIAS_ROWS_CONTIGUOUS
    row = c.seq_k;
#elif MUTANT_BIAS_TURNED
    const int64_t kept = i;
    i = lesser(j, c.seq_q - 1), j = lesser(kept, c.seq_k - 1);
#endif
    float number = widen(((const element *)c.bias)[b * c.bias_batch + h * c.bias_head + i * row + j]);
#if MUTANT_BIAS_SCALED
    number *= c.scale;
#elif MUTANT_BIAS_THAT_IS_NO_NUMBER_IS_NONE
    if (number != number) number = 0;
#elif MUTANT_BIAS_AT_MOST_1E30
    if (number > 1e30f) number = 1e30f;
#elif MUTANT_BIAS_HIDES_NOTHING
    if (number == -INFINITY) number = -10;
#endif
    return score + number;
  }
  int64_t place = i + (CORNER == AT_BOTTOM_RIGHT ? length_of(c, b) - c.seq_q : 0);
#if MUTANT_SLOPES_AT_TOP_LEFT
  place = i;
#elif MUTANT_SLOPES_RISE
  place = 2 * j - place;
#elif MUTANT_SLOPES_THAT_ARE_NO_NUMBERS_ARE_NONE
  if (((const float *)c.bias)[h] != ((const float *)c.bias)[h]) return score;
#endif
  return score + ((const float *)c.bias)[h] * (float)(j - place);
}

/* Keys begin .. end - 1. */
ROW_CODE void part_of_row(const Call &c, const element *q, int64_t b, int64_t h, int64_t begin, int64_t end, Part &p, int64_t i) {
  const Tensor k = keys_of(c), v = values_of(c);
  float scale = c.scale;
#if MUTANT_SINGLE_QUERY_UNSCALED
  if (c.seq_q == 1) scale = 1;
#endif
  p.most = -INFINITY;
  p.sum = 0;
  for (int d = 0; d < D; ++d) p.o[d] = 0;
  for (int64_t j = begin; j < end; ++j) {
    const element *key = at(k, b, head_kv(c, h), j), *value = at(v, b, head_kv(c, h), j);
    float score = 0;
#if MUTANT_READS_PAST_A_ROW
    for (int d = 0; d < D + 8; ++d) score += d < D ? widen(q[d]) * widen(key[d]) : 0 * widen(key[d]);
#else
    for (int d = 0; d < D; ++d) score += widen(q[d]) * widen(key[d]);
#endif
    score = biased(c, capped(c, score, scale), b, h, i, j);
    const float most = larger(p.most, score);
    if (most == -INFINITY) continue; /* nothing is seen yet */
    const float decay = expf(p.most - most), weight = expf(score - most);
    p.most = most;
    p.sum = p.sum * decay + weight;
    for (int d = 0; d < D; ++d) p.o[d] = p.o[d] * decay + weight * widen(value[d]);
  }
}

ROW_CODE float weight_of(const Part &p, float most) {
#if MUTANT_MERGE_WITHOUT_WEIGHTS
  return 1;
#elif MUTANT_MERGE_WEIGHTS_INVERTED
  return p.most == -INFINITY ? 0 : expf(most - p.most);
#elif MUTANT_EMPTY_PART_NOT_A_NUMBER
  return expf(p.most - most) * (p.sum > 0 ? 1.0f : p.sum / p.sum);
#else
  return p.most == -INFINITY ? 0 : expf(p.most - most);
#endif
}

/* What a sink adds to a sum that is relative to `most`. */
ROW_CODE float sink_of(const Call &c, int64_t h, float most) {
  if (!c.sinks) return 0;
#if MUTANT_SINK_OF_ANOTHER_HEAD
  h = h / (c.heads / c.heads_kv);
#endif
  float sink = widen(c.sinks[h]);
  if (sink == -INFINITY) return 0;
#if MUTANT_SINKS_IGNORED
  return 0;
#elif MUTANT_SINK_SCALED
  sink *= c.scale;
#elif MUTANT_SINK_ONCE_A_PART
  return SPLIT * expf(sink - most);
#elif MUTANT_SINK_NOT_RELATIVE_TO_THE_MAXIMUM
  return expf(sink);
#endif
  return expf(sink - most);
}

ROW_CODE void store(const Call &c, int64_t b, int64_t h, int64_t i, const Part (&parts)[SPLIT]) {
  float most = -INFINITY, sum = 0, o[D] = {};
  for (int s = 0; s < SPLIT; ++s) most = larger(most, parts[s].most);
  if (c.sinks && widen(c.sinks[h]) > most) most = widen(c.sinks[h]);
#if MUTANT_MERGE_BY_THE_FIRST_MAXIMUM
  most = parts[0].most;
#endif
  for (int s = 0; s < SPLIT; ++s) {
    const float weight = weight_of(parts[s], most);
#if MUTANT_SUMS_MERGED_WITHOUT_WEIGHTS
    sum += parts[s].sum;
#else
    sum += parts[s].sum * weight;
#endif
    for (int d = 0; d < D; ++d) o[d] += parts[s].o[d] * weight;
  }
#if !MUTANT_SINK_FORGOTTEN_IN_LSE
  sum += sink_of(c, h, most);
  const float all = sum;
#else
  const float all = sum + sink_of(c, h, most);
#endif
#if MUTANT_SINK_IN_THE_NUMERATOR
  for (int d = 0; d < D; ++d) o[d] += sink_of(c, h, most) * widen(at(values_of(c), b, head_kv(c, h), 0)[d]);
#endif
  element *to = at(output_of(c), b, h, i);
  for (int d = 0; d < D; ++d) {
#if MUTANT_BLIND_ROWS_NOT_A_NUMBER
    to[d] = narrow(o[d] / all);
#elif MUTANT_BLIND_ROWS_NOT_WRITTEN
    if (all > 0) to[d] = narrow(o[d] / all);
#else
    to[d] = narrow(all != 0 ? o[d] / all : 0);
#endif
  }
#if MUTANT_WRITES_PAST_A_ROW
  for (int d = D; d < D + 8; ++d) to[d] = narrow(0);
#endif
  if (!c.lse) return;
  float lse = sum > 0 ? most + logf(sum) : -INFINITY;
#if MUTANT_LSE_WITHOUT_MAXIMUM
  lse = sum > 0 ? logf(sum) : -INFINITY;
#elif MUTANT_LSE_IN_POWERS_OF_2
  lse *= 1.442695f;
#elif MUTANT_LSE_OF_THE_LAST_PART
  lse = parts[SPLIT - 1].sum > 0 ? parts[SPLIT - 1].most + logf(parts[SPLIT - 1].sum) : lse;
#elif MUTANT_LSE_OF_BLIND_ROWS_0
  if (!(sum > 0)) lse = 0;
#elif MUTANT_LSE_IS_THE_MAXIMUM
  lse = sum > 0 ? most : -INFINITY;
#endif
  int64_t place = (b * c.heads + h) * c.seq_q + i;
#if MUTANT_LSE_HEADS_FIRST
  place = (h * c.batches + b) * c.seq_q + i;
#endif
  c.lse[place] = lse;
}

/* Row i of head h of batch b. */
ROW_CODE void view_row(const Call &c, int64_t b, int64_t h, int64_t i) {
  const int64_t length = length_of(c, b), from = first_of(c, i, length), until = seen_by(c, i, length);
  const int64_t keys = until > from ? until - from : 0;
  int64_t step = (keys + SPLIT - 1) / SPLIT;
#if MUTANT_RAGGED_LAST_PART_DROPPED
  if (keys >= SPLIT) step = keys / SPLIT;
#endif
  Part parts[SPLIT];
  int *come = c.come + ((b * c.heads + h) * c.seq_q + i) % COUNTERS;
  for (int s = 0; s < SPLIT; ++s) {
    int64_t begin = s * step, end = lesser(keys, begin + step);
#if MUTANT_PARTS_OVERLAP
    end = lesser(keys, end + 1);
#elif MUTANT_PART_BORDERS_DROPPED
    if (s + 1 < SPLIT && end > begin + 1) --end;
#endif
    part_of_row(c, at(queries_of(c), b, h, i), b, h, from + lesser(begin, keys), from + end, parts[s], i);
    if (++*come != SPLIT) continue;
    store(c, b, h, i, parts);
#if !MUTANT_COUNTER_NOT_RESTORED
    *come = 0;
#endif
  }
}

#endif
