// What is added to the scores of a row, in units of scores that are scaled later.
#ifndef BIAS_H
#define BIAS_H

#include "cuda_element.h"
#include "abi/sdpa_cuda.h"

#if HAS_BIAS

struct RowBias {
  float unit;
#if HAS_NUMBERS
  const element *row;
  int keys;
#else
  float slope;
  int place;
#endif

  // Of the key `more` after `first`, both even, and the next; 0 past the last.
  __device__ __forceinline__ float2 of(int first, int more) const {
#if HAS_NUMBERS
    const int key = first + more;
    if (key + 1 < keys) {
      const float2 pair = unpack(*(const uint32_t *)(row + key));
      return make_float2(kept(pair.x) * unit, kept(pair.y) * unit);
    }
    return make_float2(key < keys ? kept(to_float(row[key])) * unit : 0.0f, 0.0f);
#else
    const float start = slope * (float)(first - place);  // once for many: integers are slow to convert
    return make_float2(fmaf(slope, (float)more, start), fmaf(slope, (float)(more + 1), start));
#endif
  }

  static __device__ __forceinline__ float unit_of(float scale_log2) { return 1.442695041f / scale_log2; }

  // The least numbers of bfloat16 would become -infinity, which hides a key.
  static __device__ __forceinline__ float kept(float x) {
    return DTYPE == AT_BFLOAT16 && x < -1e37f && x > -INFINITY ? -1e37f : x;
  }
};

// Of a query of a head, whose place among the keys this is. `scale_log2` makes powers of two of scores.
AT_DEVICE RowBias row_bias(const void *bias, [[maybe_unused]] const sdpa_strides &stride, [[maybe_unused]] int batch, int head,
                           [[maybe_unused]] int query, [[maybe_unused]] int place, [[maybe_unused]] int keys,
                           float scale_log2) {
  RowBias found;
  found.unit = RowBias::unit_of(scale_log2);
#if HAS_NUMBERS
  found.row = (const element *)bias + (batch * stride.batch + head * stride.head + query * stride.row);
  found.keys = keys;
#else
  found.slope = ((const float *)bias)[head] * found.unit;
  found.place = place;
#endif
  return found;
}

#endif
#endif
