// Products and 2^x of vectors of VEC_WIDTH floats, pairs of bfloat16, and a square transpose.
#ifndef AUTOTUNER_SDPA_CPU_MATH_H
#define AUTOTUNER_SDPA_CPU_MATH_H

#include "cpu_vector.h"

// A word a lane: bfloat16(low) in the lower half, bfloat16(high) in the upper. Both are finite and not negative.
AT_INLINE vec pair_bfloat16(vec low, vec high) {
  uvec a = (uvec)low + 0x8000, b = (uvec)high + 0x8000;  // ties away from zero: one operation less than to even
  return (vec)((a >> 16) | (b & 0xffff0000u));
}

// acc + a * b; with BF16_DOT each word holds two bfloat16 and both products are added.
AT_INLINE vec multiply_add(vec a, vec b, vec acc) {
#if BF16_DOT
  // Not the intrinsic: its types differ between compiler versions, and its header costs more time than this file.
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
#else
  return acc + a * b;
#endif
}

// exp2_nonpositive(x) = 2^x for x <= 0; exactly 1 at 0 and exactly 0 from -127 down. x is split into an integer n and
// a fraction f; a polynomial with constant term 1 (smallest largest relative error) gives 2^f.
//   POLY3             |f| <= 1/2, degree 3, error 1.0e-4: for bfloat16 only
//   POLY5, POLY6      |f| <= 1/2, degree 5 and 6, errors 1.1e-7 and 1.6e-8 (before rounding)
//   SCALEF3, SCALEF5  POLY3 and POLY5 with AVX-512's rounding and scaling instructions
//   TABLE1, TABLE2    |f| <= 1/64 and a table of 32 powers in two registers, degree 1 (5.9e-5: bfloat16) and 2 (5.3e-8)
#if defined(EXP_POLY3) || defined(EXP_SCALEF3)
AT_INLINE vec polynomial(vec f) { return 1.0f + f * (0.693282902f + f * (0.242210969f + f * 0.0550089329f)); }
#elif defined(EXP_POLY6)
AT_INLINE vec polynomial(vec f) {
  vec high = 0.00961843692f + f * (0.0013398875f + f * 0.00015353362f);
  return 1.0f + f * (0.693147182f + f * (0.240226477f + f * (0.0555033237f + f * high)));
}
#elif defined(EXP_POLY5) || defined(EXP_SCALEF5)
AT_INLINE vec polynomial(vec f) {
  vec high = 0.00967151299f + f * 0.00132647273f;
  return 1.0f + f * (0.693147004f + f * (0.240222424f + f * (0.0555073358f + f * high)));
}
#elif !defined(EXP_TABLE1) && !defined(EXP_TABLE2)
#error "unknown EXP"
#endif

#if defined(EXP_SCALEF3) || defined(EXP_SCALEF5)
AT_INLINE vec exp2_nonpositive(vec x) {
  vec n, result;
  __asm__("vrndscaleps $0, %1, %0" : "=v"(n) : "v"(x));
  vec power = polynomial(x - n);
  __asm__("vscalefps %2, %1, %0" : "=v"(result) : "v"(power), "v"(n));
  return result;
}
#elif defined(EXP_TABLE1) || defined(EXP_TABLE2)
AT_INLINE vec exp2_nonpositive(vec x) {
  const vec low = {1.0f,        1.02189715f, 1.04427378f, 1.0671404f,  1.09050773f, 1.11438674f,
                   1.13878863f, 1.16372486f, 1.18920712f, 1.21524736f, 1.24185781f, 1.26905096f,
                   1.29683955f, 1.32523664f, 1.35425555f, 1.38390988f};
  const vec high = {1.41421356f, 1.44518081f, 1.47682615f, 1.50916443f, 1.54221083f, 1.57598085f,
                    1.61049033f, 1.64575548f, 1.68179283f, 1.7186193f,  1.75625216f, 1.79470908f,
                    1.83400809f, 1.87416763f, 1.91520656f, 1.95714412f};
  // Adding 1.5 * 2^18 leaves x rounded to 1/32 in the lowest bits: 5 bits of table index, then n + 127.
  const float magic = 393216.0f + 127.0f;
  x = max(splat(-127.0f), x);
  vec shifted = x + magic;
  vec f = x - (shifted - magic);
  vec power = __builtin_shuffle(low, high, (ivec)shifted) * (vec)(((uvec)shifted >> 5) << 23);
#if defined(EXP_TABLE1)
  return power + power * (f * 0.693120062f);
#else
  return power + power * (f * (0.693157315f + f * 0.240226537f));
#endif
}
#else
AT_INLINE vec exp2_nonpositive(vec x) {
  // Adding 1.5 * 2^23 rounds to an integer; the 127 more make the lowest bits the exponent field of 2^n, 0 at n = -127.
  const float magic = 12582912.0f + 127.0f;
  x = max(splat(-127.0f), x);
  vec shifted = x + magic;
  vec f = x - (shifted - magic);
  return polynomial(f) * (vec)((uvec)shifted << 23);
}
#endif

#if SOFTCAPPED
// tanh(x): near 0 a polynomial in x^2, which loses no digits, and for what is no number; else 1 - 2 / (e^2|x| + 1).
AT_INLINE vec tanh(vec x) {
  const vec positive = max(x, -x), square = x * x;
  vec high = 0.0206390888f - 0.00570498873f * square;
  high = -0.333332819f + square * (0.133314422f + square * (-0.0537397156f + square * high));
  const vec power = exp2_nonpositive(positive * -2.88539008f), large = (1.0f - power) / (1.0f + power);
  return positive >= splat(0.625f) ? x < splat(0.0f) ? -large : large : x + x * square * high;
}
#endif

// Transposes a square of VEC_WIDTH x VEC_WIDTH words: each of log2(VEC_WIDTH) rounds interleaves rows i and i + half.
AT_INLINE void transpose(vec (&rows)[VEC_WIDTH]) {
  constexpr int half = VEC_WIDTH / 2;
  ivec first, second;
  for (int i = 0; i < VEC_WIDTH; ++i) {
    first[i] = i / 2 + i % 2 * VEC_WIDTH;
    second[i] = first[i] + half;
  }
  AT_UNROLL(4)
  for (int round = 1; round < VEC_WIDTH; round *= 2) {
    vec mixed[VEC_WIDTH];
    AT_UNROLL(8)
    for (int i = 0; i < half; ++i) {
      mixed[2 * i] = (vec)__builtin_shuffle((ivec)rows[i], (ivec)rows[i + half], first);
      mixed[2 * i + 1] = (vec)__builtin_shuffle((ivec)rows[i], (ivec)rows[i + half], second);
    }
    AT_UNROLL(16)
    for (int i = 0; i < VEC_WIDTH; ++i) rows[i] = mixed[i];
  }
}

#endif
