/* What kernels and host sides agree on, of IMPL = wgmma_fp8, and of IMPL = mma_fp8, which leaves out the tensor maps. Plain
 * C. */
#ifndef WGMMA_FP8_PLAN_H
#define WGMMA_FP8_PLAN_H

#include "sdpa_fp8_cuda.h"

#include "../sdpa/wgmma_orders.h"

/* The slots of at_geometry.host. */
enum {
  FP8_SCHEDULE,   /* WGMMA_TILE or WGMMA_DYNAMIC */
  FP8_CHUNK_KEYS, /* keys of a row of the transposed V: bytes of its swizzle in shared memory */
  FP8_EARLY       /* 1: the second kernel may begin while the first ends */
};

#define FP8_GROUP_ROWS 64    /* query rows of a warpgroup: a box of Q and of O */
#define FP8_PIECE_KEYS 128   /* keys that a block of the first kernel transposes */
#define FP8_PIECE_THREADS 256
#define FP8_TICKET_BYTES 128 /* of the workspace, before the transposed V */

/* The argument of both kernels. The tensor maps have four dimensions: (HEAD_DIM, length, heads, batch) of Q and K, boxes of
 * HEAD_DIM bytes by FP8_GROUP_ROWS or a tile's keys; O as sdpa_maps.h has it; and of the transposed V (chunk's keys, HEAD_DIM,
 * chunks, batch * heads_kv), a box a chunk. */
typedef struct fp8_args {
  sdpa_tensor_map q_map, k_map, v_map, o_map;
  const float *q_descale, *k_descale, *v_descale;
  const int32_t *key_lengths;  /* with KEY_LENGTHS */
  const void *v;
  void *turned;                /* V transposed: (batch * heads_kv, chunks, HEAD_DIM, chunk's keys) */
  sdpa_strides v_stride;       /* in bytes */
  unsigned long long *tickets; /* WGMMA_DYNAMIC: one word of workspace, holding garbage */
  uint32_t launch;             /* not 0, and another one for each launch */
  uint32_t same;               /* 0x3210: an order of bytes that the compiler does not know */
  int32_t slices;              /* batch * heads of Q */
  int32_t slices_at_once;      /* causal: those whose K and V share the second-level cache */
  int32_t row_blocks, items;   /* work items of a slice, of all */
  int32_t seq_q, seq_k, heads, heads_kv;
  int32_t group;               /* heads of Q that share one of K and V */
  uint32_t expanded;           /* bits of tensors whose batches, or heads, are all the same one: FP8_ONE_... */
  float scale_log2;
  const void *q, *k; /* mma_fp8, and its strides: of Q and K in bytes, of O in elements */
  void *o;
  float *lse;        /* with LSE */
  sdpa_strides q_stride, k_stride, o_stride;
} fp8_args;

/* A tensor map has no stride of 0: what has one is read at the coordinate 0. */
#define FP8_ONE_BATCH(tensor) (1u << 2 * (tensor))
#define FP8_ONE_HEAD(tensor) (2u << 2 * (tensor))

#ifdef AT_DEVICE
/* Keys of a batch. A length that cannot be is no reason to read elsewhere. */
AT_DEVICE int keys_of(const fp8_args &args, int batch) {
  const int length = args.key_lengths[batch];
  return length < 0 ? 0 : length < args.seq_k ? length : args.seq_k;
}
#endif

#endif
