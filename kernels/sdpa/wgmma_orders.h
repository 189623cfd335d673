/* How the blocks of a kernel of warpgroups come to their work items: a value of at_geometry.host. Plain C. */
#ifndef WGMMA_ORDERS_H
#define WGMMA_ORDERS_H

/* A work item is the query rows of a block, of one slice. */
enum {
  WGMMA_TILE,   /* as many blocks as work items */
  WGMMA_STATIC, /* as many blocks as fit the device; each takes its share of the work items, known beforehand */
  WGMMA_DYNAMIC /* the same, but a block that is ready draws the next ticket */
};

#endif
