/* What the two sides of IMPL = wgmma agree on: wgmma.cu, the kernel, and wgmma_host.cpp, which launches it. Plain C. */
#ifndef WGMMA_PLAN_H
#define WGMMA_PLAN_H

#include "sdpa_cuda.h"

/* The slots of at_geometry.host. */
enum {
  WGMMA_SCHEDULE, /* one of the schedules below */
  WGMMA_BLOCKS_SM /* blocks of a multiprocessor */
};

/* A work item is BLOCK_M query rows of one slice. */
enum {
  WGMMA_TILE,   /* as many blocks as work items */
  WGMMA_STATIC, /* as many blocks as fit the device; each takes its share of the work items, known beforehand */
  WGMMA_DYNAMIC /* the same, but a block that is ready draws the next ticket */
};

#define WGMMA_GROUP_ROWS 64 /* query rows of a warpgroup: a box of Q and of O */

/* The kernel's argument. The tensor maps have the dimensions (HEAD_DIM, length, slices), innermost first, and boxes of 64
 * columns with the 128-byte swizzle; what is read past the end is 0, what is written there is dropped. */
typedef struct wgmma_args {
  sdpa_tensor_map q_map, k_map, v_map, o_map;
  unsigned long long *tickets; /* WGMMA_DYNAMIC: one word of workspace, holding garbage */
  uint32_t launch;             /* not 0, and another one for each launch */
  int32_t slices;              /* batch * heads */
  int32_t slices_at_once;      /* causal: the slices of a batch, which take turns */
  int32_t last_batch;          /* causal: first slice of the last batch, which may have more */
  int32_t row_blocks, items;   /* work items of a slice, of all */
  int32_t seq_q, seq_k;
  float scale_log2;
} wgmma_args;

#endif
