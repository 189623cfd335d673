// Products with K and V of FP8 (e4m3), which become halves in registers, on their way from shared memory.
//
// A chunk of 16 bytes is 16 columns. A matrix load gives lane 4 g + t the bytes 4 t to 4 t + 3 of row g: the first product
// takes the columns of Q in the same order (pair_of). Loaded transposed they are columns 2 g and 2 g + 1 of keys 2 t and
// 2 t + 1: of the chunk's two fragments of O the first has the even columns, the second the odd ones (in_order, pair_of).
#ifndef MMA_CACHE_H
#define MMA_CACHE_H

#include "mma_shape.h"

static_assert(HEAD_DIM % 32 == 0, "two chunks of a row are loaded at once");

// Queries as halves, which K and V are at once, where a bfloat16 takes four instructions more for two numbers. A row is
// divided by a power of two: its largest number becomes one of 1 to 2, and only what is 2^-14 of that loses digits.
AT_DEVICE void to_halves(Queries &queries) {
#if DTYPE == AT_BFLOAT16
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    uint32_t largest = 0;  // as positive numbers are ordered, so are their bits
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++) {
      const uint32_t word = queries.fragment[i / 2][i % 2 * 2 + half];
      largest = max(largest, max(word & 0x7fff, word >> 16 & 0x7fff));
    }
    largest = max(largest, __shfl_xor_sync(~0u, largest, 1));
    largest = max(largest, __shfl_xor_sync(~0u, largest, 2));
    const uint32_t exponent = min(max(largest >> 7, 1u), 253u);  // of 254 the power would be 0
    const float lower = __uint_as_float((254 - exponent) << 23);
    queries.raise[half] = __uint_as_float(exponent << 23);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++) {
      uint32_t &word = queries.fragment[i / 2][i % 2 * 2 + half];
      const __half2 pair = __floats2half2_rn(__uint_as_float(word << 16) * lower, __uint_as_float(word & 0xffff0000) * lower);
      word = *(const uint32_t *)&pair;
    }
  }
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
        uint32_t pairs[2];
        widen_e4m3_pairs(pairs, k[part]);
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
          mma_m16n8k16(scores[m].fragment[2 * j + part / 2], queries[m].fragment[2 * i + part % 2], pairs[0], pairs[1], __half());
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
      for (int chunk = 0; chunk < 2; chunk++) {
        uint32_t low[2], high[2];  // of its even columns, then of the odd ones
        widen_e4m3_pairs(low, __byte_perm(v[chunk * 2], 0, 0x3120));
        widen_e4m3_pairs(high, __byte_perm(v[chunk * 2 + 1], 0, 0x3120));
#pragma unroll
        for (int odd = 0; odd < 2; odd++)
#pragma unroll
          for (int m = 0; m < ROW_TILES; m++)
            mma_m16n8k16(partial[m].output[4 * i + chunk * 2 + odd], probabilities[m].fragment[j], low[odd], high[odd], __half());
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
      for (int half = 0; half < 2 * HALVES; half += 2) {
        const float odd = partial[m].output[i + 1][half];
        partial[m].output[i + 1][half] = partial[m].output[i][half + 1];
        partial[m].output[i][half + 1] = odd;
      }
}

#endif
