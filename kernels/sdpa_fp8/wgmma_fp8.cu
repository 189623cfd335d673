// Attention from FP8 on Hopper's warpgroup products: a first kernel transposes V (turned_values.h), the second computes.
//
// A block is a producer warpgroup (wgmma_fp8_producer.h), which copies Q, K and the transposed V to shared memory, and
// CONSUMERS warpgroups (wgmma_fp8_consumer.h) of 64 query rows each. They share the tiles of K and V. Who waits for whom
// is a matter of transaction barriers: a buffer is full, a buffer is free. The output goes back by bulk copies too.
//
// Parameters (integers but for SCHEDULE, Q_FROM, SOFTMAX):
//   CONSUMERS    warpgroups that compute; with 64 rows each
//   BLOCK_N      keys of a tile
//   STAGES       tiles in the ring of K, and in that of V
//   SCHEDULE     tile: a block for each work item; dynamic: as many blocks as fit, and one that is ready draws its next
//   PING_PONG    consumers take turns at issuing products. 1: the next has its turn when all are issued; 2: when the scores
//                are there, so that one's softmax falls into another's products
//   Q_FROM       shared: both operands of the first product come from shared memory; registers: Q is kept in registers
//   SOFTMAX      exact: the row maximum of each tile is looked for. spec: a tile is exponentiated with the maximum of
//                earlier ones, and again where that was too small
//   FMA_SHARE    of eight pairs of exponentials, how many go to the units that multiply
//   OFFSET       the largest probability of a row is 2^OFFSET: the smaller, the rarer a tile is computed again, and the
//                fewer digits small ones keep
//   EARLY_LAUNCH 1: the second kernel begins while the first ends, and waits for it before it reads V
#include "turned_values.h"
#include "wgmma_fp8_consumer.h"
#include "wgmma_fp8_producer.h"

AT_GEOMETRY = {
    .abi_version = AT_ABI_VERSION,
    .args_bytes = sizeof(fp8_args),
    .threads = THREADS,
    .rows = BLOCK_ROWS,
    .split = 1,
    .cluster = 1,
    .dynamic_shared = SHARED_BYTES,
    .head_dim = HEAD_DIM,
    .tma_rows = BLOCK_N,
    .strided_maps = 1,
    .host = {SCHEDULE, CHUNK_KEYS, EARLY_LAUNCH},
};

extern "C" __global__ void __launch_bounds__(FP8_PIECE_THREADS) turn_kernel(const __grid_constant__ fp8_args args) {
  if (EARLY_LAUNCH) let_next_kernel_begin();
  turn_values<CHUNK_KEYS>(args);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) variant_kernel(const __grid_constant__ fp8_args args) {
  extern __shared__ __align__(SWIZZLE_BYTES) unsigned char shared[];
  const int group = __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0);  // from one lane: the compiler sees that all agree
  prepare_ones(shared);
  if (threadIdx.x == 0) prepare_barriers(args, shared);
  __syncthreads();
  if (group == 0) {
    registers_give<PRODUCER_REGISTERS>();
    produce(args, shared);
  } else {
    registers_take<CONSUMER_REGISTERS>();
    consume(args, shared, group - 1);
  }
}
