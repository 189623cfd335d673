/* sdpa on CUDA: what the device code of a variant includes.
 *
 * A variant defines
 *
 *   AT_GEOMETRY = {.threads = ..., .rows = ..., ...};                     omitted fields are 0
 *   extern "C" __global__ void variant_kernel(const __grid_constant__ sdpa_args args)
 *
 * The grid is one-dimensional: batch * heads * ceil(seq_q / rows) * split blocks; how a block's number becomes
 * (batch and head, rows, split) is the kernel's affair, but for `split` consecutive blocks sharing their rows. With
 * `packs_groups` the rows are those of all heads of Q that share K and V: batch * heads_kv * ceil(seq_q * heads / heads_kv /
 * rows) * split blocks. */
#ifndef AUTOTUNER_SDPA_CUDA_H
#define AUTOTUNER_SDPA_CUDA_H

#ifdef AUTOTUNER_GEOMETRY_H
#error "include sdpa_cuda.h before geometry.h and cuda_host.h: it names the fields of the geometry"
#endif

/* The op's numbers in the geometry: HEAD_DIM; rows of K and V that one bulk tensor copy brings, 0 for no tensor maps; the
 * only lengths served, 0 for any; 1 for tensor maps of four dimensions; 1 for rows of whole groups; bytes of workspace for
 * each block of the grid; bytes that a tensor map's copies bring to the second-level cache at a time, 0: 256, or 64 or 128,
 * 1: as many as are read. */
#define AT_GEOMETRY_OP                                                                                            \
  int32_t head_dim, tma_rows, fixed_seq_q, fixed_seq_k, strided_maps, packs_groups, block_workspace, l2_bytes;

#include <stddef.h>

#include "geometry.h"
#include "sdpa.h"

/* Device code of problems without sinks and bias has an argument that ends before these. Host sides, which serve all, define none of
 * the macros of a problem. */
#ifndef FP8_CACHE
#define FP8_CACHE 0 /* 1: K and V are FP8, as sdpa_fp8.h says */
#endif
#ifdef SINKS
#define MORE_INPUTS (HAS_SINKS || HAS_BIAS || FP8_CACHE)
#else
#define MORE_INPUTS 1
#endif

/* A CUtensorMap, opaque here. */
typedef struct alignas(64) sdpa_tensor_map {
  uint64_t words[16];
} sdpa_tensor_map;

/* By this the `split` blocks that share rows know who is the last to come. It lies behind the workspaces of all blocks. */
typedef struct alignas(16) sdpa_arrivals {
  unsigned long long word; /* (launch, how many have come) */
} sdpa_arrivals;

/* Where rows lie: strides, in elements. */
typedef struct sdpa_strides {
  int64_t batch, head, row;
} sdpa_strides;

/* The kernel's one argument. What the dense kernels read lies where it lay in version 1: at other places ptxas schedules
 * them otherwise, and not always as well.
 *
 * The tensor maps of K and V are filled in when geometry.tma_rows > 0: dimensions, innermost first, (HEAD_DIM, seq_k,
 * batch * heads_kv), for dense tensors, or with strided_maps (HEAD_DIM, seq_k, heads_kv, batch); box (64, tma_rows, 1, 1),
 * 128-byte swizzle; what lies outside reads as 0. */
typedef struct sdpa_args {
  sdpa_tensor_map k_map, v_map;
  const void *q, *k, *v;
  void *o;
  float *lse;                 /* with LSE */
  const int32_t *key_lengths; /* with KEY_LENGTHS; the first of `more` */
  int32_t heads_kv;
  uint32_t launch; /* with a workspace: not 0, and another one for each launch */
  void *workspace;
  int32_t batch, heads, seq_q, seq_k;
  float scale, scale_log2; /* scale_log2 = scale * log2(e). With SOFTCAPPED scale is before tanh, scale_log2 after it */
  sdpa_strides q_stride, k_stride, v_stride, o_stride;
  int32_t window_left, window_right; /* with WINDOWED; no more keys than seq_q + seq_k */
#if MORE_INPUTS
  const void *more[SDPA_MOST - SDPA_MORE]; /* at_call.in from SDPA_MORE on */
  sdpa_strides bias_stride;                /* of the last of these */
#endif
} sdpa_args;

#if MORE_INPUTS
/* Whether a kernel's argument has as many bytes, with those fields or without. */
static inline int sdpa_is_argument(int32_t bytes) {
  return bytes == (int32_t)sizeof(sdpa_args) || bytes == (int32_t)offsetof(sdpa_args, more);
}
#endif

/* What scores are multiplied by before they are capped, and what makes powers of two of them. */
static inline float sdpa_scale(const at_call *call) {
  const double cap = call->scalar[SDPA_SOFTCAP];
  return (float)(call->scalar[SDPA_SCALE] / (cap > 0 ? cap : 1));
}

static inline float sdpa_scale_log2(const at_call *call) {
  const double cap = call->scalar[SDPA_SOFTCAP];
  return (float)((cap > 0 ? cap : call->scalar[SDPA_SCALE]) * 1.4426950408889634);
}

/* The strides of the last input, which is the bias where there is one. */
static inline sdpa_strides sdpa_bias_stride(const at_call *call) {
  int last = SDPA_MOST - 1;
  while (last > SDPA_MORE && !call->in[last]) last--;
  const int64_t *of = call->in_stride[last];
  const sdpa_strides found = {of[SDPA_BATCH_STRIDE], of[SDPA_HEAD_STRIDE], of[SDPA_ROW_STRIDE]};
  return found;
}

/* A side of a window as a kernel is given it: sums of it and of places fit in 32 bits. */
static inline int32_t sdpa_window(const at_call *call, int side) {
  const int64_t most = call->dim[SDPA_SEQ_Q] + call->dim[SDPA_SEQ_K];
  return (int32_t)(call->scalar[side] < (double)most ? call->scalar[side] : (double)most);
}

#define AT_GEOMETRY extern "C" __device__ const at_geometry variant_geometry

#endif
