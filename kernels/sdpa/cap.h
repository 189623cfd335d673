// Scores that are capped: tanh, after which they are multiplied by the cap.
//
// A log-sum-exp shows every digit of a score, an output no more than its element type has: for that the instruction will do.
#ifndef CAP_H
#define CAP_H

#include "cuda_ptx.h"

#if SOFTCAPPED

AT_DEVICE float capped(float x) {
#if LSE
  // 1 - 2 / (e^2x + 1), of |x|; small numbers lose no digits that matter, as they are added to others of this size.
  const float power = exp2_approx(fabsf(x) * 2.885390082f), found = 1.0f - __fdividef(2.0f, power + 1.0f);
  return power < INFINITY ? copysignf(found, x) : x != x ? x : copysignf(1.0f, x);
#else
  return tanh_approx(x);
#endif
}

// The same for small numbers on the multiply-add pipe, relative error 1.1e-5 as of the instruction, 3e-8 for a log-sum-exp.
AT_DEVICE float capped_small(float x) {
  const float square = x * x;
#if LSE
  float y = fmaf(-0.00471626f, square, 0.01958291f);
  y = fmaf(y, square, -0.05334443f);
  y = fmaf(y, square, 0.13325406f);
  y = fmaf(y, square, -0.33332959f);
  return x * fmaf(y, square, 1.0f);
#else
  float y = fmaf(-0.03545279f, square, 0.12742697f);
  y = fmaf(y, square, -0.33269671f);
  return x * fmaf(y, square, 0.99998898f);
#endif
}

// Scores, before those that are hidden become -infinity: of two rows, which take turns every two scores. The special
// function unit has the powers to compute, so a lane does without its tanh where all its scores of a row are below 0.75 of
// the cap, as most are. But not where some of them are hidden: the others would depend on those.
template <int COUNT>
AT_DEVICE void cap(float (&scores)[COUNT], float scale, bool all_seen) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      if (i / 2 % 2 == half) largest = fmaxf(largest, fabsf(scores[i] *= scale));
    if (all_seen && largest < 0.75f) {
#pragma unroll
      for (int i = 0; i < COUNT; i++)
        if (i / 2 % 2 == half) scores[i] = capped_small(scores[i]);
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; i++)
        if (i / 2 % 2 == half) scores[i] = capped(scores[i]);
    }
  }
}

#endif
#endif
