// The machine instructions that CUDA C++ has no name for, one function each. Nothing here knows about attention.
//
// Everything that goes beyond plain C++ and the CUDA language (threadIdx, __shared__, __syncthreads, shuffles) goes
// through this header, so that a host emulation of these functions is enough to run a kernel without a GPU.
#ifndef CUDA_PTX_H
#define CUDA_PTX_H

#ifdef AT_EMULATED
#include "emulated_ptx.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define AT_DEVICE static __device__ __forceinline__

AT_DEVICE uint32_t shared_address(const void *pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }

// A number of which the compiler knows nothing. Of an address with known zeros it makes "or" of a sum, which no instruction
// takes; a constant that is added to this number stays part of the instruction.
AT_DEVICE int opaque(int x) {
  asm("" : "+r"(x));
  return x;
}

// Asynchronous copies from global to shared memory (sm_80) -----------------------------------------------------------

// 16 bytes; both addresses are multiples of 16. With `valid` false nothing is read and zeros are written; `global` must
// still be an address inside the tensor.
AT_DEVICE void cp_async_16(void *shared, const void *global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

// The same for 4, 8 or 16 bytes; both addresses are multiples of BYTES. Fewer than 16 go through the first-level cache.
template <int BYTES>
AT_DEVICE void cp_async(void *shared, const void *global, bool valid) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "the sizes that exist");
  if constexpr (BYTES == 16) {
    cp_async_16(shared, global, valid);
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared_address(shared)), "l"(global),
                 "n"(BYTES), "r"(valid ? BYTES : 0)
                 : "memory");
  }
}

AT_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// Waits until at most N of this thread's latest groups are pending.
template <int N>
AT_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}

// Two numbers of FP8 (e4m3), the low half of a word, as halves (sm_89). All are halves as they are; no number stays none.
AT_DEVICE uint32_t widen_e4m3_pair(uint32_t pair) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;\n" : "=r"(halves) : "h"((uint16_t)pair));
  return halves;
}

// The four of a word: the halves of a word are named, as the instruction takes either.
AT_DEVICE void widen_e4m3_pairs(uint32_t (&halves)[2], uint32_t four) {
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n}\n"
      : "=r"(halves[0]), "=r"(halves[1])
      : "r"(four));
}

// Tensor cores -------------------------------------------------------------------------------------------------------

// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
AT_DEVICE void ldmatrix_x4(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

AT_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// c += a b for a 16x16 (row), b 16x8 (column), c 16x8 in float32.
AT_DEVICE void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

AT_DEVICE void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// c += a b of FP8 (e4m3; sm_89): a 16x32, b 32x8. In lane 4 g + t: of a elements 4 t to 4 t + 3 of row g, then of row g + 8,
// then elements 16 + 4 t on of both; of b as many of column g. Sums keep as many bits as the device's products do.
AT_DEVICE void mma_m16n8k32(float (&c)[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Arithmetic ---------------------------------------------------------------------------------------------------------

// 2^x by the special function unit, relative error about 2^-22; 0 for -inf.
AT_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// tanh by the special function unit, relative error about 2^-11.
AT_DEVICE float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// The larger; no number where one of the two is none, which fmaxf would hide.
AT_DEVICE float max_nan(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;\n" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

// Barriers -----------------------------------------------------------------------------------------------------------

// Barrier `id` (1..15; 0 is __syncthreads) among `threads` threads, whole warps.
AT_DEVICE void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

AT_DEVICE void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

// Blocks that tell each other ------------------------------------------------------------------------------------------

// Adds to a number in global memory that other blocks add to, and gives what it was. Who adds sees what those before it
// had written when they added; threads that have met this one in a barrier before, or do so after, are in that order too.
AT_DEVICE unsigned long long add_in_order(unsigned long long *number, unsigned long long x) {
  unsigned long long before;
  asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], %2;\n" : "=l"(before) : "l"(number), "l"(x) : "memory");
  return before;
}

#if __CUDA_ARCH__ >= 900
// Thread-block clusters (sm_90) --------------------------------------------------------------------------------------

AT_DEVICE uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}

// The two halves of a cluster-wide barrier; what was written to shared memory before is seen after.
AT_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory"); }
AT_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory"); }

// The address of the same shared variable in block `rank` of the cluster, as a generic address.
template <class T>
AT_DEVICE const T *cluster_map(const T *shared, uint32_t rank) {
  uint64_t mapped;
  asm volatile("mapa.u64 %0, %1, %2;\n" : "=l"(mapped) : "l"(shared), "r"(rank));
  return (const T *)mapped;
}

// Transaction barriers and bulk tensor copies (sm_90) ----------------------------------------------------------------

AT_DEVICE void mbarrier_init(uint64_t *barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine and to the cluster; one thread, before a barrier.
AT_DEVICE void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory"); }

AT_DEVICE void mbarrier_expect(uint64_t *barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

AT_DEVICE void mbarrier_arrive(uint64_t *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives at the barrier of the same name in block `rank` of the cluster, after what this thread has read and written.
AT_DEVICE void mbarrier_arrive_remote(uint64_t *barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

// Waits until the phase of that parity has completed. The first look stands before the loop: past a look the compiler moves
// work, past a loop it does not.
AT_DEVICE void mbarrier_wait(uint64_t *barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra finished;\n"
      "again:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\nfinished:\n}\n"
      ::"r"(shared_address(barrier)), "r"(parity)
      : "memory");
}

// The same, for a phase that other blocks of the cluster have to arrive at.
AT_DEVICE void mbarrier_wait_cluster(uint64_t *barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\nagain:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\nfinished:\n}\n"
      ::"r"(shared_address(barrier)), "r"(parity)
      : "memory");
}

// Orders this thread's reads and writes of shared memory before what the copy engine does there later. Before it tells
// that a tile may be overwritten, each thread that has read it must do this: an arrival alone overtakes matrix loads
// that are still under way.
AT_DEVICE void copy_engine_fence() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

// One box of a tensor map with coordinates (x, y, z), innermost first, into shared memory aligned to 1024 bytes;
// completes on the barrier. `map` lies in the kernel's parameters.
AT_DEVICE void tma_load(void *shared, const void *map, int x, int y, int z, uint64_t *barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];\n" ::"r"(shared_address(shared)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
}

// The same into the same place of every block of the cluster whose bit is set in `blocks`; completes on the barrier of
// each.
AT_DEVICE void tma_load_multicast(void *shared, const void *map, int x, int y, int z, uint64_t *barrier,
                                  uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3, %4}], [%5], %6;\n" ::"r"(shared_address(shared)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
}

// Both from a matrix of four dimensions.
AT_DEVICE void tma_load_4d(void *shared, const void *map, int x, int y, int z, int w, uint64_t *barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];\n" ::"r"(shared_address(shared)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier))
      : "memory");
}

AT_DEVICE void tma_load_multicast_4d(void *shared, const void *map, int x, int y, int z, int w, uint64_t *barrier,
                                     uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3, %4, %5}], [%6], %7;\n" ::"r"(shared_address(shared)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
}

AT_DEVICE void tma_prefetch(const void *map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

// Kernels that overlap (sm_90) ----------------------------------------------------------------------------------------

// The next kernel, where it is launched so, may begin when all blocks have come here.
AT_DEVICE void let_next_kernel_begin() { asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory"); }
// Waits until the kernel before has ended, and sees what it has written.
AT_DEVICE void await_kernel_before() { asm volatile("griddepcontrol.wait;\n" ::: "memory"); }

// Cheaper meetings in a cluster (sm_90) ------------------------------------------------------------------------------

// cluster_arrive without its memory fence: says that this thread has come here, not that others see what it wrote.
AT_DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory"); }

// Writes 16 bytes to the same place of block `rank` of the cluster; completes as 16 bytes on the barrier of the same
// name there.
AT_DEVICE void store_async_16(float4 *shared, float4 x, uint64_t *barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 to, done;\nmapa.shared::cluster.u32 to, %0, %6;\nmapa.shared::cluster.u32 done, %1, %6;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%2, %3, %4, %5}, [done];\n}\n" ::"r"(
          shared_address(shared)),
      "r"(shared_address(barrier)), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(rank)
      : "memory");
}
#endif

#endif
#endif
