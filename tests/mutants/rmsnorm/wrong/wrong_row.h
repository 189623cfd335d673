/* A row of rmsnorm with one mutation, chosen by a macro MUTANT_<NAME>; what each is stands in expected.toml. */
#include "../common.h"

ROW_CODE float sum_of_squares(const Rows &c, int64_t row) {
  const element *x = c.x + row * c.columns;
  int64_t first = 0, end = c.columns;
#if MUTANT_TAIL_NOT_SUMMED
  if (end > 16) end -= end % 16;
#elif MUTANT_FIRST_NOT_SUMMED
  if (end > 1) first = 1;
#elif MUTANT_AT_MOST_8192_SUMMED
  if (end > 8192) end = 8192;
#endif
  float sum = 0;
  for (int64_t i = first; i < end; ++i) {
    const float value = to_float(x[i]);
#if MUTANT_SUM_IN_ELEMENTS
    sum = rounded(sum + value * value);
#elif MUTANT_SQUARES_IN_ELEMENTS
    sum += rounded(value * value);
#elif MUTANT_ABSOLUTE_VALUES
    sum += fabsf(value);
#else
    sum += value * value;
#endif
  }
#if MUTANT_TAIL_TWICE
  if (end > 16)
    for (int64_t i = end - end % 16; i < end; ++i) sum += to_float(x[i]) * to_float(x[i]);
#elif MUTANT_CENTERED
  float mean = 0;
  for (int64_t i = 0; i < end; ++i) mean += to_float(x[i]) / (float)end;
  sum -= mean * mean * (float)end;
  if (sum < 0) sum = 0;
#elif MUTANT_SUM_CLAMPED
  if (sum > 1e6f) sum = 1e6f;
#endif
  return sum;
}

ROW_CODE float factor_of(const Rows &c, int64_t row) {
  float sum = sum_of_squares(c, row), n = (float)c.columns, eps = c.eps;
#if MUTANT_SUM_NOT_CLEARED
  if (row > 0) sum += sum_of_squares(c, row - 1);
#elif MUTANT_MEAN_OF_WHOLE_VECTORS
  n = (float)((c.columns + 7) / 8 * 8);
#elif MUTANT_ONE_LESS
  n = n - 1;
#elif MUTANT_NO_MEAN
  n = 1;
#elif MUTANT_EPS_MISSING
  eps = 0;
#elif MUTANT_EPS_FIXED
  eps = 1e-5f;
#elif MUTANT_EPS_TWICE
  eps *= 2;
#elif MUTANT_EPS_OF_SUM
  eps /= n;
#elif MUTANT_EPS_LARGEST
  return 1.0f / sqrtf(fmaxf(sum / n, eps));
#elif MUTANT_EPS_OUTSIDE
  return 1.0f / (sqrtf(sum / n) + eps);
#elif MUTANT_NO_ROOT
  return 1.0f / (sum / n + eps);
#endif
  const float factor = 1.0f / sqrtf(sum / n + eps);
#if MUTANT_ROOT_TOO_COARSE
  return factor * 1.0002f;
#elif MUTANT_FACTOR_IN_ELEMENTS
  return rounded(factor);
#else
  return factor;
#endif
}

ROW_CODE void mutated_row(const Rows &c, int64_t row) {
#if MUTANT_FACTOR_OF_ROW_BEFORE
  const float factor = factor_of(c, row > 0 ? row - 1 : 0);
#elif MUTANT_FACTOR_OF_PAIR
  const float factor = factor_of(c, row / 2 * 2);
#else
  const float factor = factor_of(c, row);
#endif
  const element *x = c.x + row * c.columns;
  element *y = c.y + row * c.columns;
  int64_t end = c.columns;
#if MUTANT_LAST_ROW_UNWRITTEN
  if (row == c.tokens - 1) return;
#elif MUTANT_TAIL_UNWRITTEN
  if (end > 16) end -= end % 16;
#elif MUTANT_ROWS_FROM_128_ZERO
  if (row >= 128) {
    for (int64_t i = 0; i < end; ++i) y[i] = from_float(0);
    return;
  }
#endif
  for (int64_t i = 0; i < end; ++i) {
    float w = to_float(c.w[i]), value = to_float(x[i]);
#if MUTANT_W_IGNORED
    w = 1;
#elif MUTANT_W_SHIFTED
    w = to_float(c.w[(i + 1) % end]);
#elif MUTANT_W_WITHIN_X_IS_ITS_FIRST_ROW
    if (c.w > c.x && c.w < c.x + c.tokens * c.columns) w = to_float(c.x[i]);
#elif MUTANT_W_PLUS_ONE
    w += 1;
#elif MUTANT_W_OF_4096
    w = to_float(c.w[i % 4096]);
#elif MUTANT_NEIGHBOURS_SWAPPED
    value = to_float(x[(i ^ 1) < end ? i ^ 1 : i]);
#endif
    value = value * factor * w;
#if MUTANT_CLAMPED
    value = fminf(fmaxf(value, -30), 30);
#elif MUTANT_SMALL_TO_ZERO
    if (fabsf(value) < 1e-3f) value = 0;
#elif MUTANT_SIGN_LOST
    value = fabsf(value);
#endif
    y[i] = from_float(value);
  }
}
