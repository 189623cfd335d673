// The functions of cuda_wgmma.h on the host.
#ifndef EMULATED_WGMMA_H
#define EMULATED_WGMMA_H

#include "emulated_ptx.h"

AT_DEVICE uint64_t matrix_descriptor(const void *matrix, uint32_t panel_bytes = 16) {
  return emulator::matrix_descriptor(matrix, panel_bytes);
}

AT_DEVICE void stmatrix_x4(void *row, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  emulator::stmatrix(row, {r0, r1, r2, r3});
}

AT_DEVICE void tma_store(const void *map, const void *shared, int x, int y, int z) {
  emulator::tma_store(map, shared, x, y, z);
}
AT_DEVICE void tma_store_4d(const void *map, const void *shared, int x, int y, int z, int w) {
  emulator::tma_store(map, shared, x, y, z, w);
}
AT_DEVICE void tma_store_commit() { emulator::tma_store_commit(); }
AT_DEVICE void tma_store_wait() { emulator::tma_store_wait(); }

// Registers are plentiful here.
template <int COUNT>
AT_DEVICE void registers_give() {}
template <int COUNT>
AT_DEVICE void registers_take() {}
template <class T, int COUNT>
AT_DEVICE void hold(T (&)[COUNT]) {}

AT_DEVICE void wgmma_fence() {}
AT_DEVICE void wgmma_commit() { emulator::wgmma_commit(); }
template <int PENDING>
AT_DEVICE void wgmma_wait() {
  emulator::wgmma_wait(PENDING);
}

template <int COUNT, class ELEMENT>
AT_DEVICE void wgmma(float (&d)[COUNT], uint64_t a, uint64_t b, bool add, ELEMENT) {
  emulator::wgmma({d, nullptr, a, b, COUNT * 2, add, false, __is_same(ELEMENT, __nv_bfloat16)});
}
template <int ALONG, int COUNT, class ELEMENT>
AT_DEVICE void wgmma(float (&d)[COUNT], const uint32_t *a, uint64_t b, bool add, ELEMENT) {
  emulator::wgmma({d, a, 0, b, COUNT * 2, add, ALONG == 1, __is_same(ELEMENT, __nv_bfloat16)});
}

#endif
