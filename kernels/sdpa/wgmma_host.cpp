// The host side of IMPL = wgmma: tensor maps of Q, K, V and O, and a grid that may be smaller than the work.
#include "sdpa_cuda.h"  // first: it names the op's fields of the geometry

#include "cuda_host.h"

#include "wgmma_plan.h"

#include <algorithm>

namespace {

at::Kernel kernel("variant_kernel");

constexpr uint64_t ELEMENT_BYTES = 2;

struct Matrix {
  const void *base;
  uint64_t length, slices;
  uint32_t box_rows;
};

int encode(sdpa_tensor_map *map, const Matrix &matrix) {
  const at::Driver &driver = at::Driver::get();
  if (!driver.cuTensorMapEncodeTiled) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t row = (uint64_t)at::geometry().head_dim * ELEMENT_BYTES;
  const cuuint64_t sizes[3] = {(uint64_t)at::geometry().head_dim, matrix.length, matrix.slices};
  const cuuint64_t strides[2] = {row, row * matrix.length};
  const cuuint32_t box[3] = {64, matrix.box_rows, 1}, steps[3] = {1, 1, 1};
  return driver.cuTensorMapEncodeTiled((CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3,
                                       const_cast<void *>(matrix.base), sizes, strides, box, steps,
                                       CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

int encode_all(wgmma_args &args, const at_call *call) {
  const uint64_t slices = (uint64_t)args.slices, seq_q = (uint64_t)args.seq_q, seq_k = (uint64_t)args.seq_k;
  const uint32_t keys = (uint32_t)at::geometry().tma_rows;
  if (const int error = encode(&args.q_map, {call->in[SDPA_Q], seq_q, slices, WGMMA_GROUP_ROWS})) return error;
  if (const int error = encode(&args.k_map, {call->in[SDPA_K], seq_k, slices, keys})) return error;
  if (const int error = encode(&args.v_map, {call->in[SDPA_V], seq_k, slices, keys})) return error;
  return encode(&args.o_map, {call->out[SDPA_O], seq_q, slices, WGMMA_GROUP_ROWS});
}

bool draws_tickets() { return at::geometry().host[WGMMA_SCHEDULE] == WGMMA_DYNAMIC; }

// Which slices take turns where every block knows its items beforehand: as many as share the second-level cache well,
// the same number each time. A few that are left over would begin with long items when all others are at their short
// ones.
void batches_of_static(wgmma_args &args, int cache_bytes) {
  const int64_t bytes = 2 * (int64_t)args.seq_k * at::geometry().head_dim * (int64_t)ELEMENT_BYTES;
  const int64_t fit = (int64_t)cache_bytes * 5 / 8 / bytes;
  const int64_t batches = fit < 1 ? args.slices : (args.slices + fit - 1) / fit;
  args.slices_at_once = (int32_t)((args.slices + batches - 1) / batches);
  args.last_batch = (args.slices - 1) / args.slices_at_once * args.slices_at_once;
}

// Where a block that is ready takes the next item: small batches, so that blocks which work at the same time read the
// same K and V and are not all at their longest items. The last batch has two items a block at least: with fewer their
// order could not even out when the blocks end.
void batches_in_turn(wgmma_args &args, int64_t blocks) {
  const int64_t rows = args.row_blocks, slices = args.slices;
  const int64_t some = std::clamp<int64_t>(blocks / 2 / rows, 1, slices);
  const int64_t last = std::clamp<int64_t>((2 * blocks + rows - 1) / rows, some, slices);
  args.slices_at_once = (int32_t)some;
  args.last_batch = (int32_t)((slices - last) / some * some);
}

int attribute(int *value, CUdevice_attribute which) {
  CUdevice device;
  if (const int error = at::Driver::get().cuCtxGetDevice(&device)) return error;
  return at::Driver::get().cuDeviceGetAttribute(value, which, device);
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *) { return draws_tickets() ? 64 : 0; }

extern "C" int variant_run(const at_call *call) {
  const at_geometry &shape = at::geometry();
  const int64_t *dim = call->dim;
  const int64_t slices = dim[SDPA_BATCH] * dim[SDPA_HEADS];
  const int64_t row_blocks = (dim[SDPA_SEQ_Q] + shape.rows - 1) / shape.rows;
  if (shape.args_bytes != (int32_t)sizeof(wgmma_args) || slices * row_blocks > INT32_MAX / 2) return AT_OUTSIDE_DOMAIN;
  if (dim[SDPA_SEQ_Q] > INT32_MAX / 2 || dim[SDPA_SEQ_K] > INT32_MAX / 2) return AT_OUTSIDE_DOMAIN;
  if (draws_tickets() && (!call->workspace || call->workspace_bytes < 64)) return AT_NO_WORKSPACE;
  if (!at::Driver::get().found) return at::status(CUDA_ERROR_NO_DEVICE);
  wgmma_args args = {};
  args.tickets = (unsigned long long *)call->workspace;
  args.launch = at::launch_number();
  args.slices = (int32_t)slices;
  args.row_blocks = (int32_t)row_blocks;
  args.items = (int32_t)(slices * row_blocks);
  args.seq_q = (int32_t)dim[SDPA_SEQ_Q];
  args.seq_k = (int32_t)dim[SDPA_SEQ_K];
  args.scale_log2 = (float)(call->scalar[SDPA_SCALE] * 1.4426950408889634);
  int processors, cache_bytes;
  if (const int error = attribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)) return at::status(error);
  if (const int error = attribute(&cache_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)) return at::status(error);
  const int resident = processors * shape.host[WGMMA_BLOCKS_SM];
  if (shape.host[WGMMA_SCHEDULE] == WGMMA_STATIC)
    batches_of_static(args, cache_bytes);
  else
    batches_in_turn(args, resident);
  if (const int error = encode_all(args, call)) return at::status(error);
  const bool all = shape.host[WGMMA_SCHEDULE] == WGMMA_TILE || args.items < resident;
  return at::status(kernel.launch((unsigned)(all ? args.items : resident), &args, (CUstream)call->stream));
}

AT_CUDA_IDENTITY
