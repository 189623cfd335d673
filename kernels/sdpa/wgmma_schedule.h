// Which work items a block takes, one after the other, and what an item is: BLOCK_ROWS query rows of a slice.
#ifndef WGMMA_SCHEDULE_H
#define WGMMA_SCHEDULE_H

#include "wgmma_shape.h"

struct Item {
  int slice, row;  // the first of its rows
  int tiles;       // of keys, up to the last that any of its rows sees
#if WINDOWED
  int first;  // of these the first that is seen; there is one at least
#else
  static constexpr int first = 0;
#endif
};

// Keys after a row's own that it sees.
AT_DEVICE int keys_after([[maybe_unused]] const wgmma_args &args) {
#if WINDOWED
  return args.window_right;
#else
  return 0;
#endif
}

// Causal items are unequal, so the longest of a batch of slices come first: all last row blocks, then those before.
AT_DEVICE Item item(const wgmma_args &args, int number) {
  Item found;
  int row_block;
  if (CAUSAL) {
    const bool last = number >= args.last_batch * args.row_blocks;
    const int batch = number / (args.slices_at_once * args.row_blocks);
    const int first = last ? args.last_batch : batch * args.slices_at_once;
    const int count = last ? args.slices - args.last_batch : args.slices_at_once;
    const int within = number - first * args.row_blocks, turn = within / count;
    row_block = args.row_blocks - 1 - turn;
    found.slice = first + within - turn * count;
  } else {
    found.slice = number / args.row_blocks;
    row_block = number - found.slice * args.row_blocks;
  }
  found.row = row_block * BLOCK_ROWS;
  const int rows = least(args.seq_q, found.row + BLOCK_ROWS);
  const int keys = HIDES ? least(args.seq_k, rows + keys_after(args)) : args.seq_k;
  found.tiles = (keys + BLOCK_N - 1) / BLOCK_N;
#if WINDOWED
  const int begin = found.row - args.window_left;
  found.first = begin > 0 ? least(begin / BLOCK_N, found.tiles - 1) : 0;
#endif
  return found;
}

// Tiles that a consumer with these rows sees: those above the diagonal it leaves out.
AT_DEVICE int own_tiles(const wgmma_args &args, const Item &all, int row) {
  if (!HIDES) return all.tiles;
  const int own = least(all.tiles, (row + GROUP_ROWS + keys_after(args) + BLOCK_N - 1) / BLOCK_N);
  return WINDOWED && own <= all.first ? all.first + 1 : own;
}

// Draws the number of an item that nobody has begun. The word holds (launch, next number). A launch finds garbage there:
// the first to draw replaces it and takes the item after those that the blocks begin with. The last to draw leaves 0,
// which is no launch's number, since a graph launches with the same one again and again.
AT_DEVICE int draw_ticket(const wgmma_args &args) {
  typedef unsigned long long Word;
  const Word launch = (Word)args.launch << 32, first = launch | gridDim.x;
  Word found = atomicAdd(args.tickets, 1ull), garbage = found + 1;
  while (found >> 32 != args.launch) {
    found = atomicCAS(args.tickets, garbage, first + 1);
    if (found == garbage)
      found = first;
    else if (found >> 32 == args.launch)
      found = atomicAdd(args.tickets, 1ull);
    else
      garbage = found;
  }
  const int number = (int)(uint32_t)found;
  if (number == args.items - 1 + (int)gridDim.x) atomicExch(args.tickets, 0ull);
  return number;
}

// A block's items, as each of its roles reads them; args.items ends the list.
struct Schedule {
  const wgmma_args &args;
  unsigned char *shared;
  int number, round = 0;
  Cursor<TICKET_SLOTS> slot;

  __device__ __forceinline__ Schedule(const wgmma_args &arguments, unsigned char *memory)
      : args(arguments), shared(memory), number(blockIdx.x) {}

  __device__ __forceinline__ bool done() const { return number >= args.items; }

  // There and back again: whoever begins with the longest items goes on with the shortest of the next round.
  __device__ __forceinline__ void next_static() {
    round++;
    number = round * gridDim.x + (round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  }

  // For the one thread that draws for the block: also tells the others.
  __device__ __forceinline__ void next_drawn() {
    mbarrier_wait(barrier(shared, TICKET_FREE + slot.slot), slot.parity ^ 1);
    number = draw_ticket(args);
    tickets()[slot.slot] = number;
    mbarrier_arrive(barrier(shared, TICKET_FULL + slot.slot));
    slot.next();
  }

  // For a warp that is told, or with `alone` for one thread of it.
  __device__ __forceinline__ void next_told(bool alone) {
    mbarrier_wait(barrier(shared, TICKET_FULL + slot.slot), slot.parity);
    number = tickets()[slot.slot];
    if (!alone) __syncwarp();
    if (alone || threadIdx.x % 32 == 0) mbarrier_arrive(barrier(shared, TICKET_FREE + slot.slot));
    slot.next();
  }

  __device__ __forceinline__ void next(bool draws, bool alone) {
    if (SCHEDULE == WGMMA_TILE)
      number = args.items;
    else if (SCHEDULE == WGMMA_STATIC)
      next_static();
    else if (draws)
      next_drawn();
    else
      next_told(alone);
  }

 private:
  __device__ __forceinline__ volatile int *tickets() const { return (volatile int *)(shared + TICKET_OFFSET); }
};

// Arrivals that free a ticket's slot: every consumer warp, and the thread that loads Q.
static constexpr int TICKET_READERS = GROUP_WARPS * CONSUMERS + 1;

#endif
