/* sdpa on CUDA: what the device code of a variant includes.
 *
 * A variant defines
 *
 *   AT_GEOMETRY = {.threads = ..., .rows = ..., ...};                     omitted fields are 0
 *   extern "C" __global__ void variant_kernel(const __grid_constant__ sdpa_args args)
 *
 * The grid is one-dimensional: batch * heads * ceil(seq_q / rows) * split blocks; how a block's number becomes
 * (batch and head, rows, split) is the kernel's affair, but for `split` consecutive blocks sharing their rows. */
#ifndef AUTOTUNER_SDPA_CUDA_H
#define AUTOTUNER_SDPA_CUDA_H

#ifdef AUTOTUNER_GEOMETRY_H
#error include sdpa_cuda.h before geometry.h and cuda_host.h: it names the op's fields of the geometry
#endif

/* The op's numbers in the geometry: HEAD_DIM; rows of K and V that one bulk tensor copy brings, 0 for no tensor maps; the
 * only lengths served, 0 for any. */
#define AT_GEOMETRY_OP int32_t head_dim, tma_rows, fixed_seq_q, fixed_seq_k;

#include "geometry.h"
#include "sdpa.h"

/* A CUtensorMap, opaque here. */
typedef struct alignas(64) sdpa_tensor_map {
  uint64_t words[16];
} sdpa_tensor_map;

/* The kernel's one argument. The tensor maps of K and V are filled in when geometry.tma_rows > 0: dimensions, innermost
 * first, (HEAD_DIM, seq_k, batch * heads); box (64, tma_rows, 1), 128-byte swizzle; rows past the end read as 0. */
typedef struct sdpa_args {
  sdpa_tensor_map k_map, v_map;
  const void *q, *k, *v;
  void *o;
  const float *q_scale, *k_scale, *v_scale; /* (heads,) or null */
  void *workspace;
  int32_t batch, heads, seq_q, seq_k;
  float scale, scale_log2; /* scale_log2 = scale * log2(e) */
} sdpa_args;

#define AT_GEOMETRY extern "C" __device__ const at_geometry variant_geometry

#endif
