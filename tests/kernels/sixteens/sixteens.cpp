/* Right attention that serves groups of GROUP rows only, as a kernel without a tail would. */
#include "../../mutants/common/attention.h"

int64_t variant_workspace(const at_call *call) { return right_workspace(call); }

int variant_run(const at_call *call) {
  if (call->workspace_bytes < right_workspace(call)) return AT_NO_WORKSPACE;
#if !OTHERS_ANSWERED
  if (call->dim[SDPA_SEQ_Q] % GROUP != 0) {
#if OTHERS_REFUSED_WITH_A_WRITE_BEFORE_O
    static_cast<volatile element *>(call->out[SDPA_O])[-1] = 1;
#elif OTHERS_REFUSED_WITH_A_CHANGED_Q
    *static_cast<element *>(const_cast<void *>(call->in[SDPA_Q])) += 1;
#endif
    return AT_OUTSIDE_DOMAIN;
  }
#endif
  right_attention(call, static_cast<element *>(call->out[SDPA_O]));
  return AT_OK;
}
