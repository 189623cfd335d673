/* One launch, with another scale where the attack says so. */
#include "sdpa_cuda.h"  // first: it names the op's fields of the geometry

#include "cuda_host.h"

#include "../common/cuda_call.h"

namespace {

constexpr at::Kernel launched("variant_kernel");

int launch(const at_call *call, bool wrong) {
  const int64_t *dim = call->dim, rows = at::geometry().rows;
  sdpa_args args = arguments(call);
  if (wrong) args.scale = args.scale_log2 = 0;
  const int64_t blocks = dim[SDPA_BATCH] * dim[SDPA_HEADS] * ((dim[SDPA_SEQ_Q] + rows - 1) / rows);
  return at::status(launched.launch((unsigned)blocks, &args, (CUstream)call->stream));
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *) { return 0; }
