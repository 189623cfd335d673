// The ring of K and V tiles in shared memory: who copies, and how arrival and release are told.
#ifndef WMMA_RING_H
#define WMMA_RING_H

#include "wmma_shape.h"

// Rows first .. first + ROWS - 1 of a slice that has `length`, by COPIERS threads; rows past the end become zeros.
template <int ROWS, int COPIERS, bool WHOLE>
AT_DEVICE void copy_rows(element *tile, const element *slice, int first, int length, unsigned copier) {
  constexpr int ROW_CHUNKS = HEAD_DIM / 8, STEP = COPIERS / ROW_CHUNKS;
  static_assert(COPIERS % ROW_CHUNKS == 0 && ROWS % STEP == 0, "every copier has as much to do");
  const int row = copier / ROW_CHUNKS, column = copier % ROW_CHUNKS * 8;
  tile += row * PITCH + column;
  slice += column;
  if (WHOLE || first + ROWS <= length) {
    const element *source = slice + (int64_t)(first + row) * HEAD_DIM;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP) cp_async_16(tile + i * PITCH, source + i * HEAD_DIM, true);
  } else {
#pragma unroll 1
    for (int i = 0; i < ROWS; i += STEP) {
      const int source = min(first + row + i, length - 1);
      cp_async_16(tile + i * PITCH, slice + (int64_t)source * HEAD_DIM, first + row + i < length);
    }
  }
}

// One group of copies, empty past the last tile so that groups can be counted.
AT_DEVICE void copy_tile(const Block &block, int tile) {
  if (tile < block.tiles) {
    constexpr int ROWS = PRODUCER_WARPS ? BLOCK_N : WARP_KEYS, COPIERS = PRODUCER_WARPS ? PRODUCERS : GROUP_THREADS;
    const int row = PRODUCER_WARPS ? 0 : key_group() * WARP_KEYS;
    const unsigned copier = PRODUCER_WARPS ? threadIdx.x - CONSUMERS : threadIdx.x % GROUP_THREADS;
    const int first = tile * BLOCK_N + row;
    copy_rows<ROWS, COPIERS, WHOLE_KEYS>(key_tile(tile) + row * PITCH, block.k, first, block.seq_k, copier);
    copy_rows<ROWS, COPIERS, WHOLE_KEYS>(value_tile(tile) + row * PITCH, block.v, first, block.seq_k, copier);
  }
  cp_async_commit();
}

AT_DEVICE void start_ring(const Block &block) {
#pragma unroll 1
  for (int tile = 0; tile < STAGES; tile++) copy_tile(block, tile);
}

// A stage is refilled as soon as its tile has been used, or LAG tiles later, where the barrier of that tile's arrival
// says so anyway.
static constexpr int LAG = STAGES > 1 && (PRODUCER_WARPS || SYNC_POLICY == 0);

// Waits for this thread's own copies of the tile.
AT_DEVICE void wait_copies(int tile) {
  if (LAG == 0 || tile == 0)
    cp_async_wait<STAGES - 1>();
  else
    cp_async_wait<STAGES - 1 - LAG>();
}

AT_DEVICE void produce(const Block &block) {
  start_ring(block);
  for (int tile = 0; tile < block.tiles; tile++) {
    wait_copies(tile);
    named_barrier_arrive(FULL + tile % STAGES, THREADS);
    const int used = tile - LAG;
    if (used < 0) continue;
    if (used + STAGES < block.tiles) named_barrier_sync(EMPTY + used % STAGES, THREADS);
    copy_tile(block, used + STAGES);
  }
}

AT_DEVICE void acquire_tile(const Block &block, int tile) {
  if (PRODUCER_WARPS) {
    named_barrier_sync(FULL + tile % STAGES, THREADS);
    return;
  }
  wait_copies(tile);
  ring_sync();
  if (LAG > 0 && tile > 0) copy_tile(block, tile - 1 + STAGES);
}

AT_DEVICE void release_tile(const Block &block, int tile) {
  if (PRODUCER_WARPS) {
    if (tile + STAGES < block.tiles) named_barrier_arrive(EMPTY + tile % STAGES, THREADS);
  } else if (LAG == 0) {
    ring_sync();
    copy_tile(block, tile + STAGES);
  }
}

#endif
