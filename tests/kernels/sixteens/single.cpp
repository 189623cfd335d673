/* Right attention that serves a single query only. */
#include "../../mutants/common/attention.h"

int64_t variant_workspace(const at_call *call) { return right_workspace(call); }

int variant_run(const at_call *call) {
  if (call->workspace_bytes < right_workspace(call)) return AT_NO_WORKSPACE;
  if (call->dim[SDPA_SEQ_Q] != 1) return AT_OUTSIDE_DOMAIN;
  right_attention(call, static_cast<element *>(call->out[SDPA_O]));
  return AT_OK;
}
