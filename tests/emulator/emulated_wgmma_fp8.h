// The functions of cuda_wgmma_fp8.h on the host.
#ifndef EMULATED_WGMMA_FP8_H
#define EMULATED_WGMMA_FP8_H

#include "emulated_wgmma.h"

template <int SWIZZLE>
AT_DEVICE uint64_t row_matrix_descriptor(const void *matrix) {
  return emulator::matrix_descriptor(matrix, 16, SWIZZLE);
}

template <int COUNT>
AT_DEVICE void wgmma_fp8(float (&d)[COUNT], uint64_t a, uint64_t b, bool add) {
  emulator::wgmma({d, nullptr, a, b, COUNT * 2, add, false, false, true});
}
template <int COUNT>
AT_DEVICE void wgmma_fp8(float (&d)[COUNT], const uint32_t *a, uint64_t b, bool add) {
  emulator::wgmma({d, a, 0, b, COUNT * 2, add, false, false, true});
}

AT_DEVICE uint16_t pack_e4m3(float low, float high) {
  return (uint16_t)(emulator::round_to_e4m3(high) << 8 | emulator::round_to_e4m3(low));
}
AT_DEVICE uint16_t pack_e4m3(uint32_t halves) {
  const float2 pair = __half22float2(*(const __half2 *)&halves);
  return pack_e4m3(pair.x, pair.y);
}
AT_DEVICE float2 unpack_e4m3(uint16_t pair) {
  const uint32_t halves = widen_e4m3_pair(pair);
  return __half22float2(*(const __half2 *)&halves);
}
AT_DEVICE uint32_t join(uint16_t low, uint16_t high) { return (uint32_t)high << 16 | low; }
AT_DEVICE uint32_t copied(uint32_t word, uint32_t same) { return __byte_perm(word, word, same); }
AT_DEVICE float copied(float x, uint32_t same) { return __uint_as_float(copied(__float_as_uint(x), same)); }
AT_DEVICE uint32_t bytes_of(uint32_t a, uint32_t b, uint32_t order) { return __byte_perm(a, b, order); }

static constexpr uint32_t POWERS_TOO_LARGE = 0xF800F800u;

AT_DEVICE uint32_t exp2_halves(float low, float high, uint32_t &seen) {
  const auto relu = [](float y) { return y < 0.0f ? 0.0f : y; };
  const __half2 pair = __floats2half2_rn(relu(low), relu(high));
  const uint32_t y = *(const uint32_t *)&pair, one = y << 4, other = y * 16 + 0x02000200u;
  seen |= y;
  const float2 a = __half22float2(*(const __half2 *)&one), b = __half22float2(*(const __half2 *)&other);
  const float weight = __half2float(__ushort_as_half(0x39A8));
  const __half2 power = __floats2half2_rn(fmaf(b.x, weight, a.x), fmaf(b.y, weight, a.y));
  return *(const uint32_t *)&power;
}

#endif
