/* The element type of the tensors and its conversions, for CPU implementations without vectors of their own. C++. */
#ifndef AUTOTUNER_CPU_ELEMENT_H
#define AUTOTUNER_CPU_ELEMENT_H

#include "variant.h"

#if DTYPE == AT_FLOAT32
typedef float element;
static inline float to_float(element x) { return x; }
static inline element from_float(float x) { return x; }
#elif DTYPE == AT_BFLOAT16
typedef uint16_t element;
static inline float to_float(element x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
/* Rounds to nearest even. NaN stays NaN. */
static inline element from_float(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return x == x ? (element)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) : (element)(bits >> 16 | 0x40);
}
#elif DTYPE == AT_FLOAT16
typedef uint16_t element;
static inline float to_float(element x) {
  _Float16 value;
  __builtin_memcpy(&value, &x, 2);
  return (float)value;
}
static inline element from_float(float x) {
  const _Float16 value = (_Float16)x;
  element bits;
  __builtin_memcpy(&bits, &value, 2);
  return bits;
}
#else
#error "float32, bfloat16 and float16 only"
#endif

#endif
