/* Right rmsnorm on the CPU: the numeric classes are in right_row.h. */
#include "../common.h"

#include "right_row.h"

int64_t variant_workspace(const at_call *) { return 0; }

int variant_run(const at_call *call) {
  const Rows c = {static_cast<const element *>(call->in[RMSNORM_X]), static_cast<const element *>(call->in[RMSNORM_W]),
                  static_cast<element *>(call->out[RMSNORM_Y]),      call->dim[RMSNORM_TOKENS],
                  call->dim[RMSNORM_HIDDEN_SIZE],                    float(call->scalar[RMSNORM_EPS])};
  for (int64_t row = 0; row < c.tokens; ++row) right_row(c, row);
  return AT_OK;
}
