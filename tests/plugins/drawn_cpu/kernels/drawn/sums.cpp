// Sums of rows. Each parameter changes the program; what the gate sees of them is the order of the sums.
//   UNROLL     independent sums
//   VEC_WIDTH  floats of each
//   BLOCK      rows of a block
//   BACKWARDS  1: the last block comes first
//   PREFETCH   cache lines ahead that are asked for
//   STREAM     1: what is asked for is the first to leave the caches
#include "rowsum.h"

#ifndef VEC_WIDTH
#define VEC_WIDTH 1
#define BLOCK 1
#define BACKWARDS 0
#define PREFETCH 0
#define STREAM 0
#endif
enum { SUMS = VEC_WIDTH * UNROLL };

int64_t variant_workspace(const at_call *) { return 0; }

static float sum(const float *row, int64_t columns) {
  float sums[SUMS] = {};
  int64_t column = 0;
  for (; column + SUMS <= columns; column += SUMS) {
    if (PREFETCH) __builtin_prefetch(row + column + 16 * PREFETCH, 0, STREAM ? 0 : 3);
    for (int i = 0; i < SUMS; ++i) sums[i] += row[column + i];
  }
  for (int i = 0; column < columns; ++column, ++i) sums[i] += row[column];
  for (int half = SUMS / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

int variant_run(const at_call *call) {
  const float *x = (const float *)call->in[ROWSUM_X];
  float *y = (float *)call->out[ROWSUM_Y];
  const int64_t rows = call->dim[ROWSUM_ROWS], columns = call->dim[ROWSUM_COLUMNS], blocks = (rows + BLOCK - 1) / BLOCK;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = (BACKWARDS ? blocks - 1 - block : block) * BLOCK;
    for (int64_t row = first; row < first + BLOCK && row < rows; ++row) y[row] = sum(x + row * columns, columns);
  }
  return AT_OK;
}
