// What a work item is: BLOCK_ROWS query rows of a slice.
#ifndef WGMMA_SCHEDULE_H
#define WGMMA_SCHEDULE_H

#include "wgmma_shape.h"
#include "wgmma_tickets.h"

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

#if WINDOWED
// The first tile that any of these rows sees.
AT_DEVICE int first_tile(const wgmma_args &args, int row, int tiles) {
  const int begin = row - args.window_left;
  return begin > 0 ? least(begin / BLOCK_N, tiles - 1) : 0;
}
#endif

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
  found.first = first_tile(args, found.row, found.tiles);
#endif
  return found;
}

// Tiles that a consumer with these rows sees: those above the diagonal it leaves out.
AT_DEVICE int own_tiles(const wgmma_args &args, const Item &all, int row) {
  if (!HIDES) return all.tiles;
  const int own = least(all.tiles, (row + GROUP_ROWS + keys_after(args) + BLOCK_N - 1) / BLOCK_N);
  return WINDOWED && own <= all.first ? all.first + 1 : own;
}

// The first of a consumer's own tiles. With EARLY_START it sees those before as well: the next item's come first.
AT_DEVICE int own_first([[maybe_unused]] const wgmma_args &args, const Item &all, [[maybe_unused]] int row,
                        [[maybe_unused]] int tiles) {
#if WINDOWED
  if (!EARLY_START) {
    const int first = first_tile(args, row, tiles);
    return first > all.first ? first : all.first;
  }
#endif
  return all.first;
}

#endif
