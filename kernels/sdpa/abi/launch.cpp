// The host side of a CUDA variant of sdpa that is one kernel: arguments, tensor maps, grid, launch. Compiled once a
// toolchain and linked with every such variant.
#include "sdpa_cuda.h"

#include "cuda_host.h"

namespace {

at::Kernel kernel("variant_kernel");

int tensor_map(sdpa_tensor_map *map, const void *base, uint64_t head_dim, uint64_t seq, uint64_t slices) {
  const at::Driver &driver = at::Driver::get();
  if (!driver.cuTensorMapEncodeTiled) return CUDA_ERROR_NOT_SUPPORTED;
  const cuuint64_t sizes[3] = {head_dim, seq, slices}, strides[2] = {head_dim * 2, head_dim * 2 * seq};
  const cuuint32_t box[3] = {64, (cuuint32_t)at::geometry().tma_rows, 1}, steps[3] = {1, 1, 1};
  return driver.cuTensorMapEncodeTiled((CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void *>(base),
                                       sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                       CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *) { return 0; }

extern "C" int variant_run(const at_call *call) {
  const at_geometry &shape = at::geometry();
  const int64_t *dim = call->dim;
  const int64_t slices = dim[SDPA_BATCH] * dim[SDPA_HEADS];
  const int64_t blocks = slices * ((dim[SDPA_SEQ_Q] + shape.rows - 1) / shape.rows) * shape.split;
  if (shape.args_bytes != (int32_t)sizeof(sdpa_args) || blocks > INT32_MAX) return AT_OUTSIDE_DOMAIN;
  if (dim[SDPA_SEQ_Q] > INT32_MAX / 2 || dim[SDPA_SEQ_K] > INT32_MAX / 2) return AT_OUTSIDE_DOMAIN;
  if (shape.fixed_seq_q && shape.fixed_seq_q != dim[SDPA_SEQ_Q]) return AT_OUTSIDE_DOMAIN;
  if (shape.fixed_seq_k && shape.fixed_seq_k != dim[SDPA_SEQ_K]) return AT_OUTSIDE_DOMAIN;
  sdpa_args args = {};
  args.q = call->in[SDPA_Q];
  args.k = call->in[SDPA_K];
  args.v = call->in[SDPA_V];
  args.o = call->out[SDPA_O];
  args.q_scale = (const float *)call->in[SDPA_Q_SCALE];
  args.k_scale = (const float *)call->in[SDPA_K_SCALE];
  args.v_scale = (const float *)call->in[SDPA_V_SCALE];
  args.workspace = call->workspace;
  args.batch = (int32_t)dim[SDPA_BATCH];
  args.heads = (int32_t)dim[SDPA_HEADS];
  args.seq_q = (int32_t)dim[SDPA_SEQ_Q];
  args.seq_k = (int32_t)dim[SDPA_SEQ_K];
  args.scale = (float)call->scalar[SDPA_SCALE];
  args.scale_log2 = (float)(call->scalar[SDPA_SCALE] * 1.4426950408889634);
  if (shape.tma_rows) {
    const uint64_t head_dim = (uint64_t)shape.head_dim;
    if (const int error = tensor_map(&args.k_map, args.k, head_dim, (uint64_t)args.seq_k, (uint64_t)slices))
      return at::status(error);
    if (const int error = tensor_map(&args.v_map, args.v, head_dim, (uint64_t)args.seq_k, (uint64_t)slices))
      return at::status(error);
  }
  return at::status(kernel.launch((unsigned)blocks, &args, (CUstream)call->stream));
}

AT_CUDA_IDENTITY
