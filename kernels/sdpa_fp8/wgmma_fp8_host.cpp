// The host side of IMPL = wgmma_fp8: tensor maps, the kernel that transposes V, and one whose grid may be smaller than the
// work.
#include "../sdpa/abi/sdpa_maps.h"

#include "wgmma_fp8_plan.h"

#include <algorithm>

namespace {

constexpr int64_t L2_BYTES_OF_SLICES = 32 << 20;  // of K and V that causal blocks read in turn
at::Kernel first_kernel("turn_kernel", FP8_PIECE_THREADS), kernel("variant_kernel");

int64_t pieces(const at_call *call) { return (call->dim[SDPA_SEQ_K] + FP8_PIECE_KEYS - 1) / FP8_PIECE_KEYS; }
int64_t slices_kv(const at_call *call) { return call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS_KV]; }

sdpa_strides strides_of(const at_call *call, int tensor) { return at::strides_of(call->in_stride[tensor]); }

// A map of bytes, of four dimensions, with the swizzle of a row's bytes.
int byte_map(sdpa_tensor_map *map, const void *base, const cuuint64_t (&sizes)[4], const int64_t (&strides)[3],
             int32_t box_rows) {
  const at::Driver &driver = at::Driver::get();
  if (!driver.cuTensorMapEncodeTiled) return CUDA_ERROR_NOT_SUPPORTED;
  cuuint64_t steps[3];
  for (int i = 0; i < 3; i++) steps[i] = strides[i] ? (cuuint64_t)strides[i] : 16;  // what has none is read at 0
  const cuuint32_t row = (cuuint32_t)sizes[0], box[4] = {row, (cuuint32_t)box_rows, 1, 1}, each[4] = {1, 1, 1, 1};
  const CUtensorMapSwizzle swizzle = row == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : row == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                 : CU_TENSOR_MAP_SWIZZLE_32B;
  return driver.cuTensorMapEncodeTiled((CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, const_cast<void *>(base),
                                       sizes, steps, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

int encode_all(fp8_args &args, const at_call *call) {
  const at_geometry &shape = at::geometry();
  const auto rows_of = [&](sdpa_tensor_map *map, int tensor, int64_t length, int64_t heads, int32_t box_rows) {
    const sdpa_strides stride = strides_of(call, tensor);
    return byte_map(map, call->in[tensor],
                    {(cuuint64_t)shape.head_dim, (cuuint64_t)length, (cuuint64_t)heads, (cuuint64_t)call->dim[SDPA_BATCH]},
                    {stride.row, stride.head, stride.batch}, box_rows);
  };
  const int64_t seq_q = call->dim[SDPA_SEQ_Q], heads = call->dim[SDPA_HEADS];
  if (const int error = rows_of(&args.q_map, SDPA_Q, seq_q, heads, FP8_GROUP_ROWS)) return error;
  if (const int error = rows_of(&args.k_map, SDPA_K, args.seq_k, args.heads_kv, shape.tma_rows)) return error;
  const int64_t chunk_keys = shape.host[FP8_CHUNK_KEYS], chunk = chunk_keys * shape.head_dim;
  const int64_t chunks = pieces(call) * (FP8_PIECE_KEYS / chunk_keys);
  const cuuint64_t turned[4] = {(cuuint64_t)chunk_keys, (cuuint64_t)shape.head_dim, (cuuint64_t)chunks,
                                (cuuint64_t)slices_kv(call)};
  if (const int error = byte_map(&args.v_map, args.turned, turned, {chunk_keys, chunk, chunks * chunk}, shape.head_dim))
    return error;
  const at::Matrix o = {call->out[SDPA_O], at::strides_of(call->out_stride[SDPA_O]), seq_q, heads, call->dim[SDPA_BATCH],
                        FP8_GROUP_ROWS};
  return at::tensor_map(&args.o_map, o);
}

/* False where one row is to stand for all of a tensor. */
bool served(const at_call *call) {
  const int64_t seq_q = call->dim[SDPA_SEQ_Q], seq_k = call->dim[SDPA_SEQ_K];
  return call->dim[SDPA_HEADS] % call->dim[SDPA_HEADS_KV] == 0 && seq_q <= INT32_MAX / 2 && seq_k <= INT32_MAX / 2 &&
         at::rows_apart(strides_of(call, SDPA_Q), seq_q) && at::rows_apart(strides_of(call, SDPA_K), seq_k);
}

void fill(fp8_args &args, const at_call *call) {
  const int64_t *dim = call->dim;
  args.q_descale = (const float *)call->in[SDPA_FP8_Q_DESCALE];
  args.k_descale = (const float *)call->in[SDPA_FP8_K_DESCALE];
  args.v_descale = (const float *)call->in[SDPA_FP8_V_DESCALE];
  args.key_lengths = (const int32_t *)call->in[SDPA_FP8_KEY_LENGTHS];
  args.v = call->in[SDPA_V];
  args.v_stride = strides_of(call, SDPA_V);
  args.tickets = (unsigned long long *)call->workspace;
  args.turned = (char *)call->workspace + FP8_TICKET_BYTES;
  args.launch = at::launch_number();
  args.same = 0x3210;
  args.slices = (int32_t)(dim[SDPA_BATCH] * dim[SDPA_HEADS]);
  args.row_blocks = (int32_t)((dim[SDPA_SEQ_Q] + at::geometry().rows - 1) / at::geometry().rows);
  args.items = args.slices * args.row_blocks;
  args.seq_q = (int32_t)dim[SDPA_SEQ_Q];
  args.seq_k = (int32_t)dim[SDPA_SEQ_K];
  args.heads = (int32_t)dim[SDPA_HEADS];
  args.heads_kv = (int32_t)dim[SDPA_HEADS_KV];
  args.group = args.heads / args.heads_kv;
  const int64_t bytes = 2 * dim[SDPA_SEQ_K] * at::geometry().head_dim;
  args.slices_at_once = (int32_t)std::clamp<int64_t>(L2_BYTES_OF_SLICES / bytes * args.group, 1, args.slices);
  for (int tensor = SDPA_Q; tensor <= SDPA_V; tensor++) {
    const sdpa_strides stride = strides_of(call, tensor);
    args.expanded |= (stride.batch ? 0 : FP8_ONE_BATCH(tensor)) | (stride.head ? 0 : FP8_ONE_HEAD(tensor));
  }
  args.scale_log2 = (float)(call->scalar[SDPA_SCALE] * 1.4426950408889634);
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *call) {
  return FP8_TICKET_BYTES + slices_kv(call) * pieces(call) * FP8_PIECE_KEYS * at::geometry().head_dim;
}

extern "C" int variant_run(const at_call *call) {
  const at_geometry &shape = at::geometry();
  const int64_t *dim = call->dim;
  const int64_t items = dim[SDPA_BATCH] * dim[SDPA_HEADS] * ((dim[SDPA_SEQ_Q] + shape.rows - 1) / shape.rows);
  const int64_t turns = slices_kv(call) * pieces(call);
  if (shape.args_bytes != (int32_t)sizeof(fp8_args) || !served(call)) return AT_OUTSIDE_DOMAIN;
  if (items > INT32_MAX / 2 || turns > INT32_MAX / 2) return AT_OUTSIDE_DOMAIN;
  if (!call->workspace || call->workspace_bytes < variant_workspace(call)) return AT_NO_WORKSPACE;
  const at::Driver &driver = at::Driver::get();
  if (!driver.found) return at::status(CUDA_ERROR_NO_DEVICE);
  fp8_args args = {};
  fill(args, call);
  if (const int error = encode_all(args, call)) return at::status(error);
  CUdevice device;
  int processors;
  if (const int error = driver.cuCtxGetDevice(&device)) return at::status(error);
  if (const int error = driver.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device))
    return at::status(error);
  if (const int error = first_kernel.launch((unsigned)turns, &args, (CUstream)call->stream)) return at::status(error);
  const bool all = shape.host[FP8_SCHEDULE] == WGMMA_TILE || args.items < processors;
  return at::status(kernel.launch((unsigned)(all ? args.items : processors), &args, (CUstream)call->stream,
                                  shape.host[FP8_EARLY]));
}
