// Attention on Hopper's warpgroup products: bulk copies by one warpgroup, products and softmax by others.
//
// A block is a producer warpgroup (wgmma_producer.h), which copies Q, K and V to shared memory, and CONSUMERS warpgroups
// (wgmma_consumer.h) of 64 query rows each. They share the tiles of K and V. A block works on one item of BLOCK_ROWS
// rows after another (wgmma_schedule.h, wgmma_tickets.h). Who waits for whom is a matter of transaction barriers: a
// buffer is full, a buffer is free. The output goes back by bulk copies too, which leave out rows past the end.
// Views and groups of heads are a matter of the copies alone (wgmma_places.h).
//
// Parameters (all integers but SCHEDULE, Q_FROM, O_STAGING, SOFTMAX):
//   CONSUMERS    warpgroups that compute; with 64 rows each
//   BLOCK_N      keys of a tile
//   STAGES       tiles in the ring of K, and in that of V
//   BLOCKS_SM    blocks of a multiprocessor, which divide its registers and shared memory
//   SCHEDULE     tile: a block for each item; static: as many blocks as fit, which share the items evenly;
//                dynamic: the same, and a block that is ready draws its next item
//   OVERLAP      1: the softmax begins when the scores are there, while P V of the tile before is under way. 2: P V is
//                issued when the scores are there, among the exponentials
//   PING_PONG    1: consumers take turns at issuing products. With OVERLAP 2 a turn ends when the scores are there
//   Q_FROM       shared: both operands of the first product come from shared memory; registers: Q is kept in registers
//   Q_BUFFERS    2: the Q of the next item arrives during this one
//   EARLY_START  1: the first scores of the next item are issued before the output of this one is stored
//   O_STAGING    query: the output goes through the shared memory of its Q; own: through its own
//   SOFTMAX      exact: the row maximum of each tile is looked for. spec: a tile is exponentiated with the maximum of
//                earlier ones, and the warp goes back where that was too small. spec_rounded: as spec, and the sums are
//                those of the rounded probabilities, which are what the second product takes
#include "wgmma_consumer.h"
#include "wgmma_producer.h"

AT_GEOMETRY = {
    .abi_version = AT_ABI_VERSION,
    .args_bytes = sizeof(wgmma_args),
    .threads = THREADS,
    .rows = BLOCK_ROWS,
    .split = 1,
    .cluster = 1,
    .dynamic_shared = SHARED_BYTES,
    .head_dim = HEAD_DIM,
    .tma_rows = BLOCK_N,
    .strided_maps = STRIDED,
    .host = {SCHEDULE, BLOCKS_SM, HAS_NUMBERS},
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_SM)
    variant_kernel(const __grid_constant__ wgmma_args args) {
  extern __shared__ __align__(SWIZZLE_BYTES) unsigned char shared[];
  const int group = __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0);  // from one lane: the compiler sees that all agree
  if (threadIdx.x == 0) prepare_barriers(args, shared);
  __syncthreads();
  if (group == 0) {
    if constexpr (MOVE_REGISTERS) registers_give<PRODUCER_REGISTERS>();
    produce(args, shared);
  } else {
    if constexpr (MOVE_REGISTERS) registers_take<CONSUMER_REGISTERS>();
    consume(args, shared, group - 1);
  }
}
