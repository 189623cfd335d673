// Powers of two, by the special function unit, by the multiply-add pipe, or by both.
#ifndef EXPONENTIAL_H
#define EXPONENTIAL_H

#include "cuda_ptx.h"

// 2^x on the multiply-add pipe for x below 127, relative error 2e-7; 0 from -127 down, and some number for what is none.
// Adding 1.5 * 2^23 rounds x to an integer, whose low bits are then the integer itself; a power of two is added to the
// exponent of 2^fraction.
AT_DEVICE float exp2_polynomial(float x) {
  x = fmaxf(x, -127.0f);
  const float shifted = x + 12582912.0f, fraction = x - (shifted - 12582912.0f);
  float y = 0.0013264727f;
  y = fmaf(y, fraction, 0.009671513f);
  y = fmaf(y, fraction, 0.055507336f);
  y = fmaf(y, fraction, 0.24022242f);
  y = fmaf(y, fraction, 0.693147f);
  y = fmaf(y, fraction, 1.0f);
  return __int_as_float(__float_as_int(y) + (int)((unsigned)__float_as_int(shifted) << 23));
}

// Whether exponential() of what is no number is none, wherever it stands.
#if defined(EXP_POLY) || defined(EXP_MIXED)
static constexpr bool EXPONENTIAL_TELLS = false;
#else
static constexpr bool EXPONENTIAL_TELLS = true;
#endif

// EXP=mixed gives one of four to the multiply-add pipe, which then takes as long as the special function unit does.
AT_DEVICE float exponential(float x, [[maybe_unused]] int index = 0) {
#if defined(EXP_POLY)
  return exp2_polynomial(x);
#elif defined(EXP_MIXED)
  return index % 4 == 3 ? exp2_polynomial(x) : exp2_approx(x);
#else
  return exp2_approx(x);
#endif
}

#endif
