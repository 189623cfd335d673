// Vectors of VEC_WIDTH floats in GCC's vector extensions: loads, stores and splats, and 16-bit elements widened to float.
#ifndef AUTOTUNER_CPU_VECTOR_H
#define AUTOTUNER_CPU_VECTOR_H

#include <stdint.h>

#define AT_PRAGMA_(text) _Pragma(#text)
#define AT_UNROLL(n) AT_PRAGMA_(GCC unroll n)
#define AT_INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(VEC_WIDTH * 4)));
typedef int32_t ivec __attribute__((vector_size(VEC_WIDTH * 4)));
typedef uint32_t uvec __attribute__((vector_size(VEC_WIDTH * 4)));
typedef uint16_t hvec __attribute__((vector_size(VEC_WIDTH * 2)));
// The same for memory that is aligned to its elements only, whatever their declared type.
typedef float loose_vec __attribute__((vector_size(VEC_WIDTH * 4), aligned(4), may_alias));
typedef uint16_t loose_hvec __attribute__((vector_size(VEC_WIDTH * 2), aligned(2), may_alias));
typedef int32_t word __attribute__((may_alias));

AT_INLINE vec load(const float *p) { return *(const loose_vec *)p; }
AT_INLINE void store(float *p, vec x) { *(loose_vec *)p = x; }
AT_INLINE vec splat(float x) { return x - vec{}; }
// Copies the bits: the word may hold two bfloat16, which are no float to compute with.
AT_INLINE vec splat_word(const float *p) { return (vec)(*(const word *)p + ivec{}); }
AT_INLINE vec max(vec a, vec b) { return a > b ? a : b; }

AT_INLINE vec widen(hvec x) { return (vec)(__builtin_convertvector(x, uvec) << 16); }
AT_INLINE vec load_bfloat16(const uint16_t *p) { return widen(*(const loose_hvec *)p); }

// Rounds to nearest even.
AT_INLINE void store_bfloat16(uint16_t *p, vec x) {
  uvec bits = (uvec)x;
  bits += 0x7fff + ((bits >> 16) & 1);
  *(loose_hvec *)p = __builtin_convertvector(bits >> 16, hvec);
}

#ifdef __F16C__
// Not the intrinsics: their header costs more time than a variant.
AT_INLINE vec load_float16(const uint16_t *p) {
  vec x;
  __asm__("vcvtph2ps %1, %0" : "=v"(x) : "v"(*(const loose_hvec *)p));
  return x;
}

// Rounds to nearest even.
AT_INLINE void store_float16(uint16_t *p, vec x) {
  hvec bits;
  __asm__("vcvtps2ph $0, %1, %0" : "=v"(bits) : "v"(x));
  *(loose_hvec *)p = bits;
}
#endif

#endif
