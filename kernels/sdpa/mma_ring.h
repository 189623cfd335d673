// How K and V reach shared memory: a ring of tiles for every group of warps that works on the same keys.
//
// A tile is BLOCK_N keys, their rows of K and then their rows of V. Tile `trip` of a group waits in slot
// trip % STAGES; the loop of mma.cu refills the slot of the tile before while it works on this one. Both rings have the
// same functions.
#ifndef MMA_RING_H
#define MMA_RING_H

#include "mma_shape.h"

// A slot of a ring, and the parity of how often the ring has gone round.
struct Cursor {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void next() {
    if (++slot == STAGES) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// With one slot, or a barrier for every hazard, the slot is refilled before the next tile is awaited.
static constexpr bool REFILL_FIRST = STAGES == 1 || SYNC_POLICY > 0;

// The warps that share a ring meet.
AT_DEVICE void group_barrier(const Place &at) {
  if (SYNC_POLICY == 2 || WARPS_N == 1)
    __syncthreads();
  else if (WARPS_M == 1)
    __syncwarp();
  else
    named_barrier_sync(1 + at.warp_n, GROUP_THREADS);
}

#if BULK_LOADS

// Bulk tensor copies, issued by one thread of the group. With MULTICAST > 1 each block of the cluster brings its share
// of the rows to all that need them.
struct Ring {
  enum { KEYS, VALUES, FREE };
  static constexpr int FILL_COMMITS = 0;

  const Place &at;
  const sdpa_args &args;
  unsigned char *tiles;
  uint64_t *barriers;
  bool issuer;

  __device__ __forceinline__ Ring(const Place &place, const sdpa_args &arguments, unsigned char *shared)
      : at(place), args(arguments), tiles(shared + place.warp_n * RING_BYTES) {
    barriers = (uint64_t *)(shared + BARRIER_OFFSET) + at.warp_n * STAGES * SLOT_BARRIERS;
    issuer = at.warp_m == 0 && at.lane == 0;
  }

  __device__ __forceinline__ unsigned char *keys(Cursor c) const { return tiles + c.slot * 2 * TILE_BYTES; }
  __device__ __forceinline__ unsigned char *values(Cursor c) const { return keys(c) + TILE_BYTES; }

  __device__ __forceinline__ void prepare() {
    if (!issuer) return;
    tma_prefetch(&args.k_map);
    tma_prefetch(&args.v_map);
    for (int slot = 0; slot < STAGES; slot++) {
      mbarrier_init(barrier(slot, KEYS), 1);
      mbarrier_init(barrier(slot, VALUES), 1);
      mbarrier_init(barrier(slot, FREE), WARPS_M * MULTICAST);
    }
    mbarrier_init_fence();
  }

  __device__ __forceinline__ void fill() {
    if (!issuer) return;
#pragma unroll
    for (int slot = 0; slot < STAGES; slot++) load(slot, slot);
  }

  __device__ __forceinline__ void refill(int trip, Cursor freed) {
    if (trip == 0 || !exists(trip - 1 + STAGES)) return;
    if (issuer) {
#if MULTICAST > 1
      mbarrier_wait_cluster(barrier(freed.slot, FREE), freed.parity);
#else
      mbarrier_wait(barrier(freed.slot, FREE), freed.parity);
#endif
      load(trip - 1 + STAGES, freed.slot);
    }
  }

  __device__ __forceinline__ void wait_keys(int trip, Cursor c) {
    if (exists(trip)) mbarrier_wait(barrier(c.slot, KEYS), c.parity);
    if (SYNC_POLICY == 2) __syncthreads();
  }

  __device__ __forceinline__ void wait_values(int trip, Cursor c) {
    if (exists(trip)) mbarrier_wait(barrier(c.slot, VALUES), c.parity);
    if (SYNC_POLICY == 2) __syncthreads();
  }

  // The warp has read the tile for the last time. Every block whose copies end in this slot must know.
  __device__ __forceinline__ void release(int trip, Cursor c) {
    if (!exists(trip + STAGES)) return;
    copy_engine_fence();
    __syncwarp();
#if MULTICAST > 1
    if (at.lane < MULTICAST) mbarrier_arrive_remote(barrier(c.slot, FREE), at.first_sharer() + at.lane);
#else
    if (at.lane == 0) mbarrier_arrive(barrier(c.slot, FREE));
#endif
  }

 private:
  __device__ __forceinline__ uint64_t *barrier(int slot, int which) const {
    return barriers + slot * SLOT_BARRIERS + which;
  }
  __device__ __forceinline__ bool exists(int trip) const { return at.first_key(trip) < at.keys; }

  __device__ __forceinline__ void load(int trip, int slot) {
    if (!exists(trip)) return;
    unsigned char *tile = tiles + slot * 2 * TILE_BYTES;
    copy(tile, &args.k_map, args.k_stride, at.first_key(trip), barrier(slot, KEYS));
    copy(tile + TILE_BYTES, &args.v_map, args.v_stride, at.first_key(trip), barrier(slot, VALUES));
  }

  __device__ __forceinline__ void copy(unsigned char *tile, const sdpa_tensor_map *map,
                                       [[maybe_unused]] const sdpa_strides &stride, int key, uint64_t *full) {
#if STRIDED
    // A map has no stride of 0: what all batches or heads share is read at the first one's coordinate.
    const int head = stride.head ? at.head_kv : 0, batch = stride.batch ? at.batch : 0;
#endif
    constexpr int rows = BLOCK_N / MULTICAST;
    mbarrier_expect(full, TILE_BYTES);
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++) {
      unsigned char *to = tile + (panel * BLOCK_N + at.member * rows) * ROW_BYTES;
#if MULTICAST > 1
      const uint16_t blocks = (uint16_t)(((1 << MULTICAST) - 1) << at.first_sharer());
#if STRIDED
      tma_load_multicast_4d(to, map, panel * 64, key + at.member * rows, head, batch, full, blocks);
#else
      tma_load_multicast(to, map, panel * 64, key + at.member * rows, at.kv_number(args), full, blocks);
#endif
#elif STRIDED
      tma_load_4d(to, map, panel * 64, key, head, batch, full);
#else
      tma_load(to, map, panel * 64, key, at.kv_number(args), full);
#endif
    }
  }
};

#else

// Copies of 16 bytes by all threads of the group, in one commit group a tile or, with SYNC_POLICY > 0, one for K and
// one for V. A trip without a tile commits empty groups, so that waiting is the same count everywhere.
struct Ring {
  static constexpr int COMMITS = SYNC_POLICY == 0 ? 1 : 2, FILL_COMMITS = COMMITS * STAGES;

  const Place &at;
  const stored *k, *v;
  int64_t k_row = HEAD_DIM, v_row = HEAD_DIM;  // strides of rows
  unsigned char *tiles;

  __device__ __forceinline__ Ring(const Place &place, const sdpa_args &args, unsigned char *shared)
      : at(place), tiles(shared + opaque(place.warp_n * RING_BYTES)) {
#if STRIDED
    k = (const stored *)args.k + (at.batch * args.k_stride.batch + at.head_kv * args.k_stride.head);
    v = (const stored *)args.v + (at.batch * args.v_stride.batch + at.head_kv * args.v_stride.head);
    k_row = args.k_stride.row;
    v_row = args.v_stride.row;
#else
    const int64_t start = (int64_t)at.kv_number(args) * at.seq_k * HEAD_DIM;
    k = (const stored *)args.k + start;
    v = (const stored *)args.v + start;
#endif
  }

  __device__ __forceinline__ unsigned char *keys(Cursor c) const { return tiles + c.slot * 2 * TILE_BYTES; }
  __device__ __forceinline__ unsigned char *values(Cursor c) const { return keys(c) + TILE_BYTES; }

  __device__ __forceinline__ void prepare() {}

  __device__ __forceinline__ void fill() {
#pragma unroll
    for (int slot = 0; slot < STAGES; slot++) load(slot, slot);
  }

  __device__ __forceinline__ void refill(int trip, Cursor freed) {
    if (trip == 0) return;
    if (REFILL_FIRST) group_barrier(at);
    load(trip - 1 + STAGES, freed.slot);
  }

  // Without REFILL_FIRST this barrier also says that all have finished the tile before, whose slot is refilled next.
  __device__ __forceinline__ void wait_keys(int trip, Cursor) {
    if (REFILL_FIRST || trip == 0)
      cp_async_wait<COMMITS * STAGES - 1>();
    else
      cp_async_wait<REFILL_FIRST ? 0 : COMMITS * (STAGES - 1) - 1>();
    group_barrier(at);
  }

  __device__ __forceinline__ void wait_values(int, Cursor) {
    if (SYNC_POLICY == 0) return;
    cp_async_wait<COMMITS * STAGES - 2>();
    group_barrier(at);
  }

  __device__ __forceinline__ void release(int, Cursor) {}

 private:
  __device__ __forceinline__ void load(int trip, int slot) {
    const int key = at.first_key(trip);
    unsigned char *tile = tiles + slot * 2 * TILE_BYTES;
    if (key < at.keys) copy(tile, k, STRIDED ? k_row : HEAD_DIM, key);
    if (SYNC_POLICY > 0) cp_async_commit();
    if (key < at.keys) copy(tile + TILE_BYTES, v, STRIDED ? v_row : HEAD_DIM, key);
    cp_async_commit();
  }

  __device__ __forceinline__ void copy(unsigned char *tile, const stored *matrix, int64_t apart, int key) {
    if ((FIXED && !KEY_LENGTHS && AT_SEQ_K(at) % BLOCK_N == 0) || key + BLOCK_N <= at.length)
      copy_rows<true>(tile, matrix, apart, key);
    else
      copy_rows<false>(tile, matrix, apart, key);
  }

  // WHOLE: there are as many keys as a tile has. Then addresses are the first one's, and offsets that are known.
  template <bool WHOLE>
  __device__ __forceinline__ void copy_rows(unsigned char *tile, const stored *matrix, int64_t apart, int key) {
    constexpr bool even = GROUP_THREADS % KEY_CHUNKS == 0;  // a thread's chunks are one column
    const int thread = at.warp_m * 32 + at.lane, beside = even ? thread / KEY_CHUNKS : 0;
    const stored *start = matrix + (int64_t)(key + (WHOLE ? beside : 0)) * apart;
    constexpr int rows = even ? GROUP_THREADS / KEY_CHUNKS : 0;     // that all take at once
    constexpr bool regular = rows > 0 && (rows & (rows - 1)) == 0;  // later ones differ in other bits of the row's number
    const int first = regular ? opaque(swizzled(BLOCK_N, beside, thread % KEY_CHUNKS)) : 0;
#pragma unroll
    for (int i = 0; i < BLOCK_N * KEY_CHUNKS; i += GROUP_THREADS) {
      const int item = even ? thread % KEY_CHUNKS : i + thread, chunk = item % KEY_CHUNKS;
      const int more = even ? i / KEY_CHUNKS : item / KEY_CHUNKS, row = more + beside;
      if (BLOCK_N * KEY_CHUNKS % GROUP_THREADS && i + thread >= BLOCK_N * KEY_CHUNKS) break;
      const bool valid = WHOLE || key + row < at.length;
      const stored *from = start + (int64_t)(WHOLE ? more : valid ? row : 0) * apart + chunk * CHUNK;
      const int to = regular ? (first ^ more % 8 * 16) + more * ROW_BYTES : swizzled(BLOCK_N, row, chunk);
      cp_async_16(tile + to, from, valid);
    }
  }
};

#endif
#endif
