// What the host sides of wgmma_fp8 and mma_fp8 have in common: their kernels, the argument, and the workspace.
#ifndef FP8_HOST_H
#define FP8_HOST_H

#include "../sdpa/abi/sdpa_maps.h"

#include "wgmma_fp8_plan.h"

namespace {

constexpr at::Kernel first_kernel("turn_kernel", FP8_PIECE_THREADS), kernel("variant_kernel");

int64_t pieces(const at_call *call) { return (call->dim[SDPA_SEQ_K] + FP8_PIECE_KEYS - 1) / FP8_PIECE_KEYS; }
int64_t slices_kv(const at_call *call) { return call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS_KV]; }

sdpa_strides strides_of(const at_call *call, int tensor) { return at::strides_of(call->in_stride[tensor]); }

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
  args.launch = at_cuda_launch_number();
  args.same = 0x3210;
  args.slices = (int32_t)(dim[SDPA_BATCH] * dim[SDPA_HEADS]);
  args.row_blocks = (int32_t)((dim[SDPA_SEQ_Q] + at::geometry().rows - 1) / at::geometry().rows);
  args.items = args.slices * args.row_blocks;
  args.seq_q = (int32_t)dim[SDPA_SEQ_Q];
  args.seq_k = (int32_t)dim[SDPA_SEQ_K];
  args.heads = (int32_t)dim[SDPA_HEADS];
  args.heads_kv = (int32_t)dim[SDPA_HEADS_KV];
  args.group = args.heads / args.heads_kv;
  args.q = call->in[SDPA_Q];
  args.k = call->in[SDPA_K];
  args.o = call->out[SDPA_O];
  args.lse = (float *)call->out[SDPA_LSE];
  args.q_stride = strides_of(call, SDPA_Q);
  args.k_stride = strides_of(call, SDPA_K);
  args.o_stride = at::strides_of(call->out_stride[SDPA_O]);
  args.scale_log2 = (float)(call->scalar[SDPA_SCALE] * 1.4426950408889634);
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *call) {
  return FP8_TICKET_BYTES + slices_kv(call) * pieces(call) * FP8_PIECE_KEYS * at::geometry().head_dim;
}

namespace {

/* The argument, but for the tensor maps. AT_OK, or why a call is not served. */
int prepare(fp8_args &args, const at_call *call) {
  const at_geometry &shape = at::geometry();
  const int64_t *dim = call->dim;
  const int64_t items = dim[SDPA_BATCH] * dim[SDPA_HEADS] * ((dim[SDPA_SEQ_Q] + shape.rows - 1) / shape.rows);
  if (shape.args_bytes != (int32_t)sizeof(fp8_args) || !served(call)) return AT_OUTSIDE_DOMAIN;
  if (items > INT32_MAX / 2 || slices_kv(call) * pieces(call) > INT32_MAX / 2) return AT_OUTSIDE_DOMAIN;
  if (!call->workspace || call->workspace_bytes < variant_workspace(call)) return AT_NO_WORKSPACE;
  fill(args, call);
  return AT_OK;
}

/* Begins to transpose V. */
int turn_values(fp8_args &args, const at_call *call) {
  return first_kernel.launch((unsigned)(slices_kv(call) * pieces(call)), &args, (CUstream)call->stream);
}

}  // namespace

#endif
