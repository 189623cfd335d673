/* Tensor maps of attention, for host sides: dimensions, innermost first, (HEAD_DIM, length, batch * heads) of a dense
 * tensor or, with geometry.strided_maps, (HEAD_DIM, length, heads, batch); boxes of 64 columns with the 128-byte swizzle.
 * What is read past the end is 0, what is written there is dropped. */
#ifndef AUTOTUNER_SDPA_MAPS_H
#define AUTOTUNER_SDPA_MAPS_H

#include "sdpa_cuda.h"  // first: it names the op's fields of the geometry

#include "cuda_host.h"

namespace at {

/* What a map is made of. Strides are in elements of 2 bytes, and matter with strided_maps alone. */
struct Matrix {
  const void *base;
  sdpa_strides stride;
  int64_t length, heads, batch;
  int32_t box_rows; /* of one copy */
};

inline sdpa_strides strides_of(const int64_t *of) {
  return {of[SDPA_BATCH_STRIDE], of[SDPA_HEAD_STRIDE], of[SDPA_ROW_STRIDE]};
}

/* Whether a copy can bring rows that lie so: a box has several, so one for all is not served. */
inline bool rows_apart(const sdpa_strides &stride, int64_t length) { return stride.row || length == 1; }

inline CUtensorMapL2promotion l2_promotion(int32_t bytes) {
  if (bytes == 1) return CU_TENSOR_MAP_L2_PROMOTION_NONE;
  if (bytes == 64) return CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
  return bytes == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
}

/* Bytes of a stride of a map, which has none of 0: who has one reads at the coordinate 0. */
inline cuuint64_t map_step(int64_t stride) { return stride ? (cuuint64_t)stride * 2 : 16; }

/* Returns 0 or the driver's error. */
inline int tensor_map(sdpa_tensor_map *map, const Matrix &of, int64_t columns, bool strided) {
  const cuuint64_t row = (cuuint64_t)columns, length = (cuuint64_t)of.length;
  const cuuint64_t heads = (cuuint64_t)of.heads, batch = (cuuint64_t)of.batch;
  cuuint64_t sizes[4] = {row, length, heads, batch};
  cuuint64_t strides[3] = {map_step(of.stride.row), map_step(of.stride.head), map_step(of.stride.batch)};
  if (!strided) sizes[2] = heads * batch, strides[0] = row * 2, strides[1] = row * 2 * length;
  const cuuint32_t box[4] = {64, (cuuint32_t)of.box_rows, 1, 1};
  return at_cuda_tensor_map((CUtensorMap *)map, CU_TENSOR_MAP_DATA_TYPE_UINT16, strided ? 4 : 3, of.base, sizes, strides,
                            box, CU_TENSOR_MAP_SWIZZLE_128B, l2_promotion(geometry().l2_bytes));
}

inline int tensor_map(sdpa_tensor_map *map, const Matrix &of) {
  return tensor_map(map, of, geometry().head_dim, geometry().strided_maps);
}

}  // namespace at

#endif
