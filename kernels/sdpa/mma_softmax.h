// What a warp does with a tile: scores, softmax and output, all in registers.
//
// An accumulator of a 16x8 product holds, in lane 4 g + t, columns 2 t and 2 t + 1 of row g, then of row g + 8. The
// same registers, rounded and in pairs, are the left operand of the next product: probabilities never leave the warp.
#ifndef MMA_SOFTMAX_H
#define MMA_SOFTMAX_H

#include "cap.h"
#include "exponential.h"
#include "mma_shape.h"

// 16 rows of Q, of scores and of probabilities.
struct Queries {
  uint32_t fragment[HEAD_DIM / 16][4] = {};
#if FP8_CACHE
  float raise[2] = {1.0f, 1.0f};  // what scores of its rows are to be multiplied by
#endif
#if HAS_BIAS
  RowBias bias[2];
#endif

  // What makes powers of two of a row's scores: not 0, since some are -infinity.
  __device__ __forceinline__ float unit(float scale, [[maybe_unused]] int half) const {
#if FP8_CACHE
    return max_nan(scale * raise[half], 1e-30f);
#else
    return scale;
#endif
  }
};

struct Scores {
  float fragment[BLOCK_N / 8][4] = {};
};

struct Probabilities {
  uint32_t fragment[BLOCK_N / 16][4] = {};
};

// The softmax of the keys so far, for 16 rows. The maximum is that of scores before they are scaled: how far another one
// lies below is then as exact as a float is, however large both are. `sum` covers the lane's own columns only.
struct Partial {
  float output[FRAGMENTS][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};
  float sink[2];  // of the rows' heads
};

// A row that has seen no key yet has the maximum -inf; what is subtracted from -inf must be a number.
AT_DEVICE float finite(float max) { return max == -INFINITY ? 0.0f : max; }

AT_DEVICE float quad_max(float x) {
  x = max_nan(x, __shfl_xor_sync(~0u, x, 1));
  return max_nan(x, __shfl_xor_sync(~0u, x, 2));
}

AT_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

AT_DEVICE void query_from_global(Queries &queries, const Place &at, const sdpa_args &args, int first_row) {
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    const int row = first_row + at.lane / 4 + half * 8;
    const bool valid = (FIXED && AT_SEQ_Q(at) % CLUSTER_ROWS == 0) || row < at.rows;
    const element *from = (const element *)args.q + at.place(row, args.q_stride);
    const uint32_t *words = pair_of((const uint32_t *)from, 0, at.lane % 4);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++) queries.fragment[i / 2][i % 2 * 2 + half] = valid ? *pair_of(words, i, 0) : 0;
  }
}

// What is added to scores of these rows, read once.
AT_DEVICE void find_bias([[maybe_unused]] Queries &queries, [[maybe_unused]] const Place &at, [[maybe_unused]] int first_row) {
#if HAS_BIAS
#pragma unroll
  for (int half = 0; half < HALVES; half++) queries.bias[half] = at.bias_of(first_row + at.lane / 4 + half * 8);
#endif
}

// Keys past the end, and those that a row does not see; before, scores are capped, and what is to be added is.
AT_DEVICE void mask(Scores &scores, [[maybe_unused]] const Queries &queries, const Place &at, int first_row, int key) {
#if SOFTCAPPED
#pragma unroll
  for (int j = 0; j < BLOCK_N / 8; j++) cap(scores.fragment[j], at.before_cap);
#endif
#if HAS_BIAS
#pragma unroll
  for (int half = 0; half < HALVES; half++)
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; j++) {
      const float2 pair = queries.bias[half].of(key + at.lane % 4 * 2, j * 8);
      scores.fragment[j][half * 2] += pair.x;
      scores.fragment[j][half * 2 + 1] += pair.y;
    }
#endif
  if (FIXED && !HIDES && !KEY_LENGTHS && AT_SEQ_K(at) % BLOCK_N == 0) return;
#if WINDOWED
  if (key < at.begin_of(first_row + TILE_ROWS - 1)) {
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
      const int begin = at.begin_of(first_row + at.lane / 4 + half * 8) - key - at.lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < BLOCK_N / 8; j++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if (j * 8 + i < begin) scores.fragment[j][half * 2 + i] = -INFINITY;
    }
  }
#endif
  if (key + BLOCK_N <= at.end_of(first_row)) return;
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    const int end = at.end_of(first_row + at.lane / 4 + half * 8) - key - at.lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; j++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        if (j * 8 + i >= end) scores.fragment[j][half * 2 + i] = -INFINITY;
  }
}

// The lane's largest score of a row; no number where one of them is none.
AT_DEVICE float lane_max(const Scores &scores, int half) {
  float max = max_nan(scores.fragment[0][half * 2], scores.fragment[0][half * 2 + 1]);
#pragma unroll
  for (int j = 1; j < BLOCK_N / 8; j++)
    max = max_nan(max, max_nan(scores.fragment[j][half * 2], scores.fragment[j][half * 2 + 1]));
  return max;
}

// Two probabilities as the second product takes them: halves, as values of FP8 are halves as they are.
AT_DEVICE uint32_t pack_probabilities(float low, float high) {
#if FP8_CACHE
  const __half2 pair = __floats2half2_rn(low, high);
  return *(const uint32_t *)&pair;
#else
  return pack(low, high);
#endif
}

// Scores to probabilities, with what has been summed so far brought to the new maximum. A score that is no number makes
// the maximum none, and then the sum.
AT_DEVICE void softmax(Probabilities &probabilities, Partial &partial, const Scores &scores, const Queries &queries,
                       float scale, bool first) {
  float most[2], unit[2], decay[2];
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    const float here = quad_max(lane_max(scores, half)), max = first ? here : max_nan(partial.max[half], here);
    most[half] = HIDES || HAS_NUMBERS ? finite(max) : max;
    unit[half] = queries.unit(scale, half);
    decay[half] = first ? 1.0f : exponential((partial.max[half] - most[half]) * unit[half]);
    partial.max[half] = max;
  }
  if (!first) {
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
      partial.sum[half] *= decay[half];
#pragma unroll
      for (int i = 0; i < FRAGMENTS; i++) {
        partial.output[i][half * 2] *= decay[half];
        partial.output[i][half * 2 + 1] *= decay[half];
      }
    }
  }
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    if (!EXPONENTIAL_TELLS) partial.sum[half] += most[half] - most[half];  // 0, or no number where the maximum is none
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; j++) {
      const float low = exponential((scores.fragment[j][half * 2] - most[half]) * unit[half], j * 2);
      const float high = exponential((scores.fragment[j][half * 2 + 1] - most[half]) * unit[half], j * 2 + 1);
      partial.sum[half] += low + high;
      probabilities.fragment[j / 2][j % 2 * 2 + half] = pack_probabilities(low, high);
    }
  }
}

// The two products. Both take pieces of a tile in shared memory, each of which serves all of the warp's rows.
#if FP8_CACHE
#include "mma_cache.h"
#else

AT_DEVICE void score(Scores (&scores)[ROW_TILES], const Queries (&queries)[ROW_TILES], const unsigned char *tile,
                     int lane) {
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 16; i++) {
    const unsigned char *keys = tile + piece(BLOCK_N, lane % 8 + lane / 16 * 8, lane / 8 % 2, i);
#pragma unroll
    for (int j = 0; j < BLOCK_N / 16; j++) {
      uint32_t k[4];
      ldmatrix_x4(k, keys + j * 16 * ROW_BYTES);
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
        mma_m16n8k16(scores[m].fragment[2 * j], queries[m].fragment[i], k[0], k[1], element());
        mma_m16n8k16(scores[m].fragment[2 * j + 1], queries[m].fragment[i], k[2], k[3], element());
      }
    }
  }
}

AT_DEVICE void accumulate(Partial (&partial)[ROW_TILES], const Probabilities (&probabilities)[ROW_TILES],
                          const unsigned char *tile, int lane) {
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 16; i++) {
    const unsigned char *values = tile + piece(BLOCK_N, lane % 16, lane / 16, i);
#pragma unroll
    for (int j = 0; j < BLOCK_N / 16; j++) {
      uint32_t v[4];
      ldmatrix_x4_trans(v, values + j * 16 * ROW_BYTES);
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
        mma_m16n8k16(partial[m].output[2 * i], probabilities[m].fragment[j], v[0], v[1], element());
        mma_m16n8k16(partial[m].output[2 * i + 1], probabilities[m].fragment[j], v[2], v[3], element());
      }
    }
  }
}

AT_DEVICE void in_order(Partial (&)[ROW_TILES]) {}

#endif
#endif
