// The host side of IMPL = mma_fp8: the kernel that transposes V, and one with a block for each work item.
#include "fp8_host.h"

extern "C" int variant_run(const at_call *call) {
  fp8_args args = {};
  if (const int status = prepare(args, call)) return status;
  if (const int error = turn_values(args, call)) return at::status(error);
  return at::status(kernel.launch((unsigned)args.items, &args, (CUstream)call->stream));
}
