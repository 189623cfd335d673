// Products with K and V of FP8 (e4m3), which become 16 bits in registers, on their way from shared memory.
//
// A chunk of 16 bytes is 16 columns. A matrix load gives lane 4 g + t the bytes 4 t to 4 t + 3 of row g: the first product
// takes the columns of Q in the same order (pair_of). Loaded transposed they are columns 2 g and 2 g + 1 of keys 2 t and
// 2 t + 1: of the chunk's two fragments of O the first has the even columns, the second the odd ones (in_order, pair_of).
#ifndef MMA_CACHE_H
#define MMA_CACHE_H

#include "mma_shape.h"

static_assert(HEAD_DIM % 32 == 0, "two chunks of a row are loaded at once");

// Two numbers in the low half of a word.
AT_DEVICE uint32_t widened(uint32_t pair) {
  const uint32_t halves = widen_e4m3_pair(pair);
#if DTYPE == AT_FLOAT16
  return halves;
#else
  const float2 both = __half22float2(*(const __half2 *)&halves);
  return pack(both.x, both.y);
#endif
}

AT_DEVICE void score(Scores (&scores)[ROW_TILES], const Queries (&queries)[ROW_TILES], const unsigned char *tile,
                     int lane) {
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 32; i++) {
    const unsigned char *keys = tile + piece(BLOCK_N, lane % 8 + lane / 16 * 8, lane / 8 % 2, i);
#pragma unroll
    for (int j = 0; j < BLOCK_N / 16; j++) {
      uint32_t k[4];
      ldmatrix_x4(k, keys + j * 16 * ROW_BYTES);
#pragma unroll
      for (int part = 0; part < 4; part++) {  // of eight keys and a chunk
        const uint32_t low = widened(k[part] & 0xffff), high = widened(k[part] >> 16);
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
          mma_m16n8k16(scores[m].fragment[2 * j + part / 2], queries[m].fragment[2 * i + part % 2], low, high, element());
      }
    }
  }
}

AT_DEVICE void accumulate(Partial (&partial)[ROW_TILES], const Probabilities (&probabilities)[ROW_TILES],
                          const unsigned char *tile, int lane) {
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 32; i++) {
    const unsigned char *values = tile + piece(BLOCK_N, lane % 16, lane / 16, i);
#pragma unroll
    for (int j = 0; j < BLOCK_N / 16; j++) {
      uint32_t v[4];
      ldmatrix_x4_trans(v, values + j * 16 * ROW_BYTES);
#pragma unroll
      for (int part = 0; part < 4; part++) {  // of a chunk's even columns, or odd ones
        const int chunk = part / 2, shift = part % 2 * 8;
        const uint32_t low = v[2 * chunk] >> shift, high = v[2 * chunk + 1] >> shift;
        const uint32_t first = widened(__byte_perm(low, 0, 0x4420)), second = widened(__byte_perm(high, 0, 0x4420));
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
          mma_m16n8k16(partial[m].output[4 * i + part], probabilities[m].fragment[j], first, second, element());
      }
    }
  }
}

// Neighbouring columns become neighbours: a lane has columns 4 t to 4 t + 3 of a chunk, two in each of its fragments.
AT_DEVICE void in_order(Partial (&partial)[ROW_TILES]) {
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
    for (int i = 0; i < FRAGMENTS; i += 2)
#pragma unroll
      for (int half = 0; half < 4; half += 2) {
        const float odd = partial[m].output[i + 1][half];
        partial[m].output[i + 1][half] = partial[m].output[i][half + 1];
        partial[m].output[i][half + 1] = odd;
      }
}

#endif
