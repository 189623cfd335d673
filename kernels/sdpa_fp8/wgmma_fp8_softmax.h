// The softmax of a warpgroup's tile of scores, in registers: those of lane 4 g + t of a warp are columns 8 i + 2 t and
// 8 i + 2 t + 1 of row g (half 0), then of row g + 8 (half 1), of the warp's 16 rows.
//
// A probability is 2^(score * scale - shift), where the shift is a maximum of the row less an offset: the largest is a power
// of two, which e4m3 has exactly, so that a key which draws all weight has no rounding. Sums are those of the rounded ones.
// A small offset leaves room for larger scores; with a large one small probabilities keep more digits.
#ifndef WGMMA_FP8_SOFTMAX_H
#define WGMMA_FP8_SOFTMAX_H

#include "wgmma_fp8_shape.h"

typedef float Scores[BLOCK_N / 2];
typedef uint32_t Weights[BLOCK_N / 8];  // four probabilities each, as the second product takes them

// The shift of a row that has seen no key. Whatever it sees first is far above, which is noticed.
static constexpr float NOTHING_SEEN = -1e30f;

// The offset where nothing larger is to come: at the only tile, or by an outlier, a score that gives more than 2^FAR.
static constexpr float LARGE_OFFSET = 7.0f, FAR = 10.0f;

AT_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

// Four running maxima, so that they do not wait for each other.
AT_DEVICE float row_max(const Scores &scores, int half) {
  float max[4];
#pragma unroll
  for (int i = 0; i < BLOCK_N / 4; i++) {
    const float score = scores[i / 2 * 4 + half * 2 + i % 2];
    max[i % 4] = i < 4 ? score : fmaxf(max[i % 4], score);
  }
  return quad_max(fmaxf(fmaxf(max[0], max[1]), fmaxf(max[2], max[3])));
}

// Shifts by the maximum so far, of the rows that are `asked`; `decay` is what was summed with the last one to be multiplied
// by.
template <bool FIRST>
AT_DEVICE void move_shift(const Scores &scores, float (&shift)[2], float (&decay)[2], const bool (&asked)[2], float scale,
                          float offset) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float before = FIRST ? NOTHING_SEEN : shift[half], max = row_max(scores, half) * scale;
    const bool outlier = !FIRST && max - before > FAR && before != NOTHING_SEEN;
    const float moved = fmaxf(max - (outlier ? LARGE_OFFSET : offset), before);
    shift[half] = FIRST || asked[half] ? moved : before;
    if (!FIRST) decay[half] = exp2_approx(before - shift[half]);
  }
}

// What a row's probabilities come to.
AT_DEVICE float sum_of(const Weights &weights, int half) {
  float sum = 0.0f;
#pragma unroll
  for (int word = half; word < BLOCK_N / 8; word += 2) {
    const float2 low = unpack_e4m3((uint16_t)weights[word]), high = unpack_e4m3((uint16_t)(weights[word] >> 16));
    sum += (low.x + low.y) + (high.x + high.y);
  }
  sum += __shfl_xor_sync(~0u, sum, 1);
  return sum + __shfl_xor_sync(~0u, sum, 2);
}

// Whether a pair's exponentials, the number `pair` of a row, are those of the multipliers: FMA_SHARE of eight.
AT_DEVICE constexpr bool by_multiplying(int pair) { return (pair + 1) * FMA_SHARE / 8 != pair * FMA_SHARE / 8; }

// Rows that are computed again, of a thread's two; their four lanes agree.
typedef bool Rows[2];

AT_DEVICE bool any_lane(const Rows &rows) { return __any_sync(~0u, rows[0] || rows[1]); }

// Scores to probabilities, or with EXACT those of the rows that are `asked`. Without it some go to the units that multiply,
// which have time, and the lane asks for a row where one of its own is 256 or more, or no number: it may have been cut off
// at 448, or lost. Those units take 2^x as (x + LEAST) * UNIT.
template <bool EXACT>
AT_DEVICE void exponentiate(const Scores &scores, const float (&shift)[2], float scale, Weights &weights, Rows &asked) {
  constexpr float UNIT = 1.0f / (1 << 18), LEAST = 13.9425f;
  const float small_scale = scale * UNIT;
  const float small_shift[2] = {fmaf(-shift[0], UNIT, LEAST * UNIT), fmaf(-shift[1], UNIT, LEAST * UNIT)};
  uint32_t large[2] = {}, seen[2] = {};
#pragma unroll
  for (int word = 0; word < BLOCK_N / 8; word++) {
    const int half = word % 2, first = 4 * (4 * (word / 4) + (word & 2)) + 2 * half;
    uint16_t pair[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float even = scores[first + 4 * i], odd = scores[first + 4 * i + 1];
      if (!EXACT && by_multiplying(2 * word + i))
        pair[i] = pack_e4m3(exp2_halves(fmaf(even, small_scale, small_shift[half]),
                                        fmaf(odd, small_scale, small_shift[half]), seen[half]));
      else
        pair[i] = pack_e4m3(exp2_approx(fmaf(even, scale, -shift[half])), exp2_approx(fmaf(odd, scale, -shift[half])));
    }
    if (!EXACT || asked[half]) weights[word] = join(pair[0], pair[1]);
    large[half] |= weights[word] + 0x08080808u;  // 256 is 0x78, and 0x7f is no number
  }
#pragma unroll
  for (int half = 0; half < 2 && !EXACT; half++)
    asked[half] = (large[half] & 0x80808080u) | (seen[half] & POWERS_TOO_LARGE);
}

// The rows of which any lane has asked for: a row's bits do not depend on those beside it.
AT_DEVICE void agree(Rows &asked) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    asked[half] |= __shfl_xor_sync(~0u, (int)asked[half], 1);
    asked[half] |= __shfl_xor_sync(~0u, (int)asked[half], 2);
  }
}

// The first tile, or any with SOFTMAX exact: by its own maximum. What is computed again takes a copy of the shift, by
// which ptxas cannot know that pairs beside those of the multipliers are the same: 13.0 keeps such a pair in half a
// register, and after the branch takes the stack pointer for it.
template <bool FIRST>
AT_DEVICE void softmax_exact(const Scores &scores, float (&shift)[2], float (&decay)[2], float scale, float offset,
                             uint32_t same, Weights &weights) {
  Rows asked = {true, true};
  move_shift<FIRST>(scores, shift, decay, asked, scale, offset);
  if (FMA_SHARE > 0) exponentiate<false>(scores, shift, scale, weights, asked);
  if (FMA_SHARE == 0 || __builtin_expect(any_lane(asked), 0)) {
    if (FMA_SHARE > 0) agree(asked);
    const float again[2] = {copied(shift[0], same), copied(shift[1], same)};
    exponentiate<true>(scores, again, scale, weights, asked);
  }
}

// With the shift of earlier tiles, which is almost always good enough: no maximum is looked for, and nothing is rescaled.
// Where a probability has come near the largest number there is, its row of the tile is computed again: `moved`, and `decay`
// is to be applied. True where any row of the warp has.
AT_DEVICE bool softmax_speculative(const Scores &scores, float (&shift)[2], float (&decay)[2], float scale,
                                   Weights &weights, Rows &moved) {
  exponentiate<false>(scores, shift, scale, weights, moved);
  if (!__builtin_expect(any_lane(moved), 0)) return false;
  agree(moved);
  move_shift<false>(scores, shift, decay, moved, scale, (float)OFFSET);
  exponentiate<true>(scores, shift, scale, weights, moved);
  return true;
}

#endif
