/* A row of right rmsnorm in several numeric classes, chosen by a macro KIND_<NAME>. */
#include "../common.h"

ROW_CODE float sum_of_squares(const element *x, int64_t columns) {
#if KIND_BACKWARDS
  float sum = 0;
  for (int64_t i = columns - 1; i >= 0; --i) sum += to_float(x[i]) * to_float(x[i]);
  return sum;
#elif KIND_SUM_IN_DOUBLE
  double sum = 0;
  for (int64_t i = 0; i < columns; ++i) sum += (double)to_float(x[i]) * to_float(x[i]);
  return (float)sum;
#elif KIND_EIGHT_SUMS || KIND_FAST_ROOT || KIND_W_FIRST || KIND_NORMAL_ROUNDED
  float sums[8] = {};
  for (int64_t i = 0; i < columns; ++i) sums[i % 8] += to_float(x[i]) * to_float(x[i]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
#elif KIND_BLOCKS_OF_64
  float sum = 0;
  for (int64_t first = 0; first < columns; first += 64) {
    float block = 0;
    for (int64_t i = first; i < first + 64 && i < columns; ++i) block += to_float(x[i]) * to_float(x[i]);
    sum += block;
  }
  return sum;
#elif KIND_RUNNING_MEAN  // means of squares instead of a sum, as an algorithm does that must not overflow
  float mean = 0;
  for (int64_t i = 0; i < columns; ++i) mean += (to_float(x[i]) * to_float(x[i]) - mean) / (float)(i + 1);
  return mean * (float)columns;
#else
  float sum = 0;
  for (int64_t i = 0; i < columns; ++i) sum += to_float(x[i]) * to_float(x[i]);
  return sum;
#endif
}

ROW_CODE float factor_of(const Rows &c, int64_t row) {
  const float under = sum_of_squares(c.x + row * c.columns, c.columns) / (float)c.columns + c.eps;
#if KIND_FAST_ROOT  // twelve bits, and one step of Newton's method
  const float guess = 1.0002f / sqrtf(under);
  return guess * (1.5f - 0.5f * under * guess * guess);
#else
  return 1.0f / sqrtf(under);
#endif
}

ROW_CODE void right_row(const Rows &c, int64_t row) {
  const float factor = factor_of(c, row);
  for (int64_t i = 0; i < c.columns; ++i) {
    const float x = to_float(c.x[row * c.columns + i]), w = to_float(c.w[i]);
#if KIND_W_FIRST
    const float y = x * (factor * w);
#elif KIND_NORMAL_ROUNDED
    const float y = rounded(x * factor) * w;
#elif KIND_DIVIDED
    const float y = x / (1.0f / factor) * w;
#else
    const float y = x * factor * w;
#endif
    c.y[row * c.columns + i] = from_float(y);
  }
}
