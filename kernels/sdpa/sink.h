// A score that each row of a head has beside those of its keys, and that has no value: it is part of the sum alone.
#ifndef SINK_H
#define SINK_H

#include "cuda_element.h"
#include "abi/sdpa.h"

#if HAS_SINKS

// In place of the maximum of a row that has seen nothing.
static constexpr float LEAST_MAX = -3e38f;

// The sink of a head, in powers of two.
AT_DEVICE float sink_of(const void *sinks, int head) {
#if SINKS == AT_FLOAT32
  return ((const float *)sinks)[head] * 1.442695041f;
#else
  return to_float(((const element *)sinks)[head]) * 1.442695041f;
#endif
}

// Takes it into the maximum and the sum of a row; returns what the output is to be multiplied by for that. NaN reaches the
// sum; a row that has seen nothing has the sum 0.
AT_DEVICE float take_in(float sink, float &max, float &sum) {
  const float most = fmaxf(max, sink), shift = most == -INFINITY ? 0.0f : most, decay = exp2_approx(max - shift);
  sum = fmaf(sum, decay, exp2_approx(sink - shift));
  max = most;
  return decay;
}

// What it adds to the sum of a row that is relative to this maximum, where nobody asks for the log of the sum: of a sink so
// far above the maximum that this overflows, the outputs are 0.
AT_DEVICE float share_of(float sink, float max) { return exp2_approx(sink - fmaxf(max, LEAST_MAX)); }

#endif
#endif
