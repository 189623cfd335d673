// Where a slice lies in a tensor, as its tensor map wants to be told. A slice is one head of Q of one batch; heads of Q that
// share one of K and V are neighbours, so each of them finds it by a division.
#ifndef WGMMA_PLACES_H
#define WGMMA_PLACES_H

#include "wgmma_shape.h"

// The last coordinates of a box: in a dense tensor the number of a slice, else its head and its batch.
struct Place {
  int slice, batch;
};

#if STRIDED

AT_DEVICE Place place_of_output(const wgmma_args &args, int slice) {
  const int batch = slice / args.heads;
  return {slice - batch * args.heads, batch};
}

// In `tensor`: SDPA_Q, SDPA_K or SDPA_V.
AT_DEVICE Place place_in(const wgmma_args &args, int tensor, int slice) {
  const Place apart = place_of_output(args, slice);
  const int head = GROUPED && tensor != SDPA_Q ? apart.slice / args.group : apart.slice;
  const bool one_head = args.expanded & WGMMA_ONE_HEAD(tensor), one_batch = args.expanded & WGMMA_ONE_BATCH(tensor);
  return {one_head ? 0 : head, one_batch ? 0 : apart.batch};
}

#else

AT_DEVICE Place place_of_output(const wgmma_args &, int slice) { return {slice, 0}; }

AT_DEVICE Place place_in(const wgmma_args &args, int tensor, int slice) {
  return {GROUPED && tensor != SDPA_Q ? slice / args.group : slice, 0};
}

#endif

AT_DEVICE void load_box(unsigned char *to, const sdpa_tensor_map *map, int column, int row, Place at, uint64_t *arrived) {
  if constexpr (STRIDED)
    tma_load_4d(to, map, column, row, at.slice, at.batch, arrived);
  else
    tma_load(to, map, column, row, at.slice, arrived);
}

AT_DEVICE void store_box(const sdpa_tensor_map *map, const unsigned char *from, int column, int row, Place at) {
  if constexpr (STRIDED)
    tma_store_4d(map, from, column, row, at.slice, at.batch);
  else
    tma_store(map, from, column, row, at.slice);
}

#endif
