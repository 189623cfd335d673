// The softmax of a warpgroup's tile of scores, in registers: those of lane 4 g + t of a warp are columns 8 i + 2 t and
// 8 i + 2 t + 1 of row g (half 0), then of row g + 8 (half 1), of the warp's 16 rows.
#ifndef WGMMA_SOFTMAX_H
#define WGMMA_SOFTMAX_H

#include "cap.h"
#include "cuda_ptx.h"
#include "shift.h"
#include "wgmma_shape.h"

typedef float Scores[BLOCK_N / 2];

// The numbers of a half, in the order of the columns.
AT_DEVICE constexpr int place(int half, int i) { return i / 2 * 4 + half * 2 + i % 2; }
static constexpr int HALF = BLOCK_N / 4;

// The softmax of the keys so far. `max` is the largest scaled score seen or, with SPECULATE, some number that is not far
// below: the results are divided by a sum that is relative to the same number. `sum` covers the lane's own columns only.
struct Softmax {
  float max[2], sum[2];
  float decay[2];  // what sums and outputs so far are to be multiplied by, where the last tile says so
  bool large;      // some row of the warp has a maximum that is not to be subtracted while scores are scaled
};

AT_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

AT_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Four running maxima, so that they do not wait for each other.
AT_DEVICE float row_max(const Scores &scores, int half) {
  float max[4];
#pragma unroll
  for (int i = 0; i < HALF; i++) {
    const float score = scores[place(half, i)];
    max[i % 4] = i < 4 ? score : fmaxf(max[i % 4], score);
  }
  return quad_max(fmaxf(fmaxf(max[0], max[1]), fmaxf(max[2], max[3])));
}

// A pair of probabilities as it is summed: with ROUND_SUMS as the second product takes it.
AT_DEVICE float pair_sum(float even, float odd) {
  const float2 pair = ROUND_SUMS ? unpack(pack(even, odd)) : make_float2(even, odd);
  return pair.x + pair.y;
}

// Scores to probabilities, in place: 2^(score * scale - shift), not rounded yet. `sum` is that of the lane's columns.
AT_DEVICE void exponentiate(Scores &scores, const float (&shift)[2], float scale, float (&sum)[2]) {
#pragma unroll
  for (int i = 0; i < HALF; i += 2)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float &even = scores[place(half, i)], &odd = scores[place(half, i + 1)];
      even = exp2_approx(fmaf(even, scale, -shift[half]));
      odd = exp2_approx(fmaf(odd, scale, -shift[half]));
      sum[half] = i == 0 ? pair_sum(even, odd) : sum[half] + pair_sum(even, odd);
    }
}

// The maximum first. A row that has seen no key yet subtracts 0, not -inf.
template <bool FIRST>
AT_DEVICE void softmax_exact(Softmax &state, Scores &scores, float scale) {
  float shift[2], sum[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float max = row_max(scores, half) * scale;
    if (!FIRST) max = fmaxf(max, state.max[half]);
    shift[half] = (HIDES || HAS_NUMBERS) && max == -INFINITY ? 0.0f : max;
    if (!FIRST) state.decay[half] = exp2_approx(state.max[half] - shift[half]);
    state.max[half] = max;
  }
  state.large = __any_sync(~0u, !fuses(shift[0]) || !fuses(shift[1]));
  if (__builtin_expect(state.large, 0)) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; i++) scores[i] = shifted(scores[i], scale, shift[i / 2 % 2]);
    shift[0] = shift[1] = 0.0f;
  }
  exponentiate(scores, shift, scale, sum);
#pragma unroll
  for (int half = 0; half < 2; half++)
    state.sum[half] = FIRST ? sum[half] : fmaf(state.sum[half], state.decay[half], sum[half]);
}

// A sum of probabilities up to LARGEST_SUM leaves each of them, and their products with V, well inside float16. Up to
// OVERFLOWN they are finite floats and can still be scaled.
static constexpr float LARGEST_SUM = 4096.0f, OVERFLOWN = 1e30f;

// Brings a tile whose probabilities have grown too large, and what was summed before, to the tile's own maximum, whose
// probability is then 1 as with an exact softmax: where one key has all the weight nothing is rounded. The tile is summed
// anew: rounded sums may have overflown.
AT_DEVICE void shrink(Softmax &state, Scores &scores, int half, float largest) {
  const float max = state.max[half] + __log2f(fmaxf(largest, 1.0f)), factor = exp2_approx(state.max[half] - max);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < HALF; i += 2) {
    float &even = scores[place(half, i)], &odd = scores[place(half, i + 1)];
    even *= factor;
    odd *= factor;
    sum += pair_sum(even, odd);
  }
  state.decay[half] = factor;
  state.max[half] = max;
  state.sum[half] = state.sum[half] * factor + sum;
}

// With the maximum of earlier tiles, which is almost always good enough: no maximum is looked for, nothing is rescaled,
// and the sum, which is wanted anyway, tells whether it was. Otherwise the warp goes back: `rescore` brings the scores
// again where they were lost. True when `decay` is to be applied. Where a maximum is -inf (no key seen) or very large
// nothing is guessed; with OVERLAP 2, where there must be no branch before exponentials, they are made in vain.
template <class Rescore>
AT_DEVICE bool softmax_speculative(Softmax &state, Scores &scores, float scale, const Rescore &rescore) {
  const bool guesses = !state.large;
  if (WEAVES || __builtin_expect(guesses, 1)) {
    float sum[2];
    exponentiate(scores, state.max, scale, sum);
    const bool small = guesses && sum[0] <= LARGEST_SUM && sum[1] <= LARGEST_SUM;  // false for NaN
    if (__builtin_expect(__all_sync(~0u, small), 1)) {
      state.sum[0] += sum[0];
      state.sum[1] += sum[1];
      return false;
    }
    const float largest[2] = {row_max(scores, 0), row_max(scores, 1)};
    if (__all_sync(~0u, guesses && largest[0] < OVERFLOWN && largest[1] < OVERFLOWN)) {
      shrink(state, scores, 0, largest[0]);
      shrink(state, scores, 1, largest[1]);
      return true;
    }
    rescore(scores);
  }
  softmax_exact<false>(state, scores, scale);
  return true;
}

#endif
