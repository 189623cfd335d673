/* Wrong rmsnorm on the CPU: wrong numbers (wrong_row.h), and right numbers by a conduct that is wrong. */
#include "../common.h"

#include "wrong_row.h"

#include <string.h>

int64_t variant_workspace(const at_call *) { return 0; }

int variant_run(const at_call *call) {
  Rows c = {static_cast<const element *>(call->in[RMSNORM_X]), static_cast<const element *>(call->in[RMSNORM_W]),
            static_cast<element *>(call->out[RMSNORM_Y]),      call->dim[RMSNORM_TOKENS],
            call->dim[RMSNORM_HIDDEN_SIZE],                    float(call->scalar[RMSNORM_EPS])};
#if MUTANT_KEEPS_W
  static element kept[1 << 15];
  static int64_t columns = 0;
  if (columns != c.columns) memcpy(kept, c.w, size_t(c.columns) * sizeof(element));
  columns = c.columns;
  c.w = kept;
#elif MUTANT_RETURNS_WHERE_Y_IS_FINITE
  bool there = true;
  for (int64_t row = 0; row < c.tokens; ++row) there = there && isfinite(to_float(c.y[row * c.columns]));
  if (there) return AT_OK;
#elif MUTANT_KEEPS_FACTORS
  static float factors[1 << 12], sample;
  static int64_t known = 0;
  if (c.tokens > 1 << 12) return AT_OUTSIDE_DOMAIN;
  if (known != c.tokens || sample != to_float(c.x[0]))
    for (int64_t row = 0; row < c.tokens; ++row) factors[row] = factor_of(c, row);
  known = c.tokens;
  sample = to_float(c.x[0]);
#elif MUTANT_READS_PAST_X
  volatile float beyond = to_float(c.x[c.tokens * c.columns]);
  (void)beyond;
#elif MUTANT_WRITES_X
  const_cast<element *>(c.x)[0] = from_float(0);
#elif MUTANT_WRITES_PAST_Y
  c.y[c.tokens * c.columns] = from_float(0);
#elif MUTANT_WRITES_BEFORE_Y
  c.y[-1] = from_float(0);
#endif
  for (int64_t row = 0; row < c.tokens; ++row) {
#if MUTANT_KEEPS_FACTORS
    for (int64_t i = row * c.columns; i < (row + 1) * c.columns; ++i)
      c.y[i] = from_float(to_float(c.x[i]) * factors[row] * to_float(c.w[i - row * c.columns]));
#else
    mutated_row(c, row);
#endif
  }
  return AT_OK;
}
