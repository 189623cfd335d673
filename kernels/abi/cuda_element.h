// The element type of the tensors and its conversions, for the CUDA implementations.
#ifndef CUDA_ELEMENT_H
#define CUDA_ELEMENT_H

#include "cuda_ptx.h"
#include "variant.h"  // the names that DTYPE is compared with

#if DTYPE == AT_FLOAT16
typedef __half element;
AT_DEVICE float to_float(element x) { return __half2float(x); }
AT_DEVICE element from_float(float x) { return __float2half_rn(x); }
// Two floats, each rounded to the element type, in one word; `low` is the element at the lower address.
AT_DEVICE uint32_t pack(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *(const uint32_t *)&pair;
}
AT_DEVICE float2 unpack(uint32_t word) { return __half22float2(*(const __half2 *)&word); }
#elif DTYPE == AT_BFLOAT16
typedef __nv_bfloat16 element;
AT_DEVICE float to_float(element x) { return __bfloat162float(x); }
AT_DEVICE element from_float(float x) { return __float2bfloat16_rn(x); }
AT_DEVICE uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *(const uint32_t *)&pair;
}
AT_DEVICE float2 unpack(uint32_t word) { return __bfloat1622float2(*(const __nv_bfloat162 *)&word); }
#elif DTYPE == AT_FLOAT32
typedef float element;
AT_DEVICE float to_float(element x) { return x; }
AT_DEVICE element from_float(float x) { return x; }
#else
#error "the CUDA implementations take float32, float16 and bfloat16"
#endif

#endif
