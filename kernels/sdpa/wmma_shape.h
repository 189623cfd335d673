// How the block of wmma.cu is divided: warps, fragments, shared memory and barriers.
#ifndef WMMA_SHAPE_H
#define WMMA_SHAPE_H

#include "sdpa_cuda.h"
#include "cuda_element.h"

static constexpr int TILE = 16;  // rows, columns and depth of a product of fragments
static constexpr int ROW_WARPS = NUM_WARPS < BLOCK_M / TILE ? NUM_WARPS : BLOCK_M / TILE;
static constexpr int KEY_GROUPS = NUM_WARPS / ROW_WARPS;
static constexpr int WARP_ROWS = BLOCK_M / ROW_WARPS, ROW_TILES = WARP_ROWS / TILE;
static constexpr int WARP_KEYS = BLOCK_N / KEY_GROUPS, KEY_TILES = WARP_KEYS / TILE;
static constexpr int DIM_TILES = HEAD_DIM / TILE;
static constexpr int CONSUMERS = NUM_WARPS * 32, PRODUCERS = PRODUCER_WARPS * 32, THREADS = CONSUMERS + PRODUCERS;
static constexpr int GROUP_THREADS = ROW_WARPS * 32;
static constexpr int STATES = KEY_GROUPS * BLOCK_M;  // rows, counted once a key group

static_assert(BLOCK_M % (ROW_WARPS * TILE) == 0 && NUM_WARPS % ROW_WARPS == 0, "warps divide rows, then keys");
static_assert(WARP_KEYS % TILE == 0 && WARP_KEYS > 0, "a key group takes whole fragments of a tile");
static_assert(PAD % 8 == 0, "the leading dimension of a fragment is a multiple of 16 bytes");
static_assert(STAGES >= 1 && STAGES <= 3, "the barriers of the ring are numbered for three stages");
static_assert(PRODUCER_WARPS >= 0 && SYNC_POLICY >= 0 && SYNC_POLICY <= 2, "unknown PRODUCER_WARPS or SYNC_POLICY");

#ifdef ACC_HALF
static_assert(DTYPE == AT_FLOAT16, "half accumulators take half inputs");
typedef __half score;
#else
typedef float score;
#endif

// Registers of a lane: the fragments of O, those of Q, and the scores of a row. Where Q does not fit, it is loaded for
// every tile.
static constexpr bool QUERIES_STAY = ROW_TILES * HEAD_DIM / 2 + ROW_TILES * HEAD_DIM / 4 + WARP_KEYS / 2 <= 128;

// Shared memory ------------------------------------------------------------------------------------------------------

// Row pitches in elements. Eight more put what a fragment's store or the readers of rows touch at once in distinct
// banks.
static constexpr int PITCH = HEAD_DIM + PAD, P_PITCH = WARP_KEYS + PAD, S_PITCH = WARP_KEYS + 8, O_PITCH = HEAD_DIM + 8;

static constexpr int larger(int a, int b) { return a > b ? a : b; }

// Offsets in bytes. The outputs of the key groups take the place of Q and the ring once these are done with.
static constexpr int Q_BYTES = BLOCK_M * PITCH * 2, TILE_BYTES = BLOCK_N * PITCH * 2;
static constexpr int RING = Q_BYTES;
static constexpr int SCORES = larger(RING + STAGES * 2 * TILE_BYTES, STATES * O_PITCH * 4);
static constexpr int PROBABILITIES = SCORES + STATES * S_PITCH * (int)sizeof(score);
static constexpr int DECAY = PROBABILITIES + STATES * P_PITCH * 2;
static constexpr int ROW_MAX = DECAY + STATES * 4, ROW_SUM = ROW_MAX + STATES * 4, ROW_NUMBERS = ROW_SUM + STATES * 4;
static constexpr int SHARED_BYTES = ROW_NUMBERS + TILE * TILE * 4;

extern __shared__ __align__(128) unsigned char shared[];

template <class T>
AT_DEVICE T *shared_array(int offset) {
  return (T *)(shared + offset);
}

AT_DEVICE element *key_tile(int tile) { return shared_array<element>(RING + tile % STAGES * 2 * TILE_BYTES); }
AT_DEVICE element *value_tile(int tile) { return key_tile(tile) + BLOCK_N * PITCH; }

// The block, the warp -------------------------------------------------------------------------------------------------

#if FIXED
static constexpr bool WHOLE_QUERIES = SEQ_Q % BLOCK_M == 0, WHOLE_KEYS = SEQ_K % BLOCK_N == 0;
#else
static constexpr bool WHOLE_QUERIES = false, WHOLE_KEYS = false;
#endif

// The block's part of the problem.
struct Block {
  const element *q, *k, *v;
  element *o;
  int first_row, seq_q, seq_k, tiles;
};

AT_DEVICE Block this_block(const sdpa_args &args) {
  Block block;
#if FIXED
  block.seq_q = SEQ_Q;
  block.seq_k = SEQ_K;
#else
  block.seq_q = args.seq_q;
  block.seq_k = args.seq_k;
#endif
  const int row_blocks = (block.seq_q + BLOCK_M - 1) / BLOCK_M;
  const int slice = blockIdx.x / (unsigned)row_blocks, index = blockIdx.x - slice * row_blocks;
  // Causal: the last rows see the most keys, so they go first and the blocks end together.
  block.first_row = (CAUSAL ? row_blocks - 1 - index : index) * BLOCK_M;
  const int end = CAUSAL ? min(block.seq_k, block.first_row + BLOCK_M) : block.seq_k;
  block.tiles = (end + BLOCK_N - 1) / BLOCK_N;
  const int64_t q_offset = (int64_t)slice * block.seq_q * HEAD_DIM, k_offset = (int64_t)slice * block.seq_k * HEAD_DIM;
  block.q = (const element *)args.q + q_offset;
  block.o = (element *)args.o + q_offset;
  block.k = (const element *)args.k + k_offset;
  block.v = (const element *)args.v + k_offset;
  return block;
}

AT_DEVICE int lane() { return threadIdx.x % 32; }
AT_DEVICE int key_group() { return threadIdx.x / GROUP_THREADS; }
AT_DEVICE int warp_first_row() { return threadIdx.x % GROUP_THREADS / 32 * WARP_ROWS; }
// Of the warp's rows within the arrays that have STATES rows.
AT_DEVICE int warp_first_state() { return key_group() * BLOCK_M + warp_first_row(); }

// Barriers -----------------------------------------------------------------------------------------------------------

// Named barriers; 0 is __syncthreads. There are at most four key groups and three stages.
enum { ALL_CONSUMERS = 1, KEY_GROUP = 2, FULL = 6, EMPTY = 9 };

AT_DEVICE void consumer_sync() {
  if (PRODUCER_WARPS)
    named_barrier_sync(ALL_CONSUMERS, CONSUMERS);
  else
    __syncthreads();
}

// Among the warps that copy a key group's keys and use them.
AT_DEVICE void ring_sync() {
  if (SYNC_POLICY == 0 && KEY_GROUPS > 1)
    named_barrier_sync(KEY_GROUP + key_group(), GROUP_THREADS);
  else
    consumer_sync();
}

// Between the phases of a tile, which pass S and P on within a warp.
AT_DEVICE void phase_sync() {
  if (SYNC_POLICY == 0)
    __syncwarp();
  else
    consumer_sync();
}

AT_DEVICE void heavy_sync() {
  if (SYNC_POLICY == 2) consumer_sync();
}

#endif
