// What is subtracted from a row's scaled scores: their maximum, rounded.
//
// Where it is small it is subtracted while scores are scaled, by one fused operation. That leaves what the maximum lost by
// rounding, at most half an ulp, in all exponents of the row, where it cancels in the end. From about 2^28 that is more
// than float16 holds as a power of two, from 2^31 more than float does. Scores of such rows are scaled and rounded first,
// as the maximum was: then the largest has the exponent 0.
#ifndef SHIFT_H
#define SHIFT_H

#include "cuda_ptx.h"

// In units of log2. Scores that mean anything are smaller; half an ulp is 2^-11 here.
static constexpr float LARGEST_FUSED = 16384.0f;

// False for what is no number as well.
AT_DEVICE bool fuses(float shift) { return fabsf(shift) < LARGEST_FUSED; }

// A score in place of this one for which fmaf(x, scale, -0.0f) is what is wanted: the scaled score, rounded, less the shift.
AT_DEVICE float shifted(float score, float scale, float shift) {
  return (__fmul_rn(score, scale) - shift) * __fdividef(1.0f, scale);
}

#endif
