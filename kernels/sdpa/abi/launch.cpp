// The host side of a CUDA variant of sdpa that is one kernel: arguments, tensor maps, grid, launch. Compiled once a
// toolchain and linked with every such variant.
#include "sdpa_maps.h"

#ifndef AT_LENGTHS_INPUT
#define AT_LENGTHS_INPUT SDPA_KEY_LENGTHS
#endif

namespace {

constexpr at::Kernel kernel("variant_kernel");

/* Blocks of the grid. */
int64_t blocks(const at_call *call) {
  const at_geometry &shape = at::geometry();
  const int64_t *dim = call->dim, group = shape.packs_groups ? dim[SDPA_HEADS] / dim[SDPA_HEADS_KV] : 1;
  const int64_t slices = dim[SDPA_BATCH] * dim[SDPA_HEADS] / group, rows = dim[SDPA_SEQ_Q] * group;
  return slices * ((rows + shape.rows - 1) / shape.rows) * shape.split;
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *call) {
  const at_geometry &shape = at::geometry();
  if (!shape.block_workspace) return 0;
  return blocks(call) * shape.block_workspace + blocks(call) / shape.split * (int64_t)sizeof(sdpa_arrivals);
}

extern "C" int variant_run(const at_call *call) {
  const at_geometry &shape = at::geometry();
  const int64_t *dim = call->dim;
  if (!sdpa_is_argument(shape.args_bytes) || blocks(call) > INT32_MAX) return AT_OUTSIDE_DOMAIN;
  if (dim[SDPA_SEQ_Q] > INT32_MAX / 4 || dim[SDPA_SEQ_K] > INT32_MAX / 4) return AT_OUTSIDE_DOMAIN;
  if (dim[SDPA_HEADS] % dim[SDPA_HEADS_KV]) return AT_OUTSIDE_DOMAIN;
  if (shape.packs_groups && dim[SDPA_SEQ_Q] * dim[SDPA_HEADS] > INT32_MAX / 2) return AT_OUTSIDE_DOMAIN;
  if (shape.fixed_seq_q && shape.fixed_seq_q != dim[SDPA_SEQ_Q]) return AT_OUTSIDE_DOMAIN;
  if (shape.fixed_seq_k && shape.fixed_seq_k != dim[SDPA_SEQ_K]) return AT_OUTSIDE_DOMAIN;
  if (shape.block_workspace && (!call->workspace || call->workspace_bytes < variant_workspace(call)))
    return AT_NO_WORKSPACE;
  sdpa_args args = {};
  args.q = call->in[SDPA_Q];
  args.k = call->in[SDPA_K];
  args.v = call->in[SDPA_V];
  args.o = call->out[SDPA_O];
  args.lse = (float *)call->out[SDPA_LSE];
  args.key_lengths = (const int32_t *)call->in[AT_LENGTHS_INPUT];
  for (int i = SDPA_MORE; i < SDPA_MOST; i++) args.more[i - SDPA_MORE] = call->in[i];
  args.bias_stride = sdpa_bias_stride(call);
  args.workspace = call->workspace;
  args.launch = at_cuda_launch_number();
  args.batch = (int32_t)dim[SDPA_BATCH];
  args.heads = (int32_t)dim[SDPA_HEADS];
  args.heads_kv = (int32_t)dim[SDPA_HEADS_KV];
  args.seq_q = (int32_t)dim[SDPA_SEQ_Q];
  args.seq_k = (int32_t)dim[SDPA_SEQ_K];
  args.scale = sdpa_scale(call);
  args.scale_log2 = sdpa_scale_log2(call);
  args.window_left = sdpa_window(call, SDPA_WINDOW_LEFT);
  args.window_right = sdpa_window(call, SDPA_WINDOW_RIGHT);
  args.q_stride = at::strides_of(call->in_stride[SDPA_Q]);
  args.k_stride = at::strides_of(call->in_stride[SDPA_K]);
  args.v_stride = at::strides_of(call->in_stride[SDPA_V]);
  args.o_stride = at::strides_of(call->out_stride[SDPA_O]);
  if (shape.tma_rows) {
    const int64_t keys = args.seq_k, heads = args.heads_kv, batch = args.batch;
    if (shape.strided_maps && !(at::rows_apart(args.k_stride, keys) && at::rows_apart(args.v_stride, keys)))
      return AT_OUTSIDE_DOMAIN;
    const at::Matrix k = {args.k, args.k_stride, keys, heads, batch, shape.tma_rows};
    const at::Matrix v = {args.v, args.v_stride, keys, heads, batch, shape.tma_rows};
    if (const int error = at::tensor_map(&args.k_map, k)) return at::status(error);
    if (const int error = at::tensor_map(&args.v_map, v)) return at::status(error);
  }
  return at::status(kernel.launch((unsigned)blocks(call), &args, (CUstream)call->stream));
}
