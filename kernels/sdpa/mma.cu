// Attention on tensor cores: 16x8x16 products in warps, scores and softmax in registers, online softmax.
//
// A warp owns ROW_TILES times 16 rows of a head and goes through its keys in tiles of BLOCK_N:
//   scores   S = Q K^T                                                       (score)
//   softmax  P = 2^(S - max), its sum, and how far the max has moved         (softmax)
//   output   O = O * decay + P V                                             (accumulate)
// A block is WARPS_M x WARPS_N warps: rows x keys. The WARPS_M warps of a group work on the same keys and share a ring
// of tiles in shared memory (mma_ring.h). Tiles are dealt in turn to the SPLIT * WARPS_N parts that share rows, which
// gives all of them the same work under a causal mask too; at the end they merge their results (mma_merge.h).
// A cluster is SPLIT * MULTICAST neighbouring blocks: MULTICAST blocks of rows, each SPLIT times. A block whose rows
// lie past the end still loads and meets the others.
//
// Parameters (all integers but LOAD, EXP, Q_FROM):
//   WARPS_M      warps along the rows
//   ROW_TILES    tiles of rows of a warp; with 2 each piece of K and V read from shared memory serves twice
//   TILE_ROWS    rows of such a tile: 16, or 8, which leaves half of a product's rows empty, where there are no more
//   WARPS_N      warps along the keys
//   BLOCK_N      keys of a tile: what a warp handles at once
//   STAGES       tiles in a group's ring: how many are in flight
//   SPLIT        blocks of a cluster that divide the keys; > 1 needs sm_90. With MERGE = device as many of them work as the
//                keys of a call are enough for
//   LOAD         cp_async: 16 bytes a thread and copy; tma: bulk tensor copies by one thread a group, needs sm_90
//   MERGE        cluster: these blocks are one; device: they are any, on as many multiprocessors as there are. Each leaves what
//                it has found in the workspace, and the last one merges it
//   MULTICAST    row blocks of a cluster that share what they load, each loading a part for all; > 1 needs LOAD = tma
//   EXP          ex2: the special function unit; poly: a polynomial; mixed: three of four by the former
//   Q_FROM       registers: read from global memory as the products want it; shared: through shared memory
//   PACK_GQA     1: where heads of Q share K and V their rows are rows of one tile (mma_rows.h), so that K and V are read once
//   L2_FETCH     bytes that a bulk copy brings to the second-level cache at a time: 256 or 128; 1: what it reads
//   FIXED        1: the lengths are compile-time constants, and a short loop over tiles is unrolled
//   SYNC_POLICY  0: the fewest barriers. With cp_async K and V of a tile are awaited together, by one barrier that also
//                says that the tile before is free. Partial results have memory of their own and are awaited by those
//                who merge them: warps of one block meet, what comes from another block brings its signal.
//                1: one barrier a hazard: K has come, V has come, a slot is free, memory for results is free, results
//                have come.
//                2: as 1, with the whole block meeting each time and after each phase of the loop.
#include "mma_merge.h"
#include "mma_ring.h"

AT_GEOMETRY = {
    .abi_version = AT_ABI_VERSION,
    .args_bytes = sizeof(sdpa_args),
    .threads = THREADS,
    .rows = CLUSTER_ROWS,
    .split = TOGETHER,
    .cluster = CLUSTER,
    .dynamic_shared = SHARED_BYTES,
    .head_dim = HEAD_DIM,
    .tma_rows = BULK_LOADS ? BLOCK_N / MULTICAST : 0,
#if FIXED
    .fixed_seq_q = SEQ_Q,
    .fixed_seq_k = SEQ_K,
#endif
    .strided_maps = STRIDED,
    .packs_groups = PACKED,
    .block_workspace = DEVICE_MERGE ? BLOCK_WORKSPACE : 0,
    .l2_bytes = BULK_LOADS ? L2_FETCH : 0,
};

// A longer loop, unrolled, would not fit the instruction cache.
#if FIXED && !HIDES
static constexpr int TRIPS = (SEQ_K + PARTS * BLOCK_N - 1) / (PARTS * BLOCK_N);
static constexpr int UNROLL = TRIPS <= 8 ? TRIPS : 1;
#else
static constexpr int UNROLL = 1;
#endif

AT_DEVICE void end_of_phase() {
  if (SYNC_POLICY == 2) __syncthreads();
}

AT_DEVICE void query_to_shared(const Place &at, const sdpa_args &args, unsigned char *tile) {
  const int first_row = at.row - at.warp_m * WARP_ROWS;
#pragma unroll
  for (int i = 0; i < BLOCK_ROWS * CHUNKS; i += THREADS) {
    const int item = i + (int)threadIdx.x, row = (unsigned)item / CHUNKS, chunk = (unsigned)item % CHUNKS;
    if (BLOCK_ROWS * CHUNKS % THREADS && item >= BLOCK_ROWS * CHUNKS) break;
    const bool valid = (FIXED && AT_SEQ_Q(at) % CLUSTER_ROWS == 0) || first_row + row < at.rows;
    const element *from = (const element *)args.q + at.place(valid ? first_row + row : 0, args.q_stride) + chunk * 8;
    cp_async_16(tile + swizzled(BLOCK_ROWS, row, chunk), from, valid);
  }
  cp_async_commit();
}

AT_DEVICE void query_from_shared(Queries &queries, const Place &at, const unsigned char *tile, int block_row) {
#pragma unroll
  for (int i = 0; i < HEAD_DIM / 16; i++)
    ldmatrix_x4(queries.fragment[i], tile + piece(BLOCK_ROWS, block_row + at.lane % 16, at.lane / 16, i));
}

AT_DEVICE void work(const Place &at, Ring &ring, const Queries (&queries)[ROW_TILES], Partial (&partial)[ROW_TILES],
                    float scale) {
  Cursor current, previous;
#pragma unroll UNROLL
  for (int trip = 0; trip < at.trips; trip++) {
    const int key = at.first_key(trip);
#if WINDOWED
    const bool seen = key < at.warp_end && key + BLOCK_N > at.warp_begin;
#else
    const bool seen = key < at.warp_end;
#endif
    Probabilities probabilities[ROW_TILES];
    if (REFILL_FIRST) ring.refill(trip, previous);
    ring.wait_keys(trip, current);
    if (!REFILL_FIRST) ring.refill(trip, previous);
    if (seen) {
      Scores scores[ROW_TILES];
      score(scores, queries, ring.keys(current), at.lane);
#pragma unroll
      for (int m = 0; m < ROW_TILES; m++) {
        mask(scores[m], queries[m], at, at.row + m * TILE_ROWS, key);
        softmax(probabilities[m], partial[m], scores[m], queries[m], scale, trip == 0);
      }
    }
    end_of_phase();
    ring.wait_values(trip, current);
    if (seen) accumulate(partial, probabilities, ring.values(current), at.lane);
    end_of_phase();
    ring.release(trip, current);
    previous = current;
    current.next();
  }
}

// The first half of the cluster's first barrier: barriers are initialised, and the block's shared memory exists.
AT_DEVICE void announce() {
#if CLUSTER_SPLIT * MULTICAST > 1
  cluster_arrive_relaxed();
#endif
}

AT_DEVICE void await_announcements() {
#if CLUSTER_SPLIT * MULTICAST > 1
  cluster_wait();
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) variant_kernel(const __grid_constant__ sdpa_args args) {
  extern __shared__ __align__(SWIZZLE_BYTES) unsigned char shared[];
  constexpr bool own_loads_only = MULTICAST == 1, fill_first = BULK_LOADS && own_loads_only;
  const Place at = locate(args);
  if (DEVICE_MERGE && blockIdx.x % SPLIT >= at.splits) return;
  Ring ring(at, args, shared);
  ring.prepare();
  if (fill_first) ring.fill();
  prepare_inbox(shared, at);
  announce();

  Queries queries[ROW_TILES];
#ifdef Q_FROM_SHARED
  query_to_shared(at, args, shared + QUERY_OFFSET);
#else
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) query_from_global(queries[m], at, args, at.row + m * TILE_ROWS);
#endif
  if (!own_loads_only) await_announcements();
  if (!fill_first) ring.fill();
  const unsigned long long arrived = look_at_arrivals(args);
#ifdef Q_FROM_SHARED
  cp_async_wait<Ring::FILL_COMMITS>();
  __syncthreads();
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++)
    query_from_shared(queries[m], at, shared + QUERY_OFFSET, at.warp_m * WARP_ROWS + m * TILE_ROWS);
#else
  if (fill_first) __syncthreads();
#endif

#if FP8_CACHE
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) to_halves(queries[m]);
#endif

#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) find_bias(queries[m], at, at.row + m * TILE_ROWS);
  Partial partial[ROW_TILES];
  find_sinks(partial, at, args);
  work(at, ring, queries, partial, scale_log2(args, at));
#if FP8_CACHE
#pragma unroll
  for (int m = 0; m < ROW_TILES; m++) partial[m].max[0] *= queries[m].raise[0], partial[m].max[1] *= queries[m].raise[1];
#endif
  in_order(partial);
  prepare_arrivals(args, arrived);
  if (own_loads_only) await_announcements();
  // No block may end while its copies to others are under way; when parts meet, they see to it.
#if MULTICAST > 1 && (CLUSTER_SPLIT == 1 || SYNC_POLICY == 0)
  cluster_arrive_relaxed();
  finish(at, args, partial, shared);
  cluster_wait();
#else
  finish(at, args, partial, shared);
#endif
}
