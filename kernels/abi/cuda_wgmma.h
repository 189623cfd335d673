// The machine instructions of sm_90a, one function each: products of a warpgroup, moving registers between warpgroups,
// and what goes with them. Nothing here knows about attention. A source that includes this is compiled for sm_90a.
//
// A warpgroup is 128 threads whose first warp's number is a multiple of four. Its products run by themselves: a thread
// issues them, commits those so far as a group, and waits for groups. Until then the registers and the shared memory
// that they read or write are theirs. The compiler must see that too, or it waits after each product and says so in a
// warning (C7510 to C7519), which the build takes for an error:
//   - no register of a product is touched between its issue and its wait, not even to prepare an operand of the next;
//   - a group that is in flight does not cross a branch whose arms wait differently;
//   - after a loop that waits for a barrier, wgmma_fence() comes before the next product.
#ifndef CUDA_WGMMA_H
#define CUDA_WGMMA_H

#include "cuda_ptx.h"

#ifdef AT_EMULATED
#include "emulated_wgmma.h"
#else

// Matrices in shared memory -------------------------------------------------------------------------------------------

// Describes a matrix whose rows are 128 bytes with the 128-byte swizzle, eight rows every 1024 bytes. `panel_bytes` is
// the distance of its 64-column panels, for an operand whose rows run along the summed dimension (V); others take one
// panel at a time. A step in the matrix is a step of that many bytes / 16 in the descriptor.
AT_DEVICE uint64_t matrix_descriptor(const void *matrix, uint32_t panel_bytes = 16) {
  return (uint64_t)((shared_address(matrix) & 0x3ffff) >> 4) | (uint64_t)(panel_bytes >> 4) << 16 |
         (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
AT_DEVICE void stmatrix_x4(void *row, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared_address(row)),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// Writes a box from shared memory to a tensor; rows past its end are left out. What threads wrote there needs
// copy_engine_fence() by each of them, and a barrier, before.
AT_DEVICE void tma_store(const void *map, const void *shared, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];\n" ::"l"(map),
               "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z)
               : "memory");
}

// The same to a matrix of four dimensions.
AT_DEVICE void tma_store_4d(const void *map, const void *shared, int x, int y, int z, int w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];\n" ::"l"(map),
               "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}

AT_DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;\n" ::: "memory"); }

// Waits until all of this thread's stores have read shared memory.
AT_DEVICE void tma_store_wait() { asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory"); }

// Registers of a warpgroup ---------------------------------------------------------------------------------------------

// The whole warpgroup gives registers back, or takes some once they are there; COUNT is a multiple of 8.
template <int COUNT>
AT_DEVICE void registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}
template <int COUNT>
AT_DEVICE void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}

// Stops the compiler from moving reads and writes of these registers across this place: it does not know that a
// product changes them until its wait.
template <int COUNT>
AT_DEVICE void hold(float (&r)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(r[i])::"memory");
}
template <int COUNT>
AT_DEVICE void hold(uint32_t (&r)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(r[i])::"memory");
}

// Products -------------------------------------------------------------------------------------------------------------

// Orders what this thread did to registers and shared memory before the products that follow.
AT_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
AT_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }

// Waits until at most PENDING of the latest groups are in flight.
template <int PENDING>
AT_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(PENDING) : "memory");
}

// clang-format off
#define AT_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define AT_D32 AT_D8(0), AT_D8(8), AT_D8(16), AT_D8(24)
#define AT_D40 AT_D32, AT_D8(32)
#define AT_D48 AT_D40, AT_D8(40)
#define AT_D56 AT_D48, AT_D8(48)
#define AT_D64 AT_D56, AT_D8(56)
#define AT_D72 AT_D64, AT_D8(64)
#define AT_D80 AT_D72, AT_D8(72)
#define AT_D88 AT_D80, AT_D8(80)
#define AT_D96 AT_D88, AT_D8(88)
#define AT_D128 AT_D96, AT_D8(96), AT_D8(104), AT_D8(112), AT_D8(120)
#define AT_N32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define AT_N40 AT_N32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define AT_N48 AT_N40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define AT_N56 AT_N48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define AT_N64 AT_N56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define AT_N72 AT_N64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define AT_N80 AT_N72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define AT_N88 AT_N80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define AT_N96 AT_N88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define AT_N128 AT_N96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#define AT_WGMMA_OF(TYPE, ELEMENT, COLUMNS, COUNT, a0, a1, a2, a3, a4, a5, a6)                                         \
  AT_DEVICE void wgmma(float (&d)[COUNT], uint64_t a, uint64_t b, bool add, ELEMENT) {                                 \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #a2 ", 0;\n"                                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE "." TYPE " {" AT_N##COUNT                \
                 "}, %" #a0 ", %" #a1 ", add, 1, 1, 0, 0;\n}\n"                                                        \
                 : AT_D##COUNT : "l"(a), "l"(b), "r"((int)add));                                                       \
  }                                                                                                                    \
  template <int ALONG>                                                                                                 \
  AT_DEVICE void wgmma(float (&d)[COUNT], const uint32_t *a, uint64_t b, bool add, ELEMENT) {                          \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #a5 ", 0;\n"                                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE "." TYPE " {" AT_N##COUNT                \
                 "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #a4 ", add, 1, 1, %" #a6 ";\n}\n"                       \
                 : AT_D##COUNT                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(ALONG));                     \
  }
#define AT_WGMMA(...) AT_WGMMA_OF("f16", __half, __VA_ARGS__) AT_WGMMA_OF("bf16", __nv_bfloat16, __VA_ARGS__)

// d = a b, or d += a b with `add`, for 64 rows, 16 summed elements and as many columns as d has registers for: lane
// 4 g + t of warp w holds in d[4 i], d[4 i + 1] columns 8 i + 2 t and 8 i + 2 t + 1 of row 16 w + g, in d[4 i + 2],
// d[4 i + 3] those of row g + 8. `a` is a descriptor, or four registers that hold what mma_m16n8k16 takes for the
// warp's 16 rows. b's rows are its columns with ALONG 0 (and always where a is a descriptor): 16 of 64 elements of
// each. With ALONG 1 its rows run along the summed dimension: 16 of them.
AT_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38)
AT_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, 46)
AT_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54)
AT_WGMMA(112, 56, 56, 57, 58, 59, 60, 61, 62)
AT_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70)
AT_WGMMA(144, 72, 72, 73, 74, 75, 76, 77, 78)
AT_WGMMA(160, 80, 80, 81, 82, 83, 84, 85, 86)
AT_WGMMA(176, 88, 88, 89, 90, 91, 92, 93, 94)
AT_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102)
AT_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134)
// clang-format on

#endif
#endif
