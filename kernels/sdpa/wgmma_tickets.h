// Which work items a block takes, one after the other: all blocks share the items, evenly or as each is ready. What an item
// is, is the kernel's affair. The includer has defined SCHEDULE, Cursor, the tickets' barriers and TICKET_READERS, the
// arrivals that free a ticket's slot.
#ifndef WGMMA_TICKETS_H
#define WGMMA_TICKETS_H

#include "wgmma_orders.h"

// Draws the number of an item that nobody has begun. The word holds (launch, next number). A launch finds garbage there:
// the first to draw replaces it and takes the item after those that the blocks begin with. The last to draw leaves 0,
// which is no launch's number, since a graph launches with the same one again and again.
template <class Args>
AT_DEVICE int draw_ticket(const Args &args) {
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
template <class Args>
struct Schedule {
  const Args &args;
  unsigned char *shared;
  int number, round = 0;
  Cursor<TICKET_SLOTS> slot;

  __device__ __forceinline__ Schedule(const Args &arguments, unsigned char *memory)
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

#endif
