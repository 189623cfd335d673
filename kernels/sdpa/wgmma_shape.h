// What the parameters of wgmma.cu make of a block: how many threads, rows, registers and bytes, and where things lie in
// shared memory. wgmma.cu explains the parameters.
#ifndef WGMMA_SHAPE_H
#define WGMMA_SHAPE_H

#include "cuda_element.h"
#include "cuda_wgmma.h"
#include "wgmma_plan.h"

#define STRIDED (LAYOUT != AT_BHSD)
#define HIDES (CAUSAL || WINDOWED)  // rows see different keys

#if defined(SCHEDULE_TILE)
static constexpr int SCHEDULE = WGMMA_TILE;
#elif defined(SCHEDULE_STATIC)
static constexpr int SCHEDULE = WGMMA_STATIC;
#else
static constexpr int SCHEDULE = WGMMA_DYNAMIC;
#endif
#ifdef Q_FROM_REGISTERS
static constexpr bool QUERY_IN_REGISTERS = true;
#else
static constexpr bool QUERY_IN_REGISTERS = false;
#endif
#ifdef O_STAGING_OWN
static constexpr bool OUTPUT_APART = true;
#else
static constexpr bool OUTPUT_APART = false;
#endif
#ifdef SOFTMAX_EXACT
static constexpr bool SPECULATE = false;
#else
static constexpr bool SPECULATE = true;
#endif
#ifdef SOFTMAX_SPEC_ROUNDED
static constexpr bool ROUND_SUMS = true;
#else
static constexpr bool ROUND_SUMS = false;
#endif
static constexpr bool WEAVES = OVERLAP == 2;

static constexpr int WARPGROUP = 128, GROUP_WARPS = 4, GROUP_ROWS = WGMMA_GROUP_ROWS;
static constexpr int THREADS = WARPGROUP * (CONSUMERS + 1), BLOCK_ROWS = GROUP_ROWS * CONSUMERS;

// A kernel starts with the same registers for all threads. The producers give most of theirs to the consumers. Where
// a thread may have 240 from the start, which is the most that one can take, nothing moves.
static constexpr int START_REGISTERS = 65536 / (BLOCKS_SM * THREADS) / 8 * 8;
static constexpr bool MOVE_REGISTERS = START_REGISTERS < 240;
static constexpr int PRODUCER_REGISTERS = CONSUMERS <= 2 ? 24 : 32;
static constexpr int SPARE_REGISTERS = (START_REGISTERS * (CONSUMERS + 1) - PRODUCER_REGISTERS) / CONSUMERS / 8 * 8;
static constexpr int CONSUMER_REGISTERS = SPARE_REGISTERS < 240 ? SPARE_REGISTERS : 240;

// A matrix in shared memory is panels of 64 columns: rows of 128 bytes whose 16-byte chunks are permuted (128-byte
// swizzle). Bulk copies write and read it so, and wgmma reads it so. Of the last panel of 80 or 96 columns a copy fills the
// rest with zeros, or leaves it out; no product reads it.
static constexpr int PANELS = (HEAD_DIM + 63) / 64, ROW_BYTES = 128, SWIZZLE_BYTES = 1024;
static constexpr int GROUP_PANEL = GROUP_ROWS * ROW_BYTES, TILE_PANEL = BLOCK_N * ROW_BYTES;
static constexpr int GROUP_BYTES = PANELS * GROUP_PANEL;  // a warpgroup's rows of Q or O
static constexpr int TILE_BYTES = PANELS * TILE_PANEL;    // a tile of K or V
static constexpr int COLUMNS = HEAD_DIM / 16;             // steps along a row that a product takes at once
static constexpr int KEYS = BLOCK_N / 16;                 // the same along the keys of a tile

// A bias of numbers is brought like a tile of Q, to each consumer its own.
static constexpr int BIAS_SLOTS = HAS_NUMBERS ? 2 : 0;
static constexpr int BIAS_PANELS = (BLOCK_N + 63) / 64, BIAS_BYTES = BIAS_PANELS * GROUP_PANEL;

// Dynamic shared memory: Q of every consumer and buffer, O, the rings of K and V, each consumer's of the bias, barriers,
// tickets, the sink beside each Q.
static constexpr int QUERY_OFFSET = 0;
static constexpr int OUTPUT_OFFSET = QUERY_OFFSET + Q_BUFFERS * CONSUMERS * GROUP_BYTES;
static constexpr int KEYS_OFFSET = OUTPUT_OFFSET + (OUTPUT_APART ? CONSUMERS * GROUP_BYTES : 0);
static constexpr int VALUES_OFFSET = KEYS_OFFSET + STAGES * TILE_BYTES;
static constexpr int BIAS_OFFSET = VALUES_OFFSET + STAGES * TILE_BYTES;
static constexpr int BARRIER_OFFSET = BIAS_OFFSET + BIAS_SLOTS * CONSUMERS * BIAS_BYTES;
static constexpr int TICKET_SLOTS = 2;

// Arrivals that free a ticket's slot: every consumer warp, and the threads that load Q, the bias and the sinks.
static constexpr int TICKET_READERS = GROUP_WARPS * CONSUMERS + 1 + HAS_NUMBERS + HAS_SINKS;

// Barriers, each by its first one's number.
static constexpr int KEYS_FULL = 0, KEYS_FREE = KEYS_FULL + STAGES;
static constexpr int VALUES_FULL = KEYS_FREE + STAGES, VALUES_FREE = VALUES_FULL + STAGES;
static constexpr int QUERY_FULL = VALUES_FREE + STAGES, QUERY_FREE = QUERY_FULL + Q_BUFFERS * CONSUMERS;
static constexpr int BIAS_FULL = QUERY_FREE + Q_BUFFERS * CONSUMERS, BIAS_FREE = BIAS_FULL + BIAS_SLOTS * CONSUMERS;
static constexpr int TICKET_FULL = BIAS_FREE + BIAS_SLOTS * CONSUMERS, TICKET_FREE = TICKET_FULL + TICKET_SLOTS;
static constexpr int BARRIERS = TICKET_FREE + TICKET_SLOTS;
static constexpr int TICKET_OFFSET = BARRIER_OFFSET + 8 * BARRIERS;
static constexpr int SINK_OFFSET = TICKET_OFFSET + 4 * TICKET_SLOTS;
static constexpr int SHARED_BYTES = SINK_OFFSET + (HAS_SINKS ? 4 * Q_BUFFERS * CONSUMERS : 0);

static_assert(CONSUMERS >= 1 && CONSUMERS <= 4, "a block has one to four consumer warpgroups");
static_assert(BLOCK_N % 16 == 0 && BLOCK_N >= 64 && BLOCK_N <= 192, "the products that cuda_wgmma.h has");
static_assert(HEAD_DIM % 16 == 0 && HEAD_DIM <= 256, "a product has the columns of O, up to 256");
static_assert(STAGES >= 1, "a ring has a slot");
static_assert(!PING_PONG || CONSUMERS > 1, "one consumer has nobody to take turns with");
static_assert(!EARLY_START || (OVERLAP && Q_BUFFERS == 2), "the next Q must be there, and no turn be due");
static_assert(!EARLY_START || !HIDES || CONSUMERS == 1 || (CAUSAL && BLOCK_N % BLOCK_ROWS == 0),
              "a hidden tile of the next item would be given back while the last V is in use");
static_assert(SCHEDULE != WGMMA_TILE || (Q_BUFFERS == 1 && !EARLY_START), "there is no next work item");

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

// The sink of the item whose Q a buffer holds.
AT_DEVICE float &sink_beside(unsigned char *shared, int buffer) { return ((float *)(shared + SINK_OFFSET))[buffer]; }

// Where `chunk` of 16 bytes of a row lies in a matrix whose panels have `panel_bytes`.
AT_DEVICE int swizzled(int panel_bytes, int row, int chunk) {
  return chunk / 8 * panel_bytes + row * ROW_BYTES + (chunk % 8 ^ row % 8) * 16;
}

AT_DEVICE int least(int a, int b) { return a < b ? a : b; }

#endif
