// rmsnorm on the CPU without vectors of its own: UNROLL sums a row, then the row once more from the cache.
//   UNROLL                independent sums
//   THREADS, SYNC_POLICY  how many threads, and how they meet: cpu_pool.h
#include "cpu_rows.h"

static float sum_of_squares(const element *x, int64_t columns) {
  float sums[UNROLL] = {};
  int64_t column = 0;
  for (; column + UNROLL <= columns; column += UNROLL)
    for (int i = 0; i < UNROLL; ++i) sums[i] += to_float(x[column + i]) * to_float(x[column + i]);
  for (int i = 0; column < columns; ++column, ++i) sums[i] += to_float(x[column]) * to_float(x[column]);
  for (int half = UNROLL / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

static void run_thread(void *context, int thread) {
  const Rows &rows = *(const Rows *)context;
  for (int64_t row = rows.first(thread, 1); row < rows.first(thread + 1, 1); ++row) {
    const element *x = rows.x + row * rows.hidden_size;
    element *y = rows.y + row * rows.hidden_size;
    const float factor = rows.factor(sum_of_squares(x, rows.hidden_size));
    for (int64_t column = 0; column < rows.hidden_size; ++column)
      y[column] = from_float(to_float(x[column]) * factor * to_float(rows.w[column]));
  }
}

extern "C" int64_t variant_workspace(const at_call *) { return 0; }

extern "C" int variant_run(const at_call *call) {
  Rows rows(call);
  return pool_run(run_thread, &rows);
}
