// FP8 (e4m3) on sm_90a, one function each: products of a warpgroup and conversions. Nothing here knows about attention.
// cuda_wgmma.h says how products are issued and waited for.
#ifndef CUDA_WGMMA_FP8_H
#define CUDA_WGMMA_FP8_H

#include "cuda_wgmma.h"

#ifdef AT_EMULATED
#include "emulated_wgmma_fp8.h"
#else

// Describes a matrix whose rows are SWIZZLE bytes (128, 64 or 32) with the swizzle of as many, eight rows after eight
// rows. A step in the matrix is a step of that many bytes / 16 in the descriptor.
template <int SWIZZLE>
AT_DEVICE uint64_t row_matrix_descriptor(const void *matrix) {
  static_assert(SWIZZLE == 128 || SWIZZLE == 64 || SWIZZLE == 32, "the swizzles that there are");
  constexpr uint64_t kind = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : 3;
  return (uint64_t)((shared_address(matrix) & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(8 * SWIZZLE >> 4) << 32 |
         kind << 62;
}

// clang-format off
#define AT_D68 AT_D64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define AT_N68 AT_N64 ",%64,%65,%66,%67"
#define AT_WGMMA_FP8(COLUMNS, COUNT, a0, a1, a2, a3, a4, a5)                                                           \
  AT_DEVICE void wgmma_fp8(float (&d)[COUNT], uint64_t a, uint64_t b, bool add) {                                      \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #a2 ", 0;\n"                                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k32.f32.e4m3.e4m3 {" AT_N##COUNT                        \
                 "}, %" #a0 ", %" #a1 ", add, 1, 1;\n}\n"                                                              \
                 : AT_D##COUNT : "l"(a), "l"(b), "r"((int)add));                                                       \
  }                                                                                                                    \
  AT_DEVICE void wgmma_fp8(float (&d)[COUNT], const uint32_t *a, uint64_t b, bool add) {                               \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #a5 ", 0;\n"                                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k32.f32.e4m3.e4m3 {" AT_N##COUNT                        \
                 "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #a4 ", add, 1, 1;\n}\n"                                 \
                 : AT_D##COUNT                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));                                 \
  }

// d = a b, or d += a b with `add`, for 64 rows, 32 summed elements and as many columns as d has registers for, which lie
// as those of wgmma. `a` is a descriptor, or four registers: of lane 4 g + t of warp w elements 4 t to 4 t + 3 of row
// 16 w + g, then of row g + 8, then elements 16 + 4 t on of both. b's rows are its columns, 32 bytes of each. Sums keep
// 14 bits of each term, counted from the largest one's first, and of what was summed before.
AT_WGMMA_FP8(64, 32, 32, 33, 34, 35, 36, 37)
AT_WGMMA_FP8(96, 48, 48, 49, 50, 51, 52, 53)
AT_WGMMA_FP8(128, 64, 64, 65, 66, 67, 68, 69)
AT_WGMMA_FP8(136, 68, 68, 69, 70, 71, 72, 73)
AT_WGMMA_FP8(160, 80, 80, 81, 82, 83, 84, 85)
AT_WGMMA_FP8(192, 96, 96, 97, 98, 99, 100, 101)
// clang-format on

// Conversions ----------------------------------------------------------------------------------------------------------

// Two numbers as e4m3, `low` in the low byte. What is too large becomes 448; no number stays none.
AT_DEVICE uint16_t pack_e4m3(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\n" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

// The same of two halves in a word.
AT_DEVICE uint16_t pack_e4m3(uint32_t halves) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;\n" : "=h"(pair) : "r"(halves));
  return pair;
}

AT_DEVICE float2 unpack_e4m3(uint16_t pair) {
  const uint32_t halves = widen_e4m3_pair(pair);
  return __half22float2(*(const __half2 *)&halves);
}

AT_DEVICE uint32_t join(uint16_t low, uint16_t high) {
  uint32_t word;
  asm("mov.b32 %0, {%1, %2};\n" : "=r"(word) : "h"(low), "h"(high));
  return word;
}

// The word as it is, by an operation that the compiler does not see through: `same` is 0x3210.
AT_DEVICE uint32_t copied(uint32_t word, uint32_t same) {
  uint32_t copy;
  asm volatile("prmt.b32 %0, %1, %1, %2;\n" : "=r"(copy) : "r"(word), "r"(same));
  return copy;
}
AT_DEVICE float copied(float x, uint32_t same) { return __uint_as_float(copied(__float_as_uint(x), same)); }

// Bytes of two words in another order: byte i of the result is that of the number in hexadecimal digit i of `order`.
AT_DEVICE uint32_t bytes_of(uint32_t a, uint32_t b, uint32_t order) { return __byte_perm(a, b, order); }

// 2^x for both of a pair without the unit for it, from y = (x + 13.9425) / 2^18 of each. Halves that small are whole numbers
// of 2^-24, so the bits of y count 64ths of powers of two: moved to where a half has its exponent they are a power that
// is straight between powers of two. The sum of two such, half a power apart, is wrong by 2^-6 at most, 2^-7.5 in the mean
// square. x below -14 counts as less than 2^-14. `seen` collects the bits: with one of POWERS_TOO_LARGE x was 18 or more, or
// no number, and the result is wrong.
static constexpr uint32_t POWERS_TOO_LARGE = 0xF800F800u;

AT_DEVICE uint32_t exp2_halves(float low, float high, uint32_t &seen) {
  uint32_t power;
  asm("{\n.reg .b32 y, one, other;\n"
      "cvt.rn.relu.f16x2.f32 y, %3, %2;\n"  // at least 0
      "or.b32 %1, %1, y;\n"
      "shl.b32 one, y, 4;\n"
      "mad.lo.u32 other, y, 16, %4;\n"      // half a power of two more
      "fma.rn.f16x2 %0, other, %5, one;\n}\n"
      : "=r"(power), "+r"(seen)
      : "f"(low), "f"(high), "r"(0x02000200u), "r"(0x39A839A8u));
  return power;
}

#endif
#endif
