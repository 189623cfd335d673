// What the emulated CUDA functions ask of the runtime. Included by kernels (through emulated_ptx.h) and by the runtime.
#ifndef EMULATOR_H
#define EMULATOR_H

#include <stddef.h>
#include <stdint.h>
#include <vector_types.h>

namespace emulator {

struct Indices {
  uint3 thread, block;
  dim3 block_size, grid_size;
};

extern const Indices *indices;  // of the thread that runs

inline int lane() { return (int)(indices->thread.x % 32); }

// Ends the emulation with a message that names the running thread.
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char *format, ...);

// Warps --------------------------------------------------------------------------------------------------------------

// All lanes of `mask` meet in the operation `name`; the last to come calls `act` with the operand of every lane.
using Operands = void *[32];
void meet(const char *name, uint32_t mask, void *operand, void (*act)(const Operands &operands, uint32_t mask));

void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void mma_e4m3(float (&c)[4], const uint32_t *a, uint32_t b0, uint32_t b1);
void ldmatrix(uint32_t (&r)[4], const void *row, bool transposed);

// Warpgroups ---------------------------------------------------------------------------------------------------------

// A lane's part of a product: d has columns / 2 registers; `a` are registers, or null where a descriptor says.
struct Product {
  float *d;
  const uint32_t *a;
  uint64_t a_descriptor, b;
  int columns;
  bool add, along, bfloat16, fp8 = false;
};

uint64_t matrix_descriptor(const void *matrix, uint32_t panel_bytes, int row_bytes = 128);
void wgmma(const Product &product);
float widen_e4m3(uint8_t bits);
uint8_t round_to_e4m3(float x);  // what is too large becomes 448
void wgmma_commit();
void wgmma_wait(int pending_groups);
void stmatrix(void *row, const uint32_t (&words)[4]);
// A map of three dimensions has w = -1.
void tma_store(const void *map, const void *shared, int x, int y, int z, int w = -1);
void tma_store_commit();
void tma_store_wait();

// Blocks and clusters ------------------------------------------------------------------------------------------------

constexpr int ALL_THREADS = 0;
void barrier(int id, int threads, bool wait);
void cluster_arrive();
void cluster_wait();
uint32_t cluster_rank();
const void *cluster_map(const void *shared, uint32_t rank);

// Fails unless the bytes lie in this block's shared memory at a multiple of `alignment`; returns their offset there.
uint32_t check_shared(const char *name, const void *pointer, size_t bytes, size_t alignment);

// The dynamic shared memory of the block that asks, which the unit with the kernel defines; null: there is none.
unsigned char *dynamic_base();
extern const size_t dynamic_capacity;

// Asynchronous copies ------------------------------------------------------------------------------------------------

void copy_async(void *shared, const void *global, size_t bytes, bool valid);
void copy_commit();
void copy_wait(int pending_groups);

void mbarrier_init(uint64_t *barrier, uint32_t arrivals);
void mbarrier_expect(uint64_t *barrier, uint32_t bytes);
void mbarrier_arrive(uint64_t *barrier, uint32_t rank);
void mbarrier_wait(uint64_t *barrier, uint32_t parity);
void store_async(float4 *shared, float4 x, uint64_t *barrier, uint32_t rank);
// A map of three dimensions has w = -1.
void tma_load(void *shared, const void *map, int x, int y, int z, uint64_t *barrier, uint32_t blocks, int w = -1);

}  // namespace emulator

#endif
