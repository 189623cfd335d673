// CUDA C++ as a host compiler understands it: qualifiers, built-in variables, warp functions, intrinsics.
//
// A block is a thread of the operating system and its CUDA threads are fibers on it, so that __shared__ is
// thread_local: this works for static and extern declarations alike and gives every block of a cluster its own copy.
#ifndef EMULATED_CUDA_H
#define EMULATED_CUDA_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <vector_functions.h>

#include <bit>

#include "emulator.h"

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __align__
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __shared__ thread_local
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __CUDA_ARCH__ 900

#define threadIdx (::emulator::indices->thread)
#define blockIdx (::emulator::indices->block)
#define blockDim (::emulator::indices->block_size)
#define gridDim (::emulator::indices->grid_size)
#define warpSize 32

// Barriers -----------------------------------------------------------------------------------------------------------

inline void __syncthreads() { emulator::barrier(0, emulator::ALL_THREADS, true); }
inline void __syncwarp(uint32_t mask = 0xffffffffu) {
  emulator::meet("__syncwarp", mask, nullptr, [](const emulator::Operands &, uint32_t) {});
}
inline void __threadfence_block() {}
inline void __threadfence() {}

// Shuffles and votes -------------------------------------------------------------------------------------------------

namespace emulator {

template <class T>
struct Shuffled {
  T value, result;
  int source;
};

template <class T>
void shuffle_act(const Operands &operands, uint32_t mask) {
  for (int i = 0; i < 32; i++) {
    if (!(mask >> i & 1)) continue;
    auto *mine = (Shuffled<T> *)operands[i];
    if (!(mask >> mine->source & 1)) fail("lane %d shuffles from lane %d, which is not in the mask", i, mine->source);
    mine->result = ((Shuffled<T> *)operands[mine->source])->value;
  }
}

// The value of lane `source`, or one's own where that lies outside the segment of `width` lanes.
template <class T>
T shuffle(const char *name, uint32_t mask, T value, int source, int first, int last) {
  Shuffled<T> operand = {value, value, source < first || source > last ? lane() : source};
  meet(name, mask, &operand, shuffle_act<T>);
  return operand.result;
}

struct Vote {
  bool predicate;
  uint32_t ballot;
};

inline uint32_t ballot(const char *name, uint32_t mask, bool predicate) {
  Vote vote = {predicate, 0};
  meet(name, mask, &vote, [](const Operands &operands, uint32_t voters) {
    uint32_t result = 0;
    for (int i = 0; i < 32; i++)
      if (voters >> i & 1) result |= (uint32_t)((Vote *)operands[i])->predicate << i;
    for (int i = 0; i < 32; i++)
      if (voters >> i & 1) ((Vote *)operands[i])->ballot = result;
  });
  return vote.ballot;
}

}  // namespace emulator

template <class T>
T __shfl_sync(uint32_t mask, T value, int source, int width = 32) {
  const int first = emulator::lane() & -width;
  return emulator::shuffle("__shfl_sync", mask, value, first | (source & (width - 1)), first, first + width - 1);
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int lanes, int width = 32) {
  const int last = emulator::lane() | (width - 1);
  return emulator::shuffle("__shfl_xor_sync", mask, value, emulator::lane() ^ lanes, 0, last);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32) {
  const int first = emulator::lane() & -width;
  return emulator::shuffle("__shfl_up_sync", mask, value, emulator::lane() - (int)delta, first, 31);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32) {
  const int last = emulator::lane() | (width - 1);
  return emulator::shuffle("__shfl_down_sync", mask, value, emulator::lane() + (int)delta, 0, last);
}

inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
  return emulator::ballot("__ballot_sync", mask, predicate);
}
inline int __any_sync(uint32_t mask, int predicate) {
  return emulator::ballot("__any_sync", mask, predicate) != 0;
}
inline int __all_sync(uint32_t mask, int predicate) {
  return emulator::ballot("__all_sync", mask, predicate) == mask;
}
inline uint32_t __activemask() { emulator::fail("__activemask is not to be relied on"); }

// Intrinsics ---------------------------------------------------------------------------------------------------------

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero((unsigned)x); }
inline int __ffs(int x) { return x ? std::countr_zero((unsigned)x) + 1 : 0; }
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = (uint64_t)y << 32 | x;
  uint32_t result = 0;
  for (int i = 0; i < 4; i++) result |= (uint32_t)(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}

template <class T>
T __ldg(const T *p) { return *p; }
template <class T>
T __ldcg(const T *p) { return *p; }
template <class T>
T __ldcs(const T *p) { return *p; }
template <class T>
void __stcg(T *p, T x) { *p = x; }
template <class T>
void __stcs(T *p, T x) { *p = x; }

// One thread runs at a time.
template <class T>
T atomicAdd(T *p, T x) {
  const T old = *p;
  *p = old + x;
  return old;
}
template <class T>
T atomicExch(T *p, T x) {
  const T old = *p;
  *p = x;
  return old;
}
template <class T>
T atomicCAS(T *p, T expected, T x) {
  const T old = *p;
  if (old == expected) *p = x;
  return old;
}

inline __half2 __hfma2(__half2 x, __half2 y, __half2 z) {
  const float2 a = __half22float2(x), b = __half22float2(y), c = __half22float2(z);
  return __floats2half2_rn(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 x, __nv_bfloat162 y, __nv_bfloat162 z) {
  const float2 a = __bfloat1622float2(x), b = __bfloat1622float2(y), c = __bfloat1622float2(z);
  return __floats2bfloat162_rn(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y));
}

template <class T>
constexpr T max(T x, T y) { return x > y ? x : y; }
template <class T>
constexpr T min(T x, T y) { return x < y ? x : y; }
inline float max(float x, float y) { return fmaxf(x, y); }
inline float min(float x, float y) { return fminf(x, y); }

#endif
