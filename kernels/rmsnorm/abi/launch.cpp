// The host side of a CUDA variant of rmsnorm that is one kernel: arguments, grid, launch. Compiled once a toolchain and
// linked with every such variant.
#include "rmsnorm_cuda.h"

#include "cuda_host.h"

namespace {

constexpr at::Kernel kernel("variant_kernel");

}  // namespace

extern "C" int64_t variant_workspace(const at_call *) { return 0; }

extern "C" int variant_run(const at_call *call) {
  const at_geometry &shape = at::geometry();
  const int64_t tokens = call->dim[RMSNORM_TOKENS], hidden_size = call->dim[RMSNORM_HIDDEN_SIZE];
  const int64_t blocks = (tokens + shape.rows - 1) / shape.rows * shape.split;
  if (shape.args_bytes != (int32_t)sizeof(rmsnorm_args)) return AT_OUTSIDE_DOMAIN;
  if (blocks > INT32_MAX || hidden_size > INT32_MAX / 2) return AT_OUTSIDE_DOMAIN;
  rmsnorm_args args = {};
  args.x = call->in[RMSNORM_X];
  args.w = call->in[RMSNORM_W];
  args.y = call->out[RMSNORM_Y];
  args.tokens = tokens;
  args.hidden_size = (int32_t)hidden_size;
  args.eps = (float)call->scalar[RMSNORM_EPS];
  return at::status(kernel.launch((unsigned)blocks, &args, (CUstream)call->stream));
}
