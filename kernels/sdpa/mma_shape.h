// What the parameters of mma.cu make of a block: how many threads, rows and bytes, and where a matrix element lies in
// shared memory. mma.cu explains the parameters.
#ifndef MMA_SHAPE_H
#define MMA_SHAPE_H

#include "mma_rows.h"

// Blocks of a cluster that divide the keys; with MERGE = device the SPLIT blocks are no cluster.
#if defined(MERGE_DEVICE) && SPLIT > 1
#define DEVICE_MERGE 1
#define CLUSTER_SPLIT 1
#else
#define DEVICE_MERGE 0
#define CLUSTER_SPLIT SPLIT
#endif
#ifdef LOAD_TMA
#define BULK_LOADS 1
#else
#define BULK_LOADS 0
#endif

static constexpr int GROUP_THREADS = 32 * WARPS_M, THREADS = GROUP_THREADS * WARPS_N;
static constexpr int HALVES = TILE_ROWS / 8, WARP_ROWS = TILE_ROWS * ROW_TILES, BLOCK_ROWS = WARP_ROWS * WARPS_M;
static constexpr int CLUSTER = CLUSTER_SPLIT * MULTICAST, CLUSTER_ROWS = BLOCK_ROWS * MULTICAST;
static constexpr int TOGETHER = SPLIT * MULTICAST;         // blocks that share rows or loads
static constexpr int PARTS = SPLIT * WARPS_N;              // partial results of a row, each over its own keys
static constexpr int MERGED = CLUSTER_SPLIT * WARPS_N;     // of these, merged through shared memory
static constexpr int FRAGMENTS = HEAD_DIM / 8;             // 16x8 pieces of 16 rows of output, a float4 a lane

// Fragments that one warp merges: the fewest that leave none over, in pairs unless each warp has one.
static constexpr int share() {
  int share = 1;
  while (FRAGMENTS % share || FRAGMENTS / share > MERGED || (share > 1 && share % 2)) share++;
  return share;
}

static constexpr int SHARE = share();
static constexpr int SHARERS = FRAGMENTS / SHARE;  // parts that merge any

// A matrix in shared memory is panels of 64 columns: rows of 128 bytes whose 16-byte chunks are permuted so that the
// same chunk of eight rows lies in eight different banks. Bulk tensor copies write the same pattern (128-byte swizzle).
static constexpr int PANELS = (HEAD_DIM + 63) / 64;  // of the last one a part may be unused
static constexpr int ROW_BYTES = 128, CHUNKS = HEAD_DIM / 8;  // 16-byte chunks of a whole row
#if FP8_CACHE
typedef unsigned char stored;  // a number of K and V
#else
typedef element stored;
#endif
static constexpr int CHUNK = 16 / sizeof(stored), KEY_CHUNKS = HEAD_DIM / CHUNK, KEY_PANELS = (KEY_CHUNKS + 7) / 8;
static constexpr int SWIZZLE_BYTES = 1024;                    // the pattern repeats after eight rows
static constexpr int TILE_BYTES = BLOCK_N * KEY_PANELS * ROW_BYTES, QUERY_BYTES = BLOCK_ROWS * PANELS * ROW_BYTES;

AT_DEVICE int swizzled(int rows, int row, int chunk) {
  return chunk / 8 * rows * ROW_BYTES + row * ROW_BYTES + (chunk % 8 ^ row % 8) * 16;
}

// Where in a row two columns lie that a fragment of O has, or of Q: `place` is that of the lane among four.
template <typename Pair>
AT_DEVICE Pair *pair_of(Pair *row, int fragment, int place) {
  return FP8_CACHE ? row + (fragment / 2 * 8 + fragment % 2) + place * 2 : row + fragment * 4 + place;
}

// Where chunk 2 i + half of a row lies, for ldmatrix: one exclusive or makes the addresses of all i.
AT_DEVICE int piece(int rows, int row, int half, int i) {
  return ((row * ROW_BYTES + (half ^ row % 8) * 16) ^ i % 4 * 32) + i / 4 * rows * ROW_BYTES;
}

// Dynamic shared memory: the rings of all groups, Q, what parts send to each other, barriers of the rings and of that.
static constexpr int RING_BYTES = STAGES * 2 * TILE_BYTES;
static constexpr int MESSAGE_FLOAT4 = (SHARE + 1) * 32;
static constexpr int INBOX_BYTES = MERGED == 1 ? 0 : ROW_TILES * WARPS_M * WARPS_N * MERGED * MESSAGE_FLOAT4 * 16;
#ifdef Q_FROM_SHARED
static constexpr int QUERY_OFFSET = WARPS_N * RING_BYTES, LOADED_BYTES = QUERY_OFFSET + QUERY_BYTES;
#else
static constexpr int LOADED_BYTES = WARPS_N * RING_BYTES;
#endif
static constexpr bool INBOX_APART = SYNC_POLICY == 0, INBOX_SIGNALS = INBOX_APART && CLUSTER_SPLIT > 1;
static constexpr int INBOX_OFFSET = INBOX_APART ? LOADED_BYTES : 0;
static constexpr int BARRIER_OFFSET =
    INBOX_OFFSET + INBOX_BYTES > LOADED_BYTES ? INBOX_OFFSET + INBOX_BYTES : LOADED_BYTES;
static constexpr int SLOT_BARRIERS = 3;
static constexpr int INBOX_BARRIER_OFFSET = BARRIER_OFFSET + (BULK_LOADS ? WARPS_N * STAGES * SLOT_BARRIERS * 8 : 0);
static constexpr int SHARED_BYTES = INBOX_BARRIER_OFFSET + (INBOX_SIGNALS ? WARPS_M * WARPS_N * 8 : 0);

static_assert(WARPS_M * WARPS_N <= 32, "a block has at most 1024 threads");
static_assert(ROW_TILES == 1 || ROW_TILES == 2, "unknown ROW_TILES");
static_assert(TILE_ROWS == 8 || TILE_ROWS == 16, "unknown TILE_ROWS");
static_assert(BLOCK_N % 16 == 0, "the second product takes 16 keys at a time");
static_assert(CLUSTER <= 8, "a portable cluster has at most 8 blocks");
static_assert(MULTICAST == 1 || BULK_LOADS, "only bulk copies reach several blocks");
static_assert(BLOCK_N / MULTICAST >= 8, "a block's share of a tile is whole swizzle patterns");
static_assert(WARPS_M + WARPS_N <= 15, "a block has 15 named barriers");
static_assert(STAGES >= 1, "a ring has a slot");
static_assert(SYNC_POLICY >= 0 && SYNC_POLICY <= 2, "unknown SYNC_POLICY");
static_assert(HEAD_DIM % 16 == 0, "a product takes 16 columns at a time");
static_assert(!DEVICE_MERGE || MULTICAST == 1, "blocks that merge through the workspace are no cluster");
static_assert(!KEY_LENGTHS || !BULK_LOADS, "a bulk copy brings what lies past a length, which may be NaN");

// The workspace of a block with MERGE = device: what it has found of each row, and of its softmax.
static constexpr int STATE_OFFSET = BLOCK_ROWS * HEAD_DIM * 4, BLOCK_WORKSPACE = STATE_OFFSET + BLOCK_ROWS * 8;

// Where a warp stands: its rows, its keys, and its place among those that share them.
struct Place : Slice {
  int lane, warp_m, warp_n;
  int member;  // of the blocks that share loads
  int part;    // of the warps that share rows
  int row;     // the warp's first
  int keys;      // that any row of the cluster sees
  int warp_end;  // keys that any row of the warp sees
  int trips;     // tiles of a group, or one more than it has
  int splits;    // blocks that have any of these keys, at least one: few keys leave some of the SPLIT without
#if WINDOWED
  int first_tile;  // of the keys that any row of the cluster sees
  int warp_begin;  // the first key that any row of the warp sees
#endif

  // The rank of the first of the blocks that share loads.
  __device__ __forceinline__ int first_sharer() const { return part / WARPS_N * MULTICAST; }
  // Which of the parts that meet in shared memory.
  __device__ __forceinline__ int merging() const { return DEVICE_MERGE ? warp_n : part; }
  __device__ __forceinline__ int first_key(int trip) const {
#if WINDOWED
    return (first_tile + trip * PARTS + part) * BLOCK_N;
#else
    return (trip * PARTS + part) * BLOCK_N;
#endif
  }
};

// Causal clusters start from the last rows, which see the most keys, so that the grid ends evenly.
AT_DEVICE Place locate(const sdpa_args &args) {
  Place at;
  static_cast<Slice &>(at) = sizes_of(args);
  const unsigned warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // from one lane: the compiler sees that all agree
  const unsigned rank = blockIdx.x % TOGETHER, cluster = blockIdx.x / TOGETHER;
  at.lane = threadIdx.x % 32;
  at.warp_m = warp % WARPS_M;
  at.warp_n = warp / WARPS_M % WARPS_N;
  at.member = rank % MULTICAST;
  at.part = rank / MULTICAST * WARPS_N + at.warp_n;
  const unsigned row_blocks = (at.rows + CLUSTER_ROWS - 1) / CLUSTER_ROWS;
  const unsigned slices = slices_of(args);
  name_slice(at, args, CAUSAL ? cluster % slices : cluster / row_blocks);
  const int cluster_row = (CAUSAL ? row_blocks - 1 - cluster / slices : cluster % row_blocks) * CLUSTER_ROWS;
  at.row = cluster_row + at.member * BLOCK_ROWS + at.warp_m * WARP_ROWS;
  at.keys = at.end_before(least(at.rows, cluster_row + CLUSTER_ROWS));
  at.warp_end = HIDES ? least(at.keys, at.end_before(at.row + WARP_ROWS)) : at.keys;
#if WINDOWED
  at.first_tile = least(at.begin_of(cluster_row), at.keys) / BLOCK_N;
  at.warp_begin = at.begin_of(at.row);
  const int keys = at.keys - at.first_tile * BLOCK_N;
#else
  const int keys = at.keys;
#endif
  at.trips = (keys + PARTS * BLOCK_N - 1) / (PARTS * BLOCK_N);
  at.splits = keys == 0 ? 1 : least(SPLIT, (keys + WARPS_N * BLOCK_N - 1) / (WARPS_N * BLOCK_N));
  return at;
}

#endif
