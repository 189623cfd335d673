// What the emulator's launcher puts into the opaque words of an sdpa_tensor_map.
#ifndef TENSOR_MAP_H
#define TENSOR_MAP_H

#include <stdint.h>

namespace emulator {

constexpr uint64_t TENSOR_MAP_MAGIC = 0x70616d5f726f736eull;

struct TensorMap {
  uint64_t magic;
  const uint16_t *base;
  int64_t head_dim, seq, slices;
  int32_t rows;
  int64_t row_stride = 0, slice_stride = 0, batches = 0, batch_stride = 0;  // of a map of four dimensions, in elements

  // Where row y of a slice begins; w: its batch, or -1 with three dimensions.
  int64_t place(int64_t y, int64_t z, int64_t w) const {
    return w < 0 ? (z * seq + y) * head_dim : w * batch_stride + z * slice_stride + y * row_stride;
  }
};

}  // namespace emulator

#endif
