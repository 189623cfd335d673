// Attention with vectors: queries across the lanes, keys in blocks, online softmax.
//
// A work item is a block of BLOCK_M queries of one head; where there is one query, heads that share K and V take the place
// of queries. Where there are fewer items than threads, each is divided in parts, which have keys of their own. A part goes
// through its keys in blocks of BLOCK_N:
//   scores   S^T = K Q^T, and the largest score of every query            (score_tile)
//   softmax  P^T = 2^(S^T - max), its sum, and how far the max has moved  (here)
//   output   O = O * decay + P V                                          (value_tile)
// The factor log2(e) * scale is folded into Q, so that the exponential is a plain 2^x.
//
// Parameters (all integers but EXP):
//   BLOCK_M, BLOCK_N    queries an item, keys a block
//   VEC_WIDTH           floats a vector: 4, 8, 16
//   QK_KEYS, QK_VECS    register tile of the scores: keys x vectors of queries
//   PV_ROWS, PV_VECS    register tile of the output: queries x vectors of dims
//   UNROLL              unrolling of the inner loops of both tiles
//   PACK_K, PACK_V      how K and V are prepared: cpu_pack.h
//   PREFETCH            how many keys ahead V is prefetched; 0: not at all
//   EXP                 the method of 2^x: cpu_math.h
//   BF16_DOT            1: AVX-512's bfloat16 dot products; 0: bfloat16 is widened to float
//   THREADS, SYNC_POLICY  how many threads, and how they meet: cpu_pool.h
//   SCHEDULE            how items go to threads: 0 in equal runs, 1 in turn, 2 to whoever is free
#include <math.h>

#include "cpu_pack.h"
#include "cpu_pool.h"
#include "cpu_simd_limits.h"
#include "cpu_tile.h"

static constexpr int QUERY_TILE = QK_VECS * VEC_WIDTH;
static constexpr int SCORE_ROWS = (BLOCK_N + QK_KEYS - 1) / QK_KEYS * QK_KEYS;

// One thread's part of the workspace, in floats; every array starts on a cache line.
struct Scratch {
  float *queries, *scores, *output, *block_max, *row_max, *row_sum, *decay, *tail, *keys, *values;
  int64_t floats;

  Scratch(float *base, int64_t seq_k) : floats(0) {
    queries = take(base, HEAD_WORDS * BLOCK_M);
    scores = take(base, SCORE_ROWS * BLOCK_M);
    output = take(base, BLOCK_M * HEAD_DIM);
    block_max = take(base, BLOCK_M);
    row_max = take(base, BLOCK_M);
    row_sum = take(base, BLOCK_M);
    decay = take(base, BLOCK_M);
    tail = take(base, PACK_K == 0 ? QK_KEYS * HEAD_WORDS : 0);
    keys = take(base, PACK_K == 0 ? 0 : (PACK_K == 1 ? SCORE_ROWS : seq_k + SCORE_ROWS) * HEAD_WORDS);
    values = take(base, PACK_V == 0 ? 0 : (PACK_V == 1 ? BLOCK_N : seq_k + 1) * HEAD_DIM / WORD_ELEMENTS);
  }

 private:
  float *take(float *base, int64_t count) {
    float *start = base + floats;  // base is null while only the size is asked for
    floats += round_up(count, 16);
    return start;
  }
};

// Whether the rows of an item are the one query of heads that share K and V, which are read once for all of these. A bias
// would tell such rows apart, and so would masks by their places.
static bool packs_heads(const Attention &call) {
  return GROUPED && !WINDOWED && !HAS_BIAS && !(CAUSAL && CORNER == AT_TOP_LEFT) && call.seq_q == 1;
}

struct Job {
  const Attention *call;
  bool packed;
  int64_t rows, heads;    // rows that a head, or those that share K and V, have; and how many such there are
  int64_t items, blocks;  // blocks of rows of each
  int64_t parts;          // of an item
  float *partials;        // what each part has found, where there are several
  float scale;            // for powers of two
  float *workspace;
  int64_t next;  // SCHEDULE = 2: the first item nobody has taken
};

// What a part has found: maxima, sums, outputs.
static constexpr int64_t PARTIAL_FLOATS = BLOCK_M * (2 + HEAD_DIM);

// As few as give every thread the same number of them, where the keys are enough.
static int64_t parts_of(const Attention &call, int64_t items) {
  int64_t one = THREADS, other = items;
  while (other) {  // Euclid's
    const int64_t rest = one % other;
    one = other;
    other = rest;
  }
  return items >= THREADS ? 1 : least(THREADS / one, (call.seq_k + BLOCK_N - 1) / BLOCK_N);
}

// One head's K and V and the thread's scratch, as the blocks of an item see them.
struct Head {
  const element *k, *v;
  int64_t k_row, v_row, keys;  // strides of rows; keys there are
  int64_t offset, reach;       // query i sees those up to i + offset, with a window so many before that
  Cap cap;
  Scratch scratch;
  int64_t packed;  // the head whose K and V are packed; -1: none
};

// What tiles step by from key to key: in place, what the tensor has.
static int64_t key_stride(const Head &head) { return PACK_K == 0 ? head.k_row / WORD_ELEMENTS : KEY_STRIDE; }
static int64_t value_stride(const Head &head) { return PACK_V == 0 ? head.v_row : HEAD_DIM; }

static void pack_head(Head &head, int64_t index) {
  if (head.packed == index || head.keys == 0) return;
  head.packed = index;
  if (PACK_K == 2) pack_rows(head.scratch.keys, head.k, head.k_row, head.keys + QK_KEYS - 1, head.keys);
  if (PACK_K == 3)
    for (int64_t n = 0; n < head.keys; n += QK_KEYS)
      pack_key_tile(head.scratch.keys + n * HEAD_WORDS, head.k + n * head.k_row, head.k_row, head.keys - n);
  if (PACK_V == 2) pack_values(head.scratch.values, head.v, head.v_row, head.keys);
}

static void pack_block(const Head &head, int64_t n0, int keys) {
  const int64_t existing = head.keys - n0;
  if (PACK_K == 1)
    pack_rows(head.scratch.keys, head.k + n0 * head.k_row, head.k_row, round_up(keys, QK_KEYS), existing);
  if (PACK_V == 1) pack_values(head.scratch.values, head.v + n0 * head.v_row, head.v_row, keys);
}

// The tile of QK_KEYS keys at key n0 + n and the stride of its keys. In place, the last one of a sequence is copied: no
// read past the tensor.
static const float *key_tile(const Head &head, int64_t n0, int n, int64_t &stride) {
  stride = key_stride(head);
  if (PACK_K == 1) return head.scratch.keys + n * HEAD_WORDS;
  if (PACK_K >= 2) return head.scratch.keys + (n0 + n) * HEAD_WORDS;
  const element *rows = head.k + (n0 + n) * head.k_row;
  if (n0 + n + QK_KEYS <= head.keys) return (const float *)rows;
  pack_key_tile(head.scratch.tail, rows, head.k_row, head.keys - n0 - n);
  stride = KEY_STRIDE;
  return head.scratch.tail;
}

static const float *value_rows(const Head &head, int64_t n0) {
  if (PACK_V == 0) return (const float *)(head.v + n0 * head.v_row);
  return head.scratch.values + (PACK_V == 1 ? 0 : n0 / WORD_ELEMENTS * HEAD_DIM);
}

// Scores of the block's keys for the queries q0 .. q0 + rows - 1.
static void score_block(const Head &head, int64_t n0, int keys, int64_t q0, int rows) {
  const int64_t last = q0 + head.offset, from = last - head.reach;  // that the first query sees
  const Scratch &s = head.scratch;
  for (int m = 0; m < round_up(rows, QUERY_TILE); m += VEC_WIDTH) store(s.block_max + m, splat(HIDDEN));
  for (int n = 0; n < keys; n += QK_KEYS) {
    int64_t stride;
    const float *tile = key_tile(head, n0, n, stride);
    for (int m = 0; m < rows; m += QUERY_TILE) {
      float *to = s.scores + n * BLOCK_M + m;
      const bool after = AT_HIDES && n0 + n > last + m + QUERY_TILE - 1, before = WINDOWED && n0 + n + QK_KEYS <= from + m;
      if (after || before) {  // no query of the tile sees any of its keys
        for (int i = 0; i < QK_KEYS; ++i)
          for (int j = 0; j < QK_VECS; ++j) store(to + i * BLOCK_M + j * VEC_WIDTH, splat(HIDDEN));
      } else {
        score_tile(tile, stride, s.queries + m, to, s.block_max + m, n0 + n, last + m, from + m, head.cap);
      }
    }
  }
}

#if HAS_BIAS
// VEC_WIDTH keys of the bias for VEC_WIDTH queries, the first `rows` of which exist: row j of the result is that of key
// n + j, or anything past the last key.
AT_INLINE void bias_square(const Attention &call, int64_t b, int64_t h, int64_t i, int64_t rows, int64_t n, int64_t place,
                           vec (&square)[VEC_WIDTH]) {
#if HAS_NUMBERS
  (void)place;
  for (int m = 0; m < VEC_WIDTH; ++m) {
    const element *row = call.numbers(b, h, i + least(m, rows - 1)) + n;
    square[m] = vec{};
    if (n + VEC_WIDTH <= call.seq_k) {
#if DTYPE == AT_BFLOAT16
      square[m] = load_bfloat16(row);
#elif DTYPE == AT_FLOAT16
      square[m] = load_float16(row);
#else
      square[m] = load(row);
#endif
    } else {
      for (int64_t j = 0; n + j < call.seq_k; ++j) square[m][j] = to_float(row[j]);
    }
    square[m] = square[m] < splat(-1e37f) && square[m] > splat(-INFINITY) ? splat(-1e37f) : square[m];
  }
  transpose(square);
#else
  (void)b, (void)rows;
  const float slope = ((const float *)call.bias)[h];
  for (int j = 0; j < VEC_WIDTH; ++j)
    for (int m = 0; m < VEC_WIDTH; ++m) square[j][m] = slope * (float)(n + j - i - m - place);
#endif
}

// Adds the bias to a block's scores, which are in `unit` of its own, and looks for the largest anew. What is hidden stays
// hidden, and what becomes -infinity is.
static void bias_block(const Attention &call, const Scratch &s, int64_t b, int64_t h, int64_t n0, int keys, int64_t q0, int rows,
                       int64_t offset, float unit) {
  for (int m = 0; m < round_up(rows, QUERY_TILE); m += VEC_WIDTH) {
    vec most = splat(HIDDEN);
    const int first = m < rows ? m : rows - 1;
    for (int n = 0; n < keys; n += VEC_WIDTH) {
      vec square[VEC_WIDTH];
      bias_square(call, b, h, q0 + first, rows - first, n0 + n, offset, square);
      for (int j = 0; j < VEC_WIDTH && n + j < keys; ++j) {
        float *at = s.scores + (n + j) * BLOCK_M + m;
        vec score = load(at) + square[j] * unit;
        score = load(at) == splat(HIDDEN) || score < splat(HIDDEN) ? splat(HIDDEN) : score;
        most = max(most, score);
        store(at, score);
      }
    }
    store(s.block_max + m, most);
  }
}
#endif

// Scores to probabilities in place, for VEC_WIDTH queries; returns their sums. With BF16_DOT row n / 2 of the result
// holds the pair n, n + 1. The sums are built key after key like those of value_tile: V = 1 then gives O = 1.
AT_INLINE vec exponentials(float *scores, int keys, vec row_max, vec factor) {
  vec sum = {};
#if BF16_DOT
  // Subtracted first: the maximum gives 0, whatever the compiler contracts.
  AT_UNROLL(2)
  for (int n = 0; n < keys; n += 2) {
    const vec low = exp2_nonpositive((load(scores + n * BLOCK_M) - row_max) * factor);
    const vec high = n + 1 < keys ? exp2_nonpositive((load(scores + (n + 1) * BLOCK_M) - row_max) * factor) : vec{};
    sum += low + high;
    store(scores + n / 2 * BLOCK_M, pair_bfloat16(low, high));
  }
#else
  (void)factor;
  AT_UNROLL(4)
  for (int n = 0; n < keys; ++n) {
    const vec p = exp2_nonpositive(load(scores + n * BLOCK_M) - row_max);
    sum += p;
    store(scores + n * BLOCK_M, p);
  }
#endif
  return sum;
}

static void softmax_block(const Scratch &s, int keys, int rows, float scale, bool first) {
  const vec factor = splat(BF16_DOT ? scale : 1.0f);
  for (int m = 0; m < round_up(rows, QUERY_TILE); m += VEC_WIDTH) {
    const vec block_max = load(s.block_max + m);
    const vec row_max = first ? block_max : max(load(s.row_max + m), block_max);
    const vec sum = exponentials(s.scores + m, keys, row_max, factor);
    if (first) {
      store(s.row_sum + m, sum);
    } else {
      const vec decay = exp2_nonpositive((load(s.row_max + m) - row_max) * factor);
      store(s.decay + m, decay);
      store(s.row_sum + m, sum + load(s.row_sum + m) * decay);
    }
    store(s.row_max + m, row_max);
  }
}

static void value_block(const Head &head, int64_t n0, int keys, int64_t q0, int rows, bool first) {
  const Scratch &s = head.scratch;
  const float *values = value_rows(head, n0);
  const int64_t stride = value_stride(head);
  for (int m = 0; m < rows; m += PV_ROWS) {
    const int64_t visible = AT_HIDES ? least(keys, q0 + head.offset + m + PV_ROWS - n0) : keys;
    int64_t hidden = 0;  // before those that the rows see, in whole words
    if (WINDOWED && q0 + head.offset - head.reach + m > n0)
      hidden = (q0 + head.offset - head.reach + m - n0) / WORD_ELEMENTS * WORD_ELEMENTS;
    if (visible <= hidden) {
      if (first)
        for (int i = 0; i < PV_ROWS * HEAD_DIM; i += VEC_WIDTH) store(s.output + m * HEAD_DIM + i, vec{});
      continue;
    }
    const int steps = (int)((visible - hidden + WORD_ELEMENTS - 1) / WORD_ELEMENTS);
    const float *p = s.scores + hidden / WORD_ELEMENTS * BLOCK_M + m, *v = values + hidden / WORD_ELEMENTS * stride;
    for (int d = 0; d < HEAD_DIM; d += PV_VECS * VEC_WIDTH)
      value_tile(p, v + d, stride, steps, s.decay + m, s.output + m * HEAD_DIM + d, first);
  }
}

// What a vector of queries divides by. Where every score of a query is HIDDEN its maximum is, too, and its sum no sum: it
// sees no key, or all that it sees have a score of -infinity, of which the softmax is undefined. Past a window a query may
// have met the last key again, which fills up its tile, and nothing else.
static vec divisor(const Scratch &s, int m) {
  const vec sum = load(s.row_sum + m), none = splat(AT_MAY_BE_BLIND ? INFINITY : NAN);
  if (WINDOWED) return load(s.row_max + m) > splat(HIDDEN) ? sum == splat(0) ? none : sum : none;
  return AT_MAY_BE_BLIND || AT_HIDES ? load(s.row_max + m) > splat(HIDDEN) ? sum : none : sum;
}

// What each query is multiplied by in the end goes to `decay`, which is free by now.
static void reciprocals(const Scratch &s, int rows) {
  for (int m = 0; m < round_up(rows, QUERY_TILE); m += VEC_WIDTH) store(s.decay + m, 1.0f / divisor(s, m));
}

// The same with a sink beside the scores, which is in powers of two: maxima and sums take it in. `scale` makes powers of
// two of maxima.
static void take_in(const Scratch &s, int rows, const Attention &call, int64_t h, bool packed, float scale) {
  for (int m = 0; m < rows; ++m) {
    const float sink = call.sink(packed ? h + m : h) * 1.44269504f;
    const bool blind = s.decay[m] == 0;
    const float largest = s.row_max[m] * scale, most = blind || sink > largest ? sink : largest;
    const float decay = blind ? 0 : exp2f(largest - most), sum = decay / s.decay[m] + exp2f(sink - most);
    s.decay[m] = blind ? 0 : decay / sum;
    s.row_sum[m] = blind ? 1 : sum;
    s.row_max[m] = most / scale;
  }
}

static void store_output(const Scratch &s, element *o, int64_t stride, int rows) {
  for (int m = 0; m < rows; ++m) {
    const vec factor = splat(s.decay[m]);
    for (int d = 0; d < HEAD_DIM; d += VEC_WIDTH) {
      const vec x = load(s.output + m * HEAD_DIM + d) * factor;
#if DTYPE == AT_BFLOAT16
      store_bfloat16(o + m * row_step(stride) + d, x);
#elif DTYPE == AT_FLOAT16
      store_float16(o + m * row_step(stride) + d, x);
#else
      store(o + m * row_step(stride) + d, x);
#endif
    }
  }
}

// ln(sum(exp(score))) of each query: maxima are in powers of two, with BF16_DOT before they are scaled.
static void store_lse(const Scratch &s, float *lse, int rows, float scale) {
  for (int m = 0; m < rows; ++m) {
    const float largest = s.row_max[m];
    const float power = largest * (BF16_DOT ? scale : 1.0f) + log2f(s.row_sum[m]);
    lse[m] = AT_MAY_BE_BLIND && !HAS_SINKS && largest <= HIDDEN ? -INFINITY : power * 0.693147181f;
  }
}

static void store_nothing(const Attention &call, int64_t b, int64_t h, int64_t q0, int rows, bool packed) {
  for (int m = 0; m < rows; ++m) {
    const int64_t head = packed ? h + m : h, query = packed ? q0 : q0 + m;
    __builtin_memset(call.o.at(b, head, query), 0, HEAD_DIM * sizeof(element));
    if (LSE) *call.lse_at(b, head, query) = call.sink(head);
  }
}

static void put_aside(const Scratch &s, float *partial, bool nothing) {
  for (int m = 0; m < BLOCK_M; ++m) {
    partial[m] = nothing ? HIDDEN : s.row_max[m];
    partial[BLOCK_M + m] = nothing ? 0 : s.row_sum[m];
  }
  for (int i = 0; i < BLOCK_M * HEAD_DIM; ++i) partial[2 * BLOCK_M + i] = nothing ? 0 : s.output[i];
}

// Makes of what the parts have found, in their order, what one would have. `scale` makes powers of two of maxima.
static void merge(const Scratch &s, const float *partials, int64_t parts, int rows, float scale) {
  for (int m = 0; m < rows; ++m) {
    float most = HIDDEN, sum = 0;
    for (int64_t i = 0; i < parts; ++i)
      most = partials[i * PARTIAL_FLOATS + m] > most ? partials[i * PARTIAL_FLOATS + m] : most;
    float *output = s.output + m * HEAD_DIM;
    for (int64_t i = 0; i < parts; ++i) {
      const float *found = partials + i * PARTIAL_FLOATS, *from = found + 2 * BLOCK_M + m * HEAD_DIM;
      const float weight = exp2f((found[m] - most) * scale);
      sum += weight * found[BLOCK_M + m];
      for (int d = 0; d < HEAD_DIM; d += VEC_WIDTH)
        store(output + d, (i == 0 ? vec{} : load(output + d)) + load(from + d) * splat(weight));
    }
    s.row_max[m] = most;
    s.row_sum[m] = sum;
  }
}

// Which rows an item has, and which keys any of these sees.
struct Item {
  int64_t b, h, q0;
  int rows;
  int64_t begin, end;

  Item(const Job &job, int64_t item) {
    const Attention &call = *job.call;
    const int64_t index = item / job.blocks, block = item % job.blocks;
    // Causal: the last block sees the most keys, so it goes first and the threads end together.
    const int64_t first = (CAUSAL ? job.blocks - 1 - block : block) * BLOCK_M;
    b = index / job.heads;
    q0 = job.packed ? 0 : first;
    h = index % job.heads * (job.packed ? job.rows : 1) + first - q0;
    rows = (int)least(BLOCK_M, job.rows - first);
    begin = call.begin(q0, call.keys(b));
    end = call.seen(job.packed ? q0 : q0 + rows - 1, call.keys(b));
  }
};

static void write(const Job &job, const Scratch &s, const Item &item) {
  const Attention &call = *job.call;
  reciprocals(s, item.rows);
  if (HAS_SINKS) take_in(s, item.rows, call, item.h, job.packed, BF16_DOT ? job.scale : 1.0f);
  store_output(s, call.o.at(item.b, item.h, item.q0), job.packed ? call.o.head : call.o.row, item.rows);
  if (LSE) store_lse(s, call.lse_at(item.b, item.h, item.q0), item.rows, job.scale);
}

static void run_part(const Job &job, Head &head, int64_t number) {
  const Attention &call = *job.call;
  const Item item(job, number / job.parts);
  const int64_t b = item.b, h = item.h, q0 = item.q0, part = number % job.parts;
  const int rows = item.rows;
  if (AT_MAY_BE_BLIND && item.end <= item.begin) {
    if (part == 0) store_nothing(call, b, h, q0, rows, job.packed);
    return;
  }
  head.keys = call.keys(b);
  head.offset = call.offset(head.keys) + call.right;
  head.reach = call.left + call.right;
  head.k = call.k.at(b, h / call.group, 0);
  head.v = call.v.at(b, h / call.group, 0);
  pack_head(head, b * (call.heads / call.group) + h / call.group);
  pack_queries(head.scratch.queries, call.q.at(b, h, q0), job.packed ? call.q.head : call.q.row, rows, job.scale);
  const int64_t start = item.begin / BLOCK_N * BLOCK_N;  // panels and pairs of keys begin there
  const int64_t blocks = (item.end - start + BLOCK_N - 1) / BLOCK_N;
  const int64_t begin = start + blocks * part / job.parts * BLOCK_N;
  const int64_t end = least(item.end, start + blocks * (part + 1) / job.parts * BLOCK_N);
  for (int64_t n0 = begin; n0 < end; n0 += BLOCK_N) {
    const int keys = (int)least(BLOCK_N, end - n0);
    pack_block(head, n0, keys);
    score_block(head, n0, keys, q0, rows);
#if HAS_BIAS
    bias_block(call, head.scratch, b, h, n0, keys, q0, rows, call.offset(head.keys),
               BF16_DOT ? 1.44269504f / job.scale : 1.44269504f);
#endif
    softmax_block(head.scratch, keys, rows, job.scale, n0 == begin);
    value_block(head, n0, keys, q0, rows, n0 == begin);
  }
  if (job.parts == 1)
    write(job, head.scratch, item);
  else
    put_aside(head.scratch, job.partials + number * PARTIAL_FLOATS, begin >= end);
}

static void merge_parts(const Job &job) {
  const Scratch s(job.workspace, job.call->seq_k);
  for (int64_t i = 0; i < job.items; ++i) {
    const Item item(job, i);
    if (AT_MAY_BE_BLIND && item.end <= item.begin) continue;
    merge(s, job.partials + i * job.parts * PARTIAL_FLOATS, job.parts, item.rows, BF16_DOT ? job.scale : 1.0f);
    write(job, s, item);
  }
}

static void run_thread(void *context, int thread) {
  Job &job = *(Job *)context;
  const Attention &call = *job.call;
  Head head = {nullptr, nullptr, call.k.row, call.v.row, 0, 0, 0, {}, Scratch(nullptr, call.seq_k), -1};
  // Scores are in powers of two, or with BF16_DOT not scaled yet.
  if (SOFTCAPPED) head.cap.after = BF16_DOT ? call.cap * 1.44269504f / job.scale : call.cap * 1.44269504f;
  if (SOFTCAPPED) head.cap.before = 1 / head.cap.after;
  head.scratch = Scratch(job.workspace + thread * head.scratch.floats, call.seq_k);
  const int64_t pieces = job.items * job.parts;
  if (SCHEDULE == 0) {
    const int64_t end = pieces * (thread + 1) / THREADS;
    for (int64_t item = pieces * thread / THREADS; item < end; ++item) run_part(job, head, item);
  } else if (SCHEDULE == 1) {
    for (int64_t item = thread; item < pieces; item += THREADS) run_part(job, head, item);
  } else {
    int64_t item;
    while ((item = __atomic_fetch_add(&job.next, 1, __ATOMIC_RELAXED)) < pieces) run_part(job, head, item);
  }
}

static Job job_of(const Attention &call) {
  Job job;
  job.call = &call;
  job.packed = packs_heads(call);
  job.rows = job.packed ? call.group : call.seq_q;
  job.heads = job.packed ? call.heads / call.group : call.heads;
  job.blocks = (job.rows + BLOCK_M - 1) / BLOCK_M;
  job.items = call.batch * job.heads * job.blocks;
  job.parts = parts_of(call, job.items);
  job.next = 0;
  return job;
}

extern "C" int64_t variant_workspace(const at_call *call) {
  const Attention attention(call);
  const Job job = job_of(attention);
  const int64_t partials = job.parts == 1 ? 0 : job.items * job.parts * PARTIAL_FLOATS;
  return (Scratch(nullptr, attention.seq_k).floats * THREADS + partials) * (int64_t)sizeof(float);
}

extern "C" int variant_run(const at_call *call) {
  if (BF16_DOT && call->scalar[SDPA_SCALE] < 0) return AT_OUTSIDE_DOMAIN;  // the maximum is taken before scaling
  if (call->workspace == nullptr || call->workspace_bytes < variant_workspace(call)) return AT_NO_WORKSPACE;
  const Attention attention(call);
  Job job = job_of(attention);
  job.scale = (float)(call->scalar[SDPA_SCALE] * 1.4426950408889634);
  job.workspace = (float *)call->workspace;
  job.partials = job.workspace + Scratch(nullptr, attention.seq_k).floats * THREADS;
  const int status = pool_run(run_thread, &job);
  if (status == AT_OK && job.parts > 1) merge_parts(job);
  return status;
}
