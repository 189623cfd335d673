// Attention with vectors: queries across the lanes, keys in blocks, online softmax.
//
// A work item is a block of BLOCK_M queries of one head. It goes through the keys in blocks of BLOCK_N:
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
#include "sdpa.h"

#include "cpu_pack.h"
#include "cpu_pool.h"
#include "cpu_tile.h"

static_assert(DTYPE == AT_FLOAT32 || DTYPE == AT_BFLOAT16, "float32 and bfloat16 only");
static_assert(HEAD_WORDS % VEC_WIDTH == 0, "a row of Q is whole vectors");
static_assert(BLOCK_M % (QK_VECS * VEC_WIDTH) == 0, "a block of queries is whole score tiles");
static_assert(BLOCK_M % PV_ROWS == 0, "a block of queries is whole output tiles");
static_assert(HEAD_DIM % (PV_VECS * VEC_WIDTH) == 0, "a row of V is whole output tiles");
static_assert(PACK_K != 3 || BLOCK_N % QK_KEYS == 0, "a panel may not straddle two blocks");
static_assert(PACK_K >= 0 && PACK_K <= 3 && PACK_V >= 0 && PACK_V <= 2, "unknown PACK_K or PACK_V");
static_assert(!WIDEN || (PACK_K > 0 && PACK_V > 0), "widening needs a place to put the floats");
static_assert(!BF16_DOT || (DTYPE == AT_BFLOAT16 && PACK_V > 0), "the dot product wants bfloat16, V in pairs of keys");
static_assert(!BF16_DOT || BLOCK_N % 2 == 0, "a pair of keys may not straddle two blocks");
static_assert(SCHEDULE >= 0 && SCHEDULE <= 2, "unknown SCHEDULE");
#if BF16_DOT && !(defined(__AVX512BF16__) && defined(__AVX512VL__))
#error "BF16_DOT needs AVX-512 BF16"
#endif
#if (defined(EXP_SCALEF3) || defined(EXP_SCALEF5)) && !defined(__AVX512VL__)
#error "EXP=scalef needs AVX-512"
#endif
#if (defined(EXP_POLY3) || defined(EXP_SCALEF3) || defined(EXP_TABLE1)) && DTYPE == AT_FLOAT32
#error "this EXP is too coarse for float32"
#endif
#if (defined(EXP_TABLE1) || defined(EXP_TABLE2)) && !(defined(__AVX512F__) && VEC_WIDTH == 16)
#error "EXP=table needs AVX-512 and VEC_WIDTH=16: the table is two registers"
#endif

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

struct Job {
  const element *q, *k, *v;
  element *o;
  int64_t seq_q, seq_k, items, blocks;  // blocks of queries a head
  float scale;
  float *workspace;
  int64_t next;  // SCHEDULE = 2: the first item nobody has taken
};

// One head's K and V and the thread's scratch, as the blocks of an item see them.
struct Head {
  const element *k, *v;
  int64_t seq_k;
  Scratch scratch;
  int64_t packed;  // the head whose K and V are packed; -1: none
};

static void pack_head(Head &head, int64_t index) {
  if (head.packed == index) return;
  head.packed = index;
  if (PACK_K == 2) pack_rows(head.scratch.keys, head.k, head.seq_k + QK_KEYS - 1, head.seq_k);
  if (PACK_K == 3)
    for (int64_t n = 0; n < head.seq_k; n += QK_KEYS)
      pack_key_tile(head.scratch.keys + n * HEAD_WORDS, head.k + n * HEAD_DIM, head.seq_k - n);
  if (PACK_V == 2) pack_values(head.scratch.values, head.v, head.seq_k);
}

static void pack_block(const Head &head, int64_t n0, int keys) {
  const int64_t existing = head.seq_k - n0;
  if (PACK_K == 1) pack_rows(head.scratch.keys, head.k + n0 * HEAD_DIM, round_up(keys, QK_KEYS), existing);
  if (PACK_V == 1) pack_values(head.scratch.values, head.v + n0 * HEAD_DIM, keys);
}

// The tile of QK_KEYS keys at key n0 + n. In place, the last one of a sequence is copied: no read past the tensor.
static const float *key_tile(const Head &head, int64_t n0, int n) {
  if (PACK_K == 1) return head.scratch.keys + n * HEAD_WORDS;
  if (PACK_K >= 2) return head.scratch.keys + (n0 + n) * HEAD_WORDS;
  const element *rows = head.k + (n0 + n) * HEAD_DIM;
  if (n0 + n + QK_KEYS <= head.seq_k) return (const float *)rows;
  pack_key_tile(head.scratch.tail, rows, head.seq_k - n0 - n);
  return head.scratch.tail;
}

static const float *value_rows(const Head &head, int64_t n0) {
  if (PACK_V == 0) return (const float *)(head.v + n0 * HEAD_DIM);
  return head.scratch.values + (PACK_V == 1 ? 0 : n0 / WORD_ELEMENTS * HEAD_DIM);
}

// Scores of the block's keys for the queries q0 .. q0 + rows - 1.
static void score_block(const Head &head, int64_t n0, int keys, int64_t q0, int rows) {
  const Scratch &s = head.scratch;
  for (int m = 0; m < round_up(rows, QUERY_TILE); m += VEC_WIDTH) store(s.block_max + m, splat(HIDDEN));
  for (int n = 0; n < keys; n += QK_KEYS) {
    const float *tile = key_tile(head, n0, n);
    for (int m = 0; m < rows; m += QUERY_TILE) {
      float *to = s.scores + n * BLOCK_M + m;
      if (CAUSAL && n0 + n > q0 + m + QUERY_TILE - 1) {  // no query of the tile sees any of its keys
        for (int i = 0; i < QK_KEYS; ++i)
          for (int j = 0; j < QK_VECS; ++j) store(to + i * BLOCK_M + j * VEC_WIDTH, splat(HIDDEN));
      } else {
        score_tile(tile, s.queries + m, to, s.block_max + m, n0 + n, q0 + m);
      }
    }
  }
}

// Scores to probabilities in place, for VEC_WIDTH queries; returns their sums. With BF16_DOT row n / 2 of the result
// holds the pair n, n + 1. The sums are built key after key like those of value_tile: V = 1 then gives O = 1.
AT_INLINE vec exponentials(float *scores, int keys, vec row_max, vec factor) {
  vec sum = {};
#if BF16_DOT
  const vec shift = row_max * factor;
  AT_UNROLL(2)
  for (int n = 0; n < keys; n += 2) {
    const vec low = exp2_nonpositive(load(scores + n * BLOCK_M) * factor - shift);
    const vec high = n + 1 < keys ? exp2_nonpositive(load(scores + (n + 1) * BLOCK_M) * factor - shift) : vec{};
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
  for (int m = 0; m < rows; m += PV_ROWS) {
    const int64_t visible = CAUSAL ? least(keys, q0 + m + PV_ROWS - n0) : keys;
    if (visible <= 0) continue;
    const int steps = (int)((visible + WORD_ELEMENTS - 1) / WORD_ELEMENTS);
    for (int d = 0; d < HEAD_DIM; d += PV_VECS * VEC_WIDTH)
      value_tile(s.scores + m, values + d, steps, s.decay + m, s.output + m * HEAD_DIM + d, first);
  }
}

static void store_output(const Scratch &s, element *o, int rows) {
  // `decay` is free by now: it holds the reciprocals of the sums.
  for (int m = 0; m < round_up(rows, QUERY_TILE); m += VEC_WIDTH) store(s.decay + m, 1.0f / load(s.row_sum + m));
  for (int m = 0; m < rows; ++m) {
    const vec factor = splat(s.decay[m]);
    for (int d = 0; d < HEAD_DIM; d += VEC_WIDTH) {
      const vec x = load(s.output + m * HEAD_DIM + d) * factor;
#if DTYPE == AT_BFLOAT16
      store_bfloat16(o + m * HEAD_DIM + d, x);
#else
      store(o + m * HEAD_DIM + d, x);
#endif
    }
  }
}

static void run_item(const Job &job, Head &head, int64_t item) {
  const int64_t index = item / job.blocks, block = item % job.blocks;
  // Causal: the last block sees the most keys, so it goes first and the threads end together.
  const int64_t q0 = (CAUSAL ? job.blocks - 1 - block : block) * BLOCK_M;
  const int rows = (int)least(BLOCK_M, job.seq_q - q0);
  const int64_t row0 = index * job.seq_q + q0;
  const int64_t end = CAUSAL ? least(job.seq_k, q0 + rows) : job.seq_k;
  head.k = job.k + index * job.seq_k * HEAD_DIM;
  head.v = job.v + index * job.seq_k * HEAD_DIM;
  pack_head(head, index);
  pack_queries(head.scratch.queries, job.q + row0 * HEAD_DIM, rows, job.scale);
  for (int64_t n0 = 0; n0 < end; n0 += BLOCK_N) {
    const int keys = (int)least(BLOCK_N, end - n0);
    pack_block(head, n0, keys);
    score_block(head, n0, keys, q0, rows);
    softmax_block(head.scratch, keys, rows, job.scale, n0 == 0);
    value_block(head, n0, keys, q0, rows, n0 == 0);
  }
  store_output(head.scratch, job.o + row0 * HEAD_DIM, rows);
}

static void run_thread(void *context, int thread) {
  Job &job = *(Job *)context;
  Head head = {nullptr, nullptr, job.seq_k, Scratch(nullptr, job.seq_k), -1};
  head.scratch = Scratch(job.workspace + thread * head.scratch.floats, job.seq_k);
  if (SCHEDULE == 0) {
    const int64_t end = job.items * (thread + 1) / THREADS;
    for (int64_t item = job.items * thread / THREADS; item < end; ++item) run_item(job, head, item);
  } else if (SCHEDULE == 1) {
    for (int64_t item = thread; item < job.items; item += THREADS) run_item(job, head, item);
  } else {
    int64_t item;
    while ((item = __atomic_fetch_add(&job.next, 1, __ATOMIC_RELAXED)) < job.items) run_item(job, head, item);
  }
}

extern "C" int64_t variant_workspace(const at_call *call) {
  return Scratch(nullptr, call->dim[SDPA_SEQ_K]).floats * (int64_t)sizeof(float) * THREADS;
}

extern "C" int variant_run(const at_call *call) {
  if (BF16_DOT && call->scalar[SDPA_SCALE] < 0) return AT_OUTSIDE_DOMAIN;  // the maximum is taken before scaling
  if (call->workspace == nullptr || call->workspace_bytes < variant_workspace(call)) return AT_NO_WORKSPACE;
  Job job;
  job.q = (const element *)call->in[SDPA_Q];
  job.k = (const element *)call->in[SDPA_K];
  job.v = (const element *)call->in[SDPA_V];
  job.o = (element *)call->out[SDPA_O];
  job.seq_q = call->dim[SDPA_SEQ_Q];
  job.seq_k = call->dim[SDPA_SEQ_K];
  job.blocks = (job.seq_q + BLOCK_M - 1) / BLOCK_M;
  job.items = call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS] * job.blocks;
  job.scale = (float)(call->scalar[SDPA_SCALE] * 1.4426950408889634);
  job.workspace = (float *)call->workspace;
  job.next = 0;
  return pool_run(run_thread, &job);
}
