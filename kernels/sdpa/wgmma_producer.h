// The producer warpgroup: one thread loads K and V and draws the tickets, one of another warp loads Q, one of a third a
// bias of numbers, one of the fourth looks for sinks. K, V and the bias go ahead as far as their rings reach, Q and its sink
// by one item with two buffers; so none waits for another.
#ifndef WGMMA_PRODUCER_H
#define WGMMA_PRODUCER_H

#include "sink.h"
#include "wgmma_places.h"
#include "wgmma_schedule.h"

// One of the rings of K and V, as the producer sees it.
struct Loads {
  const sdpa_tensor_map *map;
  unsigned char *shared;
  int offset, full, free;
  Cursor<STAGES> cursor;

  __device__ __forceinline__ void load(Place at, int tile) {
    uint64_t *const arrived = barrier(shared, full + cursor.slot);
    unsigned char *const target = shared + offset + cursor.slot * TILE_BYTES;
    mbarrier_wait(barrier(shared, free + cursor.slot), cursor.parity ^ 1);
    mbarrier_expect(arrived, TILE_BYTES);
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++)
      load_box(target + panel * TILE_PANEL, map, panel * 64, tile * BLOCK_N, at, arrived);
    cursor.next();
  }
};

// Tiles come last to first, in the order in which consumers ask for them: with OVERLAP the keys of a tile before the
// values of the tile after it.
AT_DEVICE void load_keys_and_values(const wgmma_args &args, unsigned char *shared) {
  Loads keys = {&args.k_map, shared, KEYS_OFFSET, KEYS_FULL, KEYS_FREE, {}};
  Loads values = {&args.v_map, shared, VALUES_OFFSET, VALUES_FULL, VALUES_FREE, {}};
  for (Schedule schedule(args, shared); !schedule.done(); schedule.next(true, true)) {
    const Item now = item(args, schedule.number);
    const Place k = place_in(args, SDPA_K, now.slice), v = place_in(args, SDPA_V, now.slice);
    keys.load(k, now.tiles - 1);
    for (int tile = now.tiles - 1; tile >= now.first; tile--) {
      if (OVERLAP && tile > now.first) keys.load(k, tile - 1);
      values.load(v, tile);
      if (!OVERLAP && tile > now.first) keys.load(k, tile - 1);
    }
  }
}

AT_DEVICE void load_queries(const wgmma_args &args, unsigned char *shared) {
  Cursor<Q_BUFFERS> cursor;
  for (Schedule schedule(args, shared); !schedule.done(); schedule.next(false, true)) {
    const Item now = item(args, schedule.number);
    const Place q = place_in(args, SDPA_Q, now.slice);
    for (int consumer = 0; consumer < CONSUMERS; consumer++) {
      const int buffer = cursor.slot * CONSUMERS + consumer;
      uint64_t *const arrived = barrier(shared, QUERY_FULL + buffer);
      unsigned char *const target = shared + QUERY_OFFSET + buffer * GROUP_BYTES;
      mbarrier_wait(barrier(shared, QUERY_FREE + buffer), cursor.parity ^ 1);
      mbarrier_expect(arrived, GROUP_BYTES);
#pragma unroll
      for (int panel = 0; panel < PANELS; panel++)
        load_box(target + panel * GROUP_PANEL, &args.q_map, panel * 64, now.row + consumer * GROUP_ROWS, q, arrived);
    }
    cursor.next();
  }
}

#if HAS_SINKS
// The sink of each item, beside its Q: to look for it takes a division and a read, for which Q and consumers would wait.
AT_DEVICE void load_sinks(const wgmma_args &args, unsigned char *shared) {
  Cursor<Q_BUFFERS> cursor;
  for (Schedule schedule(args, shared); !schedule.done(); schedule.next(false, true)) {
    const float sink = sink_of(args.more[SDPA_SINKS - SDPA_MORE], item(args, schedule.number).slice % args.heads);
    for (int consumer = 0; consumer < CONSUMERS; consumer++) {
      const int buffer = cursor.slot * CONSUMERS + consumer;
      mbarrier_wait(barrier(shared, QUERY_FREE + buffer), cursor.parity ^ 1);
      sink_beside(shared, buffer) = sink == INFINITY ? NAN : sink;
      mbarrier_arrive(barrier(shared, QUERY_FULL + buffer));
    }
    cursor.next();
  }
}
#endif

#if HAS_NUMBERS
// To each consumer the tiles that it sees, in its order.
AT_DEVICE void load_biases(const wgmma_args &args, unsigned char *shared) {
  Cursor<BIAS_SLOTS> cursors[CONSUMERS];
  for (Schedule schedule(args, shared); !schedule.done(); schedule.next(false, true)) {
    const Item now = item(args, schedule.number);
    const int batch = now.slice / args.heads, head = now.slice - batch * args.heads;
    for (int tile = now.tiles - 1; args.bias_boxes && tile >= now.first; tile--)
#pragma unroll
      for (int consumer = 0; consumer < CONSUMERS; consumer++) {
        Cursor<BIAS_SLOTS> &cursor = cursors[consumer];
        const int row = now.row + consumer * GROUP_ROWS, slot = consumer * BIAS_SLOTS + cursor.slot;
        const int tiles = own_tiles(args, now, row);
        if (tile >= tiles || tile < own_first(args, now, row, tiles)) continue;
        uint64_t *const arrived = barrier(shared, BIAS_FULL + slot);
        mbarrier_wait(barrier(shared, BIAS_FREE + slot), cursor.parity ^ 1);
        mbarrier_expect(arrived, BIAS_BYTES);
#pragma unroll
        for (int panel = 0; panel < BIAS_PANELS; panel++)
          tma_load_4d(shared + BIAS_OFFSET + slot * BIAS_BYTES + panel * GROUP_PANEL, &args.bias_map,
                      tile * BLOCK_N + panel * 64, row, args.bias_stride.head ? head : 0,
                      args.bias_stride.batch ? batch : 0, arrived);
        cursor.next();
      }
  }
}
#endif

// One thread, before the block's barrier.
AT_DEVICE void prepare_barriers(const wgmma_args &args, unsigned char *shared) {
  for (const sdpa_tensor_map *map : {&args.q_map, &args.k_map, &args.v_map, &args.o_map}) tma_prefetch(map);
  for (int slot = 0; slot < STAGES; slot++) {
    mbarrier_init(barrier(shared, KEYS_FULL + slot), 1);
    mbarrier_init(barrier(shared, KEYS_FREE + slot), GROUP_WARPS * CONSUMERS);
    mbarrier_init(barrier(shared, VALUES_FULL + slot), 1);
    mbarrier_init(barrier(shared, VALUES_FREE + slot), GROUP_WARPS * CONSUMERS);
  }
  for (int buffer = 0; buffer < Q_BUFFERS * CONSUMERS; buffer++) {
    mbarrier_init(barrier(shared, QUERY_FULL + buffer), 1 + HAS_SINKS);
    mbarrier_init(barrier(shared, QUERY_FREE + buffer), OUTPUT_APART ? GROUP_WARPS : 1);
  }
  for (int slot = 0; slot < BIAS_SLOTS * CONSUMERS; slot++) {
    mbarrier_init(barrier(shared, BIAS_FULL + slot), 1);
    mbarrier_init(barrier(shared, BIAS_FREE + slot), GROUP_WARPS);
  }
  for (int slot = 0; slot < TICKET_SLOTS; slot++) {
    mbarrier_init(barrier(shared, TICKET_FULL + slot), 1);
    mbarrier_init(barrier(shared, TICKET_FREE + slot), TICKET_READERS);
  }
  mbarrier_init_fence();
}

AT_DEVICE void produce(const wgmma_args &args, unsigned char *shared) {
  if (threadIdx.x == 0) load_keys_and_values(args, shared);
  if (threadIdx.x == 32) load_queries(args, shared);
#if HAS_NUMBERS
  if (threadIdx.x == 64) load_biases(args, shared);
#endif
#if HAS_SINKS
  if (threadIdx.x == 96) load_sinks(args, shared);
#endif
}

#endif
