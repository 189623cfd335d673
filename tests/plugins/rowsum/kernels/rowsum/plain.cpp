// UNROLL independent sums a row. Two mutants: one drops what is left of a row, one remembers the sums of the last call.
#include "rowsum.h"

int64_t variant_workspace(const at_call *) { return 0; }

static float sum(const float *row, int64_t columns) {
  float sums[UNROLL] = {};
  int64_t column = 0;
  for (; column + UNROLL <= columns; column += UNROLL)
    for (int lane = 0; lane < UNROLL; lane++) sums[lane] += row[column + lane];
#ifndef MUTANT_DROPS_TAIL
  for (int lane = 0; column < columns; column++, lane++) sums[lane] += row[column];
#endif
  float total = 0;
  for (int lane = 0; lane < UNROLL; lane++) total += sums[lane];
  return total;
}

int variant_run(const at_call *call) {
  const float *x = (const float *)call->in[ROWSUM_X];
  float *y = (float *)call->out[ROWSUM_Y];
  const int64_t rows = call->dim[ROWSUM_ROWS], columns = call->dim[ROWSUM_COLUMNS];
#ifdef MUTANT_ADDS_UP
  static float before = 0;
#else
  const float before = 0;
#endif
  for (int64_t row = 0; row < rows; row++) y[row] = sum(x + row * columns, columns) + before;
#ifdef MUTANT_ADDS_UP
  before = y[0] * 1e-3f;
#endif
  return AT_OK;
}
