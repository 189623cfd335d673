// Scores that are capped: tanh, after which they are multiplied by the cap.
//
// A log-sum-exp shows every digit of a score, an output no more than its element type has: for that the instruction will do.
#ifndef CAP_H
#define CAP_H

#include "cuda_ptx.h"

#if SOFTCAPPED

AT_DEVICE float capped(float x) {
#if LSE
  return tanhf(x);
#else
  return tanh_approx(x);
#endif
}

// Scores, before those that are hidden become -infinity.
template <int COUNT>
AT_DEVICE void cap(float (&scores)[COUNT], float scale) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) scores[i] = capped(scores[i] * scale);
}

#endif
#endif
