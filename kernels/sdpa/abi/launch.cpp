// The host side of a CUDA variant of sdpa that is one kernel: arguments, tensor maps, grid, launch. Compiled once a
// toolchain and linked with every such variant.
#include "sdpa_cuda.h"

#include "cuda_host.h"

namespace {

at::Kernel kernel("variant_kernel");

CUtensorMapL2promotion promotion(int32_t bytes) {
  if (bytes == 1) return CU_TENSOR_MAP_L2_PROMOTION_NONE;
  if (bytes == 64) return CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
  return bytes == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
}

/* Bytes of a stride of a tensor map, which has none of 0: who has one reads at the coordinate 0. Of rows there are several in
 * a box: one key for all is not served. */
cuuint64_t step(int64_t stride) { return stride ? (cuuint64_t)stride * 2 : 16; }

int tensor_map(sdpa_tensor_map *map, const void *base, const sdpa_args &args, const sdpa_strides &stride) {
  const at::Driver &driver = at::Driver::get();
  const at_geometry &shape = at::geometry();
  if (!driver.cuTensorMapEncodeTiled) return CUDA_ERROR_NOT_SUPPORTED;
  const cuuint64_t head_dim = (cuuint64_t)shape.head_dim, keys = (cuuint64_t)args.seq_k;
  const cuuint64_t heads = (cuuint64_t)args.heads_kv, batch = (cuuint64_t)args.batch;
  cuuint64_t sizes[4] = {head_dim, keys, heads, batch};
  cuuint64_t strides[3] = {step(stride.row), step(stride.head), step(stride.batch)};
  if (!shape.strided_maps) sizes[2] = heads * batch, strides[0] = head_dim * 2, strides[1] = head_dim * 2 * keys;
  const cuuint32_t box[4] = {64, (cuuint32_t)shape.tma_rows, 1, 1}, steps[4] = {1, 1, 1, 1};
  return driver.cuTensorMapEncodeTiled((CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_UINT16, shape.strided_maps ? 4 : 3,
                                       const_cast<void *>(base), sizes, strides, box, steps,
                                       CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                       promotion(shape.l2_bytes), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

sdpa_strides strides(const int64_t *of) { return {of[SDPA_BATCH_STRIDE], of[SDPA_HEAD_STRIDE], of[SDPA_ROW_STRIDE]}; }

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
  if (shape.args_bytes != (int32_t)sizeof(sdpa_args) || blocks(call) > INT32_MAX) return AT_OUTSIDE_DOMAIN;
  if (dim[SDPA_SEQ_Q] > INT32_MAX / 2 || dim[SDPA_SEQ_K] > INT32_MAX / 2) return AT_OUTSIDE_DOMAIN;
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
  args.key_lengths = (const int32_t *)call->in[SDPA_KEY_LENGTHS];
  args.workspace = call->workspace;
  args.launch = at::launch_number();
  args.batch = (int32_t)dim[SDPA_BATCH];
  args.heads = (int32_t)dim[SDPA_HEADS];
  args.heads_kv = (int32_t)dim[SDPA_HEADS_KV];
  args.seq_q = (int32_t)dim[SDPA_SEQ_Q];
  args.seq_k = (int32_t)dim[SDPA_SEQ_K];
  args.scale = (float)call->scalar[SDPA_SCALE];
  args.scale_log2 = (float)(call->scalar[SDPA_SCALE] * 1.4426950408889634);
  args.q_stride = strides(call->in_stride[SDPA_Q]);
  args.k_stride = strides(call->in_stride[SDPA_K]);
  args.v_stride = strides(call->in_stride[SDPA_V]);
  args.o_stride = strides(call->out_stride[SDPA_O]);
  if (shape.tma_rows) {
    if (shape.strided_maps && args.seq_k > 1 && !(args.k_stride.row && args.v_stride.row)) return AT_OUTSIDE_DOMAIN;
    if (const int error = tensor_map(&args.k_map, args.k, args, args.k_stride)) return at::status(error);
    if (const int error = tensor_map(&args.v_map, args.v, args, args.v_stride)) return at::status(error);
  }
  return at::status(kernel.launch((unsigned)blocks(call), &args, (CUstream)call->stream));
}

AT_CUDA_IDENTITY
