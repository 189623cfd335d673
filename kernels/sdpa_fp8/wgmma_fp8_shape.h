// What the parameters of wgmma_fp8.cu make of a block: how many threads, rows, registers and bytes, and where things lie
// in shared memory. wgmma_fp8.cu explains the parameters.
#ifndef WGMMA_FP8_SHAPE_H
#define WGMMA_FP8_SHAPE_H

#include "cuda_element.h"
#include "cuda_wgmma_fp8.h"
#include "wgmma_fp8_plan.h"

#ifdef SCHEDULE_TILE
static constexpr int SCHEDULE = WGMMA_TILE;
#else
static constexpr int SCHEDULE = WGMMA_DYNAMIC;
#endif
#ifdef Q_FROM_REGISTERS
static constexpr bool QUERY_IN_REGISTERS = true;
#else
static constexpr bool QUERY_IN_REGISTERS = false;
#endif
#ifdef SOFTMAX_EXACT
static constexpr bool SPECULATE = false;
#else
static constexpr bool SPECULATE = true;
#endif

static constexpr int WARPGROUP = 128, GROUP_WARPS = 4, GROUP_ROWS = FP8_GROUP_ROWS;
static constexpr int THREADS = WARPGROUP * (CONSUMERS + 1), BLOCK_ROWS = GROUP_ROWS * CONSUMERS;

// A kernel starts with the same registers for all threads. The producers give most of theirs to the consumers.
static constexpr int START_REGISTERS = 65536 / THREADS / 8 * 8;
static constexpr int PRODUCER_REGISTERS = CONSUMERS <= 2 ? 24 : 32;
static constexpr int SPARE_REGISTERS = (START_REGISTERS * (CONSUMERS + 1) - PRODUCER_REGISTERS) / CONSUMERS / 8 * 8;
static constexpr int CONSUMER_REGISTERS = SPARE_REGISTERS < 240 ? SPARE_REGISTERS : 240;

// Rows of Q and K are HEAD_DIM bytes with a swizzle of as many. Rows of O are panels of 64 columns with the 128-byte
// swizzle. A tile of the transposed V is chunks of as many keys as a swizzle has bytes; behind its HEAD_DIM rows each
// chunk has eight more, of ones: with them the second product also adds up the rounded probabilities.
static constexpr int ROW_BYTES = HEAD_DIM, SWIZZLE_BYTES = 1024;
static constexpr int CHUNK_KEYS = BLOCK_N % 128 == 0 ? 128 : BLOCK_N % 64 == 0 ? 64 : 32, CHUNKS = BLOCK_N / CHUNK_KEYS;
static constexpr int SUM_ROWS = 8, CHUNK_BYTES = (HEAD_DIM + SUM_ROWS) * CHUNK_KEYS;
static constexpr int QUERY_BYTES = GROUP_ROWS * ROW_BYTES;           // a warpgroup's rows of Q
static constexpr int O_PANELS = HEAD_DIM / 64, O_PANEL = GROUP_ROWS * 128, OUTPUT_BYTES = O_PANELS * O_PANEL;
static constexpr int KEYS_BYTES = BLOCK_N * ROW_BYTES, VALUES_BYTES = CHUNKS * CHUNK_BYTES;  // of a tile
static constexpr int LOADED_BYTES = BLOCK_N * HEAD_DIM;              // of either that a copy brings
static constexpr int DEPTH = 32;                                     // elements that a product sums
static constexpr int OUTPUTS = HEAD_DIM / 2, SUMS = OUTPUTS;         // a thread's numbers of O, and where its sums begin

static constexpr int OUTPUT_OFFSET = 0;
static constexpr int QUERY_OFFSET = OUTPUT_OFFSET + CONSUMERS * OUTPUT_BYTES;
static constexpr int KEYS_OFFSET = QUERY_OFFSET + CONSUMERS * QUERY_BYTES;
static constexpr int VALUES_OFFSET = KEYS_OFFSET + STAGES * KEYS_BYTES;
static constexpr int BARRIER_OFFSET = (VALUES_OFFSET + STAGES * VALUES_BYTES + 127) / 128 * 128;
static constexpr int TICKET_SLOTS = 2;

// Barriers, each by its first one's number.
static constexpr int KEYS_FULL = 0, KEYS_FREE = KEYS_FULL + STAGES;
static constexpr int VALUES_FULL = KEYS_FREE + STAGES, VALUES_FREE = VALUES_FULL + STAGES;
static constexpr int QUERY_FULL = VALUES_FREE + STAGES, QUERY_FREE = QUERY_FULL + CONSUMERS;
static constexpr int TICKET_FULL = QUERY_FREE + CONSUMERS, TICKET_FREE = TICKET_FULL + TICKET_SLOTS;
static constexpr int BARRIERS = TICKET_FREE + TICKET_SLOTS;
static constexpr int TICKET_OFFSET = BARRIER_OFFSET + 8 * BARRIERS;
static constexpr int SHARED_BYTES = TICKET_OFFSET + 4 * TICKET_SLOTS;

// Arrivals that free a ticket's slot: every consumer warp, and the thread that loads Q.
static constexpr int TICKET_READERS = GROUP_WARPS * CONSUMERS + 1;

static_assert(CONSUMERS >= 1 && CONSUMERS <= 3, "a block has one to three consumer warpgroups");
static_assert(BLOCK_N == 64 || BLOCK_N == 96 || BLOCK_N == 128 || BLOCK_N == 160 || BLOCK_N == 192,
              "the products that cuda_wgmma_fp8.h has");
static_assert(HEAD_DIM == 128, "rows of Q and K are as long as a swizzle, and a product has the columns of O");
static_assert(!PING_PONG || CONSUMERS > 1, "one consumer has nobody to take turns with");
static_assert(VALUES_BYTES % (8 * CHUNK_KEYS) == 0, "every slot of a ring begins where its swizzle does");

// A position in a ring of DEPTH buffers, and the parity of how often it has gone round.
template <int DEPTH>
struct Cursor {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void next() {
    if (++slot == DEPTH) {
      slot = 0;
      parity ^= 1;
    }
  }
};

AT_DEVICE uint64_t *barrier(unsigned char *shared, int number) {
  return (uint64_t *)(shared + BARRIER_OFFSET) + number;
}

AT_DEVICE int least(int a, int b) { return a < b ? a : b; }

// Where `chunk` of 16 bytes of a row of 128 lies, with the 128-byte swizzle.
AT_DEVICE int swizzled(int row, int chunk) { return row * 128 + (chunk ^ row % 8) * 16; }

#include "../sdpa/wgmma_tickets.h"

// A work item: BLOCK_ROWS query rows of a slice, and the tiles of keys that any of them sees, one at least.
struct Item {
  int slice, row, tiles, keys;
  bool swapped;  // the last two tiles

  // The tile whose turn is `turn`, which counts down to 0: with a mask the last one second, where all consumers see it: of
  // the first the softmax takes its scale, and rows see few keys of the last.
  __device__ __forceinline__ int tile(int turn) const {
    return swapped && turn >= tiles - 2 ? 2 * tiles - 3 - turn : turn;
  }

  // Keys that row `number` sees, of those there are.
  __device__ __forceinline__ int seen(const fp8_args &args, int number) const {
    if (!CAUSAL) return keys;
    return least(keys, number + 1 + (CORNER == AT_BOTTOM_RIGHT ? keys - args.seq_q : 0));
  }
};

AT_DEVICE int tiles_of(int keys) { return keys > 0 ? (keys + BLOCK_N - 1) / BLOCK_N : 1; }

// Tiles that a consumer with these rows sees: those above the diagonal it leaves out.
AT_DEVICE int own_tiles(const fp8_args &args, const Item &all, int row) {
  return CAUSAL ? least(all.tiles, tiles_of(all.seen(args, row + GROUP_ROWS - 1))) : all.tiles;
}

// Causal items are unequal, so the longest of some slices come first: all last row blocks, then those before.
AT_DEVICE Item item(const fp8_args &args, int number) {
  Item found;
  int row_block;
  if (CAUSAL) {
    const int per = args.slices_at_once * args.row_blocks, batch = number / per, within = number - batch * per;
    const int count = least(args.slices_at_once, args.slices - batch * args.slices_at_once), turn = within / count;
    found.slice = batch * args.slices_at_once + within - turn * count;
    row_block = args.row_blocks - 1 - turn;
  } else {
    found.slice = number / args.row_blocks;
    row_block = number - found.slice * args.row_blocks;
  }
  found.row = row_block * BLOCK_ROWS;
#if KEY_LENGTHS
  found.keys = keys_of(args, found.slice / args.heads);
#else
  found.keys = args.seq_k;
#endif
  found.tiles = tiles_of(found.seen(args, least(found.row + BLOCK_ROWS, args.seq_q) - 1));
  found.swapped = CAUSAL && found.tiles > 1 && own_tiles(args, found, found.row) == found.tiles;
  return found;
}

// The last coordinates of a box.
struct Place {
  int head, batch;
};

AT_DEVICE Place place_of_output(const fp8_args &args, int slice) {
  const int batch = slice / args.heads;
  return {slice - batch * args.heads, batch};
}

// In `tensor`: SDPA_Q or SDPA_K.
AT_DEVICE Place place_in(const fp8_args &args, int tensor, int slice) {
  const Place apart = place_of_output(args, slice);
  const int head = GROUPED && tensor != SDPA_Q ? apart.head / args.group : apart.head;
  const bool one_head = args.expanded & FP8_ONE_HEAD(tensor), one_batch = args.expanded & FP8_ONE_BATCH(tensor);
  return {one_head ? 0 : head, one_batch ? 0 : apart.batch};
}

// The number of a slice's K and V, and of their descales.
AT_DEVICE int slice_kv(const fp8_args &args, int slice) { return GROUPED ? slice / args.group : slice; }

#endif
