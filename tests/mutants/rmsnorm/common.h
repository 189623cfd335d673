/* What the wrong and the right implementations of rmsnorm share: a call, and its elements as floats. ROW_CODE is how a
 * function is declared, for the CPU or for a GPU; on a GPU the element type comes from cuda_element.h. */
#ifndef MUTANTS_RMSNORM_COMMON_H
#define MUTANTS_RMSNORM_COMMON_H

#ifndef __CUDACC__
#ifndef AT_EMULATED
#include <math.h>

#include "rmsnorm.h"

#define ROW_CODE static inline

#if DTYPE == AT_FLOAT32
typedef float element;
ROW_CODE float to_float(element x) { return x; }
ROW_CODE element from_float(float x) { return x; }
#elif DTYPE == AT_FLOAT16
typedef _Float16 element;
ROW_CODE float to_float(element x) { return (float)x; }
ROW_CODE element from_float(float x) { return (element)x; }
#else
typedef uint16_t element;
ROW_CODE float to_float(element x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
ROW_CODE element from_float(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return (element)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
#endif
#endif
#endif

struct Rows {
  const element *x, *w;
  element *y;
  int64_t tokens, columns;
  float eps;
};

ROW_CODE float rounded(float x) { return to_float(from_float(x)); }

#endif
