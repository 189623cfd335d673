// The functions of cuda_ptx.h on the host, as strict as their documentation: what a real device happens to
// forgive (an address outside the block's shared memory, an odd alignment, a missing lane) is an error here.
#ifndef EMULATED_PTX_H
#define EMULATED_PTX_H

#include "emulated_cuda.h"

#define AT_DEVICE [[maybe_unused]] static inline

AT_DEVICE int opaque(int x) { return x; }

AT_DEVICE uint32_t shared_address(const void *pointer) {
  return emulator::check_shared("shared_address", pointer, 1, 1);
}

// Asynchronous copies from global to shared memory -------------------------------------------------------------------

AT_DEVICE void cp_async_16(void *shared, const void *global, bool valid) {
  emulator::copy_async(shared, global, 16, valid);
}
template <int BYTES>
AT_DEVICE void cp_async(void *shared, const void *global, bool valid) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "the sizes that exist");
  emulator::copy_async(shared, global, BYTES, valid);
}
AT_DEVICE void cp_async_commit() { emulator::copy_commit(); }
template <int N>
AT_DEVICE void cp_async_wait() {
  emulator::copy_wait(N);
}

AT_DEVICE uint32_t widen_e4m3_pair(uint32_t pair) {
  const __half2 halves = __floats2half2_rn(emulator::widen_e4m3((uint8_t)pair), emulator::widen_e4m3((uint8_t)(pair >> 8)));
  return *(const uint32_t *)&halves;
}
AT_DEVICE void widen_e4m3_pairs(uint32_t (&halves)[2], uint32_t four) {
  for (int i = 0; i < 2; i++) halves[i] = widen_e4m3_pair(four >> i * 16 & 0xffff);
}

// Tensor cores -------------------------------------------------------------------------------------------------------

AT_DEVICE void ldmatrix_x4(uint32_t (&r)[4], const void *row) { emulator::ldmatrix(r, row, false); }
AT_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row) { emulator::ldmatrix(r, row, true); }
AT_DEVICE void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half) {
  emulator::mma_f16(c, a, b0, b1);
}
AT_DEVICE void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __nv_bfloat16) {
  emulator::mma_bf16(c, a, b0, b1);
}
AT_DEVICE void mma_m16n8k32(float (&c)[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
  emulator::mma_e4m3(c, a, b0, b1);
}

// Arithmetic ---------------------------------------------------------------------------------------------------------

AT_DEVICE float exp2_approx(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}

// With as few digits as the instruction has.
AT_DEVICE float tanh_approx(float x) {
  const float y = tanhf(x), many = y * 4097.0f;
  return y != y ? y : many - (many - y);
}

AT_DEVICE float max_nan(float x, float y) { return x != x || y != y ? NAN : fmaxf(x, y); }

// Barriers -----------------------------------------------------------------------------------------------------------

AT_DEVICE void named_barrier_sync(int id, int threads) { emulator::barrier(id, threads, true); }
AT_DEVICE void named_barrier_arrive(int id, int threads) { emulator::barrier(id, threads, false); }

// Blocks that tell each other: what is left out of the memory order does not show here --------------------------------

AT_DEVICE unsigned long long add_in_order(unsigned long long *number, unsigned long long x) {
  return atomicAdd(number, x);
}

// Thread-block clusters ----------------------------------------------------------------------------------------------

AT_DEVICE uint32_t cluster_rank() { return emulator::cluster_rank(); }
AT_DEVICE void cluster_arrive() { emulator::cluster_arrive(); }
AT_DEVICE void cluster_wait() { emulator::cluster_wait(); }
template <class T>
AT_DEVICE const T *cluster_map(const T *shared, uint32_t rank) {
  return (const T *)emulator::cluster_map(shared, rank);
}

// Transaction barriers and bulk tensor copies ------------------------------------------------------------------------

AT_DEVICE void mbarrier_init(uint64_t *barrier, uint32_t arrivals) { emulator::mbarrier_init(barrier, arrivals); }
AT_DEVICE void mbarrier_init_fence() {}
AT_DEVICE void mbarrier_expect(uint64_t *barrier, uint32_t bytes) { emulator::mbarrier_expect(barrier, bytes); }
AT_DEVICE void mbarrier_arrive(uint64_t *barrier) { emulator::mbarrier_arrive(barrier, emulator::cluster_rank()); }
AT_DEVICE void mbarrier_arrive_remote(uint64_t *barrier, uint32_t rank) { emulator::mbarrier_arrive(barrier, rank); }
AT_DEVICE void mbarrier_wait(uint64_t *barrier, uint32_t parity) { emulator::mbarrier_wait(barrier, parity); }
AT_DEVICE void tma_load(void *shared, const void *map, int x, int y, int z, uint64_t *barrier) {
  emulator::tma_load(shared, map, x, y, z, barrier, 1u << emulator::cluster_rank());
}
AT_DEVICE void tma_load_multicast(void *shared, const void *map, int x, int y, int z, uint64_t *barrier,
                                  uint16_t blocks) {
  emulator::tma_load(shared, map, x, y, z, barrier, blocks);
}
AT_DEVICE void tma_load_4d(void *shared, const void *map, int x, int y, int z, int w, uint64_t *barrier) {
  emulator::tma_load(shared, map, x, y, z, barrier, 1u << emulator::cluster_rank(), w);
}
AT_DEVICE void tma_load_multicast_4d(void *shared, const void *map, int x, int y, int z, int w, uint64_t *barrier,
                                     uint16_t blocks) {
  emulator::tma_load(shared, map, x, y, z, barrier, blocks, w);
}
AT_DEVICE void tma_prefetch(const void *) {}

// Kernels that overlap: here they run one after the other --------------------------------------------------------------

AT_DEVICE void let_next_kernel_begin() {}
AT_DEVICE void await_kernel_before() {}

// Cheaper meetings in a cluster: what they leave out of the memory order does not show here ---------------------------

AT_DEVICE void cluster_arrive_relaxed() { emulator::cluster_arrive(); }
AT_DEVICE void copy_engine_fence() {}
AT_DEVICE void mbarrier_wait_cluster(uint64_t *barrier, uint32_t parity) { emulator::mbarrier_wait(barrier, parity); }
AT_DEVICE void store_async_16(float4 *shared, float4 x, uint64_t *barrier, uint32_t rank) {
  emulator::store_async(shared, x, barrier, rank);
}

#endif
