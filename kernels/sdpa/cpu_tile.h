// The two matrix products, one register tile at a time. Every accumulator of a tile stays in a vector register.
//
// Scores are computed transposed, S^T = K Q^T: a vector holds VEC_WIDTH queries and the words of K are broadcast. So K
// needs no transposing, the softmax needs no sums across lanes, and P^T[n][m] is in the order in which the product with
// V broadcasts it.
#ifndef AUTOTUNER_SDPA_CPU_TILE_H
#define AUTOTUNER_SDPA_CPU_TILE_H

#include "cpu_pack.h"

// Below every score, yet finite: it takes part in differences and maxima like any other. 2^(HIDDEN - max) is exactly 0.
static constexpr float HIDDEN = -3e38f;

// Scores become tanh(score * before) * after.
struct Cap {
  float before, after;
};

AT_INLINE void prefetch(const float *p) { __builtin_prefetch(p, 0, 3); }

// Sets the scores that the mask hides. Key `key` of the sequence is the tile's first, and the first query of the tile
// sees the keys up to `query`, and with a window from `from` on.
AT_INLINE void hide(vec (&score)[QK_KEYS][QK_VECS], int64_t key, int64_t query, [[maybe_unused]] int64_t from) {
  ivec lane;
  for (int i = 0; i < VEC_WIDTH; ++i) lane[i] = i;
  AT_UNROLL(16)
  for (int i = 0; i < QK_KEYS; ++i)
    AT_UNROLL(8)
    for (int j = 0; j < QK_VECS; ++j)
      score[i][j] = lane >= (int32_t)(key + i - query - j * VEC_WIDTH) ? score[i][j] : splat(HIDDEN);
#if WINDOWED
  AT_UNROLL(16)
  for (int i = 0; i < QK_KEYS; ++i)
    AT_UNROLL(8)
    for (int j = 0; j < QK_VECS; ++j)
      score[i][j] = lane <= (int32_t)(key + i - from - j * VEC_WIDTH) ? score[i][j] : splat(HIDDEN);
#endif
}

// scores[i][m] for the tile's QK_KEYS keys and QK_VECS * VEC_WIDTH queries; block_max[m] grows to their maximum.
static void score_tile(const float *keys, int64_t key_stride, const float *queries, float *scores, float *block_max,
                       int64_t key, int64_t query, int64_t from, [[maybe_unused]] const Cap &cap) {
  const int64_t step = LAYOUT == AT_BHSD || PACK_K > 0 ? KEY_STRIDE : key_stride;
  vec score[QK_KEYS][QK_VECS] = {};
  AT_UNROLL(UNROLL)
  for (int w = 0; w < HEAD_WORDS; ++w) {
    vec q[QK_VECS];
    AT_UNROLL(8)
    for (int j = 0; j < QK_VECS; ++j) q[j] = load(queries + w * BLOCK_M + j * VEC_WIDTH);
    AT_UNROLL(16)
    for (int i = 0; i < QK_KEYS; ++i) {
      const vec k = splat_word(keys + i * step + w * WORD_STRIDE);
      AT_UNROLL(8)
      for (int j = 0; j < QK_VECS; ++j) score[i][j] = multiply_add(k, q[j], score[i][j]);
    }
  }
#if SOFTCAPPED
  AT_UNROLL(16)
  for (int i = 0; i < QK_KEYS; ++i)
    AT_UNROLL(8)
    for (int j = 0; j < QK_VECS; ++j) score[i][j] = tanh(score[i][j] * cap.before) * cap.after;
#endif
  if ((AT_HIDES && key + QK_KEYS - 1 > query) || (WINDOWED && key < from + QK_VECS * VEC_WIDTH - 1))
    hide(score, key, query, from);
  AT_UNROLL(8)
  for (int j = 0; j < QK_VECS; ++j) {
    vec most = load(block_max + j * VEC_WIDTH);
    AT_UNROLL(16)
    for (int i = 0; i < QK_KEYS; ++i) {
      most = max(most, score[i][j]);
      store(scores + i * BLOCK_M + j * VEC_WIDTH, score[i][j]);
    }
    store(block_max + j * VEC_WIDTH, most);
  }
}

// output[i][d] = output[i][d] * decay[i] + sum over the steps of P^T[step][i] * values[step][d], for PV_ROWS queries
// and PV_VECS vectors of dims. The sum starts from zero: adding block sums rounds less than one long chain of additions.
static void value_tile(const float *probabilities, const float *values, int64_t stride, int steps, const float *decay,
                       float *output, bool first) {
  const int64_t apart = LAYOUT == AT_BHSD || PACK_V > 0 ? HEAD_DIM : stride;
  vec sum[PV_ROWS][PV_VECS] = {};
  AT_UNROLL(UNROLL)
  for (int step = 0; step < steps; ++step) {
    vec v[PV_VECS];
    AT_UNROLL(8)
    for (int j = 0; j < PV_VECS; ++j) {
      v[j] = load(values + step * apart + j * VEC_WIDTH);
      if (PREFETCH > 0 && j * VEC_WIDTH % 16 == 0) prefetch(values + (step + PREFETCH) * apart + j * VEC_WIDTH);
    }
    AT_UNROLL(16)
    for (int i = 0; i < PV_ROWS; ++i) {
      const vec p = splat_word(probabilities + step * BLOCK_M + i);
      AT_UNROLL(8)
      for (int j = 0; j < PV_VECS; ++j) sum[i][j] = multiply_add(p, v[j], sum[i][j]);
    }
  }
  AT_UNROLL(16)
  for (int i = 0; i < PV_ROWS; ++i)
    AT_UNROLL(8)
    for (int j = 0; j < PV_VECS; ++j) {
      float *o = output + i * HEAD_DIM + j * VEC_WIDTH;
      store(o, first ? sum[i][j] : sum[i][j] + load(o) * decay[i]);
    }
}

#endif
