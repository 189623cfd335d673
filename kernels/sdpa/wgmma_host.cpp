// The host side of IMPL = wgmma: tensor maps of Q, K, V and O, and a grid that may be smaller than the work.
#include "sdpa_maps.h"

#include "wgmma_plan.h"

#include <algorithm>

namespace {

constexpr at::Kernel kernel("variant_kernel");

constexpr uint64_t ELEMENT_BYTES = 2;

const void *bias_of(const wgmma_args &args) { return args.more[1] ? args.more[1] : args.more[0]; }  // the last that there is

sdpa_strides strides_of(const at_call *call, int tensor) { return at::strides_of(call->in_stride[tensor]); }

int encode_all(wgmma_args &args, const at_call *call) {
  const int64_t *dim = call->dim;
  const int64_t batch = dim[SDPA_BATCH], heads = dim[SDPA_HEADS], heads_kv = dim[SDPA_HEADS_KV];
  const int32_t keys = at::geometry().tma_rows;
  const auto queries_at = [&](const void *base, const sdpa_strides &stride) -> at::Matrix {
    return {base, stride, dim[SDPA_SEQ_Q], heads, batch, WGMMA_GROUP_ROWS};
  };
  const auto keys_at = [&](int tensor) -> at::Matrix {
    return {call->in[tensor], strides_of(call, tensor), dim[SDPA_SEQ_K], heads_kv, batch, keys};
  };
  if (const int error = at::tensor_map(&args.q_map, queries_at(call->in[SDPA_Q], strides_of(call, SDPA_Q)))) return error;
  if (const int error = at::tensor_map(&args.k_map, keys_at(SDPA_K))) return error;
  if (const int error = at::tensor_map(&args.v_map, keys_at(SDPA_V))) return error;
  if (args.bias_boxes) {
    const at::Matrix bias = queries_at(bias_of(args), args.bias_stride);
    if (const int error = at::tensor_map(&args.bias_map, bias, dim[SDPA_SEQ_K], true)) return error;
  }
  return at::tensor_map(&args.o_map, queries_at(call->out[SDPA_O], at::strides_of(call->out_stride[SDPA_O])));
}

/* Whether a tensor map reaches a bias of numbers: rows apart, and all of them at multiples of 16 bytes. */
bool boxes_reach_bias(const wgmma_args &args) {
  const sdpa_strides &stride = args.bias_stride;
  const int64_t eighths = stride.row | stride.head | stride.batch | (int64_t)((uintptr_t)bias_of(args) / ELEMENT_BYTES);
  return at::geometry().host[WGMMA_HAS_NUMBERS] && at::rows_apart(stride, args.seq_q) && eighths % 8 == 0;
}

/* False where one row is to stand for all of a tensor. */
bool served(const at_call *call) {
  if (call->dim[SDPA_HEADS] % call->dim[SDPA_HEADS_KV]) return false;
  if (!at::geometry().strided_maps) return true;
  const int64_t seq_q = call->dim[SDPA_SEQ_Q], seq_k = call->dim[SDPA_SEQ_K];
  return at::rows_apart(strides_of(call, SDPA_Q), seq_q) && at::rows_apart(strides_of(call, SDPA_K), seq_k) &&
         at::rows_apart(strides_of(call, SDPA_V), seq_k);
}

uint32_t expanded_in(const at_call *call) {
  uint32_t bits = 0;
  for (int tensor = SDPA_Q; tensor <= SDPA_V; tensor++) {
    const sdpa_strides stride = strides_of(call, tensor);
    bits |= (stride.batch ? 0 : WGMMA_ONE_BATCH(tensor)) | (stride.head ? 0 : WGMMA_ONE_HEAD(tensor));
  }
  return bits;
}

bool draws_tickets() { return at::geometry().host[WGMMA_SCHEDULE] == WGMMA_DYNAMIC; }

// Which slices take turns where every block knows its items beforehand: as many as share the second-level cache well,
// the same number each time. Those of a group are neighbours and read the same K and V. A few that are left over would
// begin with long items when all others are at their short ones.
void batches_of_static(wgmma_args &args, int cache_bytes) {
  const int64_t bytes = 2 * (int64_t)args.seq_k * at::geometry().head_dim * (int64_t)ELEMENT_BYTES;
  const int64_t fit = (int64_t)cache_bytes * 5 / 8 / bytes * args.group;
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

}  // namespace

extern "C" int64_t variant_workspace(const at_call *) { return draws_tickets() ? 64 : 0; }

extern "C" int variant_run(const at_call *call) {
  const at_geometry &shape = at::geometry();
  const int64_t *dim = call->dim;
  const int64_t slices = dim[SDPA_BATCH] * dim[SDPA_HEADS];
  const int64_t row_blocks = (dim[SDPA_SEQ_Q] + shape.rows - 1) / shape.rows;
  if (shape.args_bytes != (int32_t)sizeof(wgmma_args) || slices * row_blocks > INT32_MAX / 2) return AT_OUTSIDE_DOMAIN;
  if (dim[SDPA_SEQ_Q] > INT32_MAX / 4 || dim[SDPA_SEQ_K] > INT32_MAX / 4 || !served(call)) return AT_OUTSIDE_DOMAIN;
  if (draws_tickets() && (!call->workspace || call->workspace_bytes < 64)) return AT_NO_WORKSPACE;
  wgmma_args args = {};
  args.tickets = (unsigned long long *)call->workspace;
  args.launch = at_cuda_launch_number();
  args.slices = (int32_t)slices;
  args.heads = (int32_t)dim[SDPA_HEADS];
  args.group = (int32_t)(dim[SDPA_HEADS] / dim[SDPA_HEADS_KV]);
  args.expanded = expanded_in(call);
  args.lse = (float *)call->out[SDPA_LSE];
  args.row_blocks = (int32_t)row_blocks;
  args.items = (int32_t)(slices * row_blocks);
  args.seq_q = (int32_t)dim[SDPA_SEQ_Q];
  args.seq_k = (int32_t)dim[SDPA_SEQ_K];
  args.more[0] = call->in[SDPA_MORE];
  args.more[1] = call->in[SDPA_MORE + 1];
  args.bias_stride = sdpa_bias_stride(call);
  args.bias_boxes = boxes_reach_bias(args);
  args.window_left = sdpa_window(call, SDPA_WINDOW_LEFT);
  args.window_right = sdpa_window(call, SDPA_WINDOW_RIGHT);
  args.scale = sdpa_scale(call);
  args.scale_log2 = sdpa_scale_log2(call);
  int processors, cache_bytes;
  if (const int error = at_cuda_attribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)) return at::status(error);
  if (const int error = at_cuda_attribute(&cache_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)) return at::status(error);
  const int resident = processors * shape.host[WGMMA_BLOCKS_SM];
  if (shape.host[WGMMA_SCHEDULE] == WGMMA_STATIC)
    batches_of_static(args, cache_bytes);
  else
    batches_in_turn(args, resident);
  if (const int error = encode_all(args, call)) return at::status(error);
  const bool all = shape.host[WGMMA_SCHEDULE] == WGMMA_TILE || args.items < resident;
  return at::status(kernel.launch((unsigned)(all ? args.items : resident), &args, (CUstream)call->stream));
}
