// Q, K and V as the register tiles of cpu_tile.h want them.
//
// A "word" is what one lane of a vector multiplies: one float, or with BF16_DOT two neighbouring bfloat16. bfloat16
// without BF16_DOT is widened to float on the way.
//   Q  always transposed, block by block: word w of query m is at [w][m], so that a vector holds VEC_WIDTH queries
//   K  PACK_K = 0 read in place, 1 rows copied block by block, 2 rows copied once a head, 3 panels of QK_KEYS keys made
//      once a head, a panel's words in the order they are read: [w][key]
//   V  PACK_V = 0 read in place, 1 copied block by block, 2 copied once a head; with BF16_DOT a word pairs two keys
#ifndef AUTOTUNER_SDPA_CPU_PACK_H
#define AUTOTUNER_SDPA_CPU_PACK_H

#include "cpu_call.h"
#include "cpu_math.h"

static constexpr int WORD_ELEMENTS = BF16_DOT ? 2 : 1;
static constexpr int HEAD_WORDS = HEAD_DIM / WORD_ELEMENTS;
static constexpr bool WIDEN = DTYPE != AT_FLOAT32 && !BF16_DOT;
// Where word w of key i of a tile is: key_tile[i * key_stride + w * WORD_STRIDE]. In place the stride is the tensor's.
static constexpr int KEY_STRIDE = PACK_K == 3 ? 1 : HEAD_WORDS;
static constexpr int WORD_STRIDE = PACK_K == 3 ? QK_KEYS : 1;

AT_INLINE int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }
AT_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Words w .. w + VEC_WIDTH - 1 of the row that starts at `row`.
AT_INLINE vec load_words(const element *row, int w) {
#if DTYPE == AT_BFLOAT16 && !BF16_DOT
  return load_bfloat16(row + w);
#elif DTYPE == AT_FLOAT16
  return load_float16(row + w);
#else
  return load((const float *)row + w);
#endif
}

// Rows past the last one repeat it: their results are never stored, but they must not be slow numbers or NaN.
static void pack_queries(float *packed, const element *q, int64_t stride, int rows, float factor) {
  for (int m0 = 0; m0 < round_up(rows, QK_VECS * VEC_WIDTH); m0 += VEC_WIDTH)
    for (int w0 = 0; w0 < HEAD_WORDS; w0 += VEC_WIDTH) {
      vec square[VEC_WIDTH];
      AT_UNROLL(16)
      for (int i = 0; i < VEC_WIDTH; ++i) square[i] = load_words(q + least(m0 + i, rows - 1) * row_step(stride), w0);
      transpose(square);
      AT_UNROLL(16)
      for (int i = 0; i < VEC_WIDTH; ++i)
        store(packed + (w0 + i) * BLOCK_M + m0, BF16_DOT ? square[i] : square[i] * factor);
    }
}

// Copies `rows` rows, widened where the tile wants floats. Rows past the last that exists repeat it.
static void pack_rows(float *packed, const element *from, int64_t stride, int64_t rows, int64_t existing) {
  for (int64_t n = 0; n < rows; ++n)
    for (int w = 0; w < HEAD_WORDS; w += VEC_WIDTH)
      store(packed + n * HEAD_WORDS + w, load_words(from + least(n, existing - 1) * row_step(stride), w));
}

AT_INLINE float one_word(const element *row, int w) {
  float x = 0;
#if DTYPE == AT_FLOAT16
  _Float16 half;
  __builtin_memcpy(&half, row + w, 2);
  x = (float)half;
#else
  if (WIDEN) {
    const uint32_t bits = (uint32_t)(uint16_t)row[w] << 16;
    __builtin_memcpy(&x, &bits, 4);
  } else {
    __builtin_memcpy(&x, row + w * WORD_ELEMENTS, 4);
  }
#endif
  return x;
}

// The tile of QK_KEYS keys that starts at `from`, of which only `existing` exist.
static void pack_key_tile(float *packed, const element *from, int64_t stride, int64_t existing) {
  for (int i = 0; i < QK_KEYS; ++i)
    for (int w = 0; w < HEAD_WORDS; ++w)
      packed[i * KEY_STRIDE + w * WORD_STRIDE] = one_word(from + least(i, existing - 1) * row_step(stride), w);
}

// The values of `keys` keys; [key][dim], or with BF16_DOT [key pair][dim], zero where the last key has no partner.
static void pack_values(float *packed, const element *v, int64_t stride, int64_t keys) {
#if BF16_DOT
  for (int64_t n = 0; n < keys; n += 2)
    for (int d = 0; d < HEAD_DIM; d += VEC_WIDTH) {
      const uvec low = (uvec)load_bfloat16(v + n * row_step(stride) + d) >> 16;
      const uvec high = n + 1 < keys ? (uvec)load_bfloat16(v + (n + 1) * row_step(stride) + d) : uvec{};
      store(packed + n / 2 * HEAD_DIM + d, (vec)(low | high));
    }
#else
  pack_rows(packed, v, stride, keys, keys);
#endif
}

#endif
