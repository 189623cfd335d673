/* What the two sides of IMPL = wgmma agree on: wgmma.cu, the kernel, and wgmma_host.cpp, which launches it. Plain C. */
#ifndef WGMMA_PLAN_H
#define WGMMA_PLAN_H

#include "sdpa_cuda.h"

#include "wgmma_orders.h"

/* The slots of at_geometry.host. */
enum {
  WGMMA_SCHEDULE, /* one of the schedules below */
  WGMMA_BLOCKS_SM, /* blocks of a multiprocessor */
  WGMMA_HAS_NUMBERS /* 1: the problem has a bias of numbers */
};

#define WGMMA_GROUP_ROWS 64 /* query rows of a warpgroup: a box of Q and of O */

/* Bits of wgmma_args.expanded for a tensor, SDPA_Q, SDPA_K or SDPA_V: its batches, or its heads, are all the same one. A
 * tensor map has no stride of 0, so they are read at the coordinate 0. */
#define WGMMA_ONE_BATCH(tensor) (1u << 2 * (tensor))
#define WGMMA_ONE_HEAD(tensor) (2u << 2 * (tensor))

/* The kernel's argument. The tensor maps are those of sdpa_maps.h, of 64 columns by WGMMA_GROUP_ROWS or by a tile's keys. */
typedef struct wgmma_args {
  sdpa_tensor_map q_map, k_map, v_map, o_map;
  unsigned long long *tickets; /* WGMMA_DYNAMIC: one word of workspace, holding garbage */
  uint32_t launch;             /* not 0, and another one for each launch */
  int32_t slices;              /* batch * heads of Q */
  int32_t slices_at_once;      /* causal: the slices of a batch, which take turns */
  int32_t last_batch;          /* causal: first slice of the last batch, which may have more */
  int32_t row_blocks, items;   /* work items of a slice, of all */
  int32_t seq_q, seq_k;
  float scale_log2;
  int32_t heads;     /* of Q */
  float *lse;        /* with LSE */
  int32_t group;     /* heads of Q that share one of K and V */
  uint32_t expanded; /* which tensors have a stride of 0 */
  int32_t window_left, window_right; /* with WINDOWED */
  float scale;                       /* with SOFTCAPPED: before tanh, scale_log2 is after it */
  const void *more[2]; /* at_call.in from SDPA_MORE on: it serves no lengths */
  sdpa_strides bias_stride;
  int32_t bias_boxes;      /* 1: boxes bring the bias; 0: its rows lie where no tensor map reaches them */
  sdpa_tensor_map bias_map; /* with bias_boxes; of 64 columns by WGMMA_GROUP_ROWS, four dimensions */
} wgmma_args;

#endif
