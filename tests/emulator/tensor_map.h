// What the emulator's launcher puts into the opaque words of an sdpa_tensor_map.
#ifndef TENSOR_MAP_H
#define TENSOR_MAP_H

#include <stdint.h>

namespace emulator {

constexpr uint64_t TENSOR_MAP_MAGIC = 0x70616d5f726f736eull;

struct TensorMap {
  uint64_t magic;
  const unsigned char *base;
  int64_t head_dim, seq, slices;
  int32_t rows;
  int64_t row_stride = 0, slice_stride = 0, batches = 0, batch_stride = 0;  // of a map of four dimensions, in elements
  int32_t columns = 64, element_bytes = 2;  // of a box; a row of it is as many bytes as its swizzle

  int32_t row_bytes() const { return columns * element_bytes; }

  // Where row y of a slice begins, in elements; w: its batch, or -1 with three dimensions.
  int64_t place(int64_t y, int64_t z, int64_t w) const {
    return w < 0 ? (z * seq + y) * head_dim : w * batch_stride + z * slice_stride + y * row_stride;
  }
};

// Where a byte of a box, or of a matrix in shared memory, lies: chunks of 16 bytes are permuted.
inline uint32_t swizzled(uint32_t offset, int row_bytes) { return offset ^ (offset >> 7 & (row_bytes / 16 - 1)) << 4; }

}  // namespace emulator

#endif
