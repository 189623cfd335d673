// The producer warpgroup: one thread loads K and the transposed V and draws the tickets, one of another warp loads Q.
#ifndef WGMMA_FP8_PRODUCER_H
#define WGMMA_FP8_PRODUCER_H

#include "wgmma_fp8_shape.h"

// The ring of K or of V, as the producer sees it.
struct Loads {
  const fp8_args &args;
  unsigned char *shared;
  Cursor<STAGES> cursor;

  __device__ __forceinline__ uint64_t *claim(int full, int free) {
    uint64_t *const arrived = barrier(shared, full + cursor.slot);
    mbarrier_wait(barrier(shared, free + cursor.slot), cursor.parity ^ 1);
    mbarrier_expect(arrived, LOADED_BYTES);
    return arrived;
  }

  __device__ __forceinline__ void load_keys(Place at, int tile) {
    uint64_t *const arrived = claim(KEYS_FULL, KEYS_FREE);
    tma_load_4d(shared + KEYS_OFFSET + cursor.slot * KEYS_BYTES, &args.k_map, 0, tile * BLOCK_N, at.head, at.batch,
                arrived);
    cursor.next();
  }

  __device__ __forceinline__ void load_values(int slice, int tile) {
    uint64_t *const arrived = claim(VALUES_FULL, VALUES_FREE);
    unsigned char *const to = shared + VALUES_OFFSET + cursor.slot * VALUES_BYTES;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
      tma_load_4d(to + chunk * CHUNK_BYTES, &args.v_map, 0, 0, tile * CHUNKS + chunk, slice, arrived);
    cursor.next();
  }
};

// The keys of a tile come before the values of the one whose turn was before. The first kernel has the values.
AT_DEVICE void load_keys_and_values(const fp8_args &args, unsigned char *shared) {
  Loads keys = {args, shared, {}}, values = {args, shared, {}};
  bool awaited = !EARLY_LAUNCH;
  for (Schedule schedule(args, shared); !schedule.done(); schedule.next(true, true)) {
    const Item now = item(args, schedule.number);
    const Place k = place_in(args, SDPA_K, now.slice);
    const int v = slice_kv(args, now.slice);
    keys.load_keys(k, now.tile(now.tiles - 1));
    for (int tile = now.tiles - 1; tile >= 0; tile--) {
      if (tile > 0) keys.load_keys(k, now.tile(tile - 1));
      if (!awaited) await_kernel_before();
      awaited = true;
      values.load_values(v, now.tile(tile));
    }
  }
}

AT_DEVICE void load_queries(const fp8_args &args, unsigned char *shared) {
  Cursor<1> cursor;
  for (Schedule schedule(args, shared); !schedule.done(); schedule.next(false, true)) {
    const Item now = item(args, schedule.number);
    const Place q = place_in(args, SDPA_Q, now.slice);
    for (int consumer = 0; consumer < CONSUMERS; consumer++) {
      uint64_t *const arrived = barrier(shared, QUERY_FULL + consumer);
      mbarrier_wait(barrier(shared, QUERY_FREE + consumer), cursor.parity ^ 1);
      mbarrier_expect(arrived, QUERY_BYTES);
      tma_load_4d(shared + QUERY_OFFSET + consumer * QUERY_BYTES, &args.q_map, 0, now.row + consumer * GROUP_ROWS, q.head,
                  q.batch, arrived);
    }
    cursor.next();
  }
}

// One thread, before the block's barrier.
AT_DEVICE void prepare_barriers(const fp8_args &args, unsigned char *shared) {
  for (const sdpa_tensor_map *map : {&args.q_map, &args.k_map, &args.v_map, &args.o_map}) tma_prefetch(map);
  for (int slot = 0; slot < STAGES; slot++) {
    mbarrier_init(barrier(shared, KEYS_FULL + slot), 1);
    mbarrier_init(barrier(shared, KEYS_FREE + slot), GROUP_WARPS * CONSUMERS);
    mbarrier_init(barrier(shared, VALUES_FULL + slot), 1);
    mbarrier_init(barrier(shared, VALUES_FREE + slot), GROUP_WARPS * CONSUMERS);
  }
  for (int consumer = 0; consumer < CONSUMERS; consumer++) {
    mbarrier_init(barrier(shared, QUERY_FULL + consumer), 1);
    mbarrier_init(barrier(shared, QUERY_FREE + consumer), GROUP_WARPS);
  }
  for (int slot = 0; slot < TICKET_SLOTS; slot++) {
    mbarrier_init(barrier(shared, TICKET_FULL + slot), 1);
    mbarrier_init(barrier(shared, TICKET_FREE + slot), TICKET_READERS);
  }
  mbarrier_init_fence();
}

// All threads, before the block's barrier: the rows of ones behind those of V. No copy ever writes there.
AT_DEVICE void prepare_ones(unsigned char *shared) {
  constexpr int WORDS_OF_ONES = SUM_ROWS * CHUNK_KEYS / 4;
  for (int i = threadIdx.x; i < STAGES * CHUNKS * WORDS_OF_ONES; i += THREADS) {
    const int chunk = i / WORDS_OF_ONES, word = i % WORDS_OF_ONES;
    *(uint32_t *)(shared + VALUES_OFFSET + chunk * CHUNK_BYTES + HEAD_DIM * CHUNK_KEYS + 4 * word) = 0x38383838u;
  }
  copy_engine_fence();  // products read there as copies do
}

AT_DEVICE void produce(const fp8_args &args, unsigned char *shared) {
  if (threadIdx.x == 0) load_keys_and_values(args, shared);
  if (threadIdx.x == 32) load_queries(args, shared);
}

#endif
