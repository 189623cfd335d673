// The host side of IMPL = wgmma_fp8: tensor maps, the kernel that transposes V, and one whose grid may be smaller than the
// work.
#include "fp8_host.h"

#include <algorithm>

namespace {

constexpr int64_t L2_BYTES_OF_SLICES = 32 << 20;  // of K and V that causal blocks read in turn

// A map of bytes, of four dimensions, with the swizzle of a row's bytes.
int byte_map(sdpa_tensor_map *map, const void *base, const cuuint64_t (&sizes)[4], const int64_t (&strides)[3],
             int32_t box_rows) {
  cuuint64_t steps[3];
  for (int i = 0; i < 3; i++) steps[i] = strides[i] ? (cuuint64_t)strides[i] : 16;  // what has none is read at 0
  const cuuint32_t row = (cuuint32_t)sizes[0], box[4] = {row, (cuuint32_t)box_rows, 1, 1};
  const CUtensorMapSwizzle swizzle = row == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : row == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                 : CU_TENSOR_MAP_SWIZZLE_32B;
  return at_cuda_tensor_map((CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 4, base, sizes, steps, box, swizzle,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
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

/* What tensor maps cannot say, and the order of causal blocks. */
void fill_more(fp8_args &args, const at_call *call) {
  const int64_t bytes = 2 * (int64_t)args.seq_k * at::geometry().head_dim;
  args.slices_at_once = (int32_t)std::clamp<int64_t>(L2_BYTES_OF_SLICES / bytes * args.group, 1, args.slices);
  for (int tensor = SDPA_Q; tensor <= SDPA_V; tensor++) {
    const sdpa_strides stride = strides_of(call, tensor);
    args.expanded |= (stride.batch ? 0 : FP8_ONE_BATCH(tensor)) | (stride.head ? 0 : FP8_ONE_HEAD(tensor));
  }
}

}  // namespace

extern "C" int variant_run(const at_call *call) {
  const at_geometry &shape = at::geometry();
  fp8_args args = {};
  if (const int status = prepare(args, call)) return status;
  fill_more(args, call);
  if (const int error = encode_all(args, call)) return at::status(error);
  int processors;
  if (const int error = at_cuda_attribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)) return at::status(error);
  if (const int error = turn_values(args, call)) return at::status(error);
  const bool all = shape.host[FP8_SCHEDULE] == WGMMA_TILE || args.items < processors;
  return at::status(kernel.launch((unsigned)(all ? args.items : processors), &args, (CUstream)call->stream,
                                  shape.host[FP8_EARLY]));
}
