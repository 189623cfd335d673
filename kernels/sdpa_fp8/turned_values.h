// The first kernel: V transposed, since a product of FP8 takes both of its operands along the summed dimension.
//
// Position 4 t + 2 a + e of every 16 keys holds key 8 a + 2 t + e (t of 0 to 3, a and e of 0 and 1). A thread has the
// scores of keys 8 a + 2 t + e in its registers; rounded to bytes in that order they are the left operand of the second
// product, without a shuffle. Softmax does not care for the order of keys, and masks know the true ones.
#ifndef TURNED_VALUES_H
#define TURNED_VALUES_H

#include "cuda_wgmma_fp8.h"
#include "wgmma_fp8_plan.h"

// Sixteen keys of four columns, a word of four columns for each key, to four words of four keys for each column.
AT_DEVICE void turn_16x4(const uint32_t (&keys)[16], uint32_t (&columns)[4][4]) {
#pragma unroll
  for (int t = 0; t < 4; t++) {
    const uint32_t a = keys[2 * t], b = keys[2 * t + 1], c = keys[8 + 2 * t], d = keys[9 + 2 * t];
    const uint32_t low_ab = bytes_of(a, b, 0x5140), high_ab = bytes_of(a, b, 0x7362);
    const uint32_t low_cd = bytes_of(c, d, 0x5140), high_cd = bytes_of(c, d, 0x7362);
    columns[0][t] = bytes_of(low_ab, low_cd, 0x5410);
    columns[1][t] = bytes_of(low_ab, low_cd, 0x7632);
    columns[2][t] = bytes_of(high_ab, high_cd, 0x5410);
    columns[3][t] = bytes_of(high_ab, high_cd, 0x7632);
  }
}

static constexpr int WORDS = HEAD_DIM / 4, VECTORS = HEAD_DIM / 16, SKEW = 4;  // of a row; words after 16 rows

// A block turns FP8_PIECE_KEYS keys of one slice, in rows of CHUNK_KEYS. Keys past the end become 0, whatever lies there.
template <int CHUNK_KEYS>
AT_DEVICE void turn_values(const fp8_args &args) {
  __shared__ __align__(16) uint32_t rows[FP8_PIECE_KEYS * WORDS + FP8_PIECE_KEYS / 16 * SKEW];
  const int pieces = (args.seq_k + FP8_PIECE_KEYS - 1) / FP8_PIECE_KEYS;
  const int slice = blockIdx.x / pieces, piece = blockIdx.x - slice * pieces, me = threadIdx.x;
  const int batch = slice / args.heads_kv, head = slice - batch * args.heads_kv;
#if KEY_LENGTHS
  const int keys = keys_of(args, batch);
#else
  const int keys = args.seq_k;
#endif
  const unsigned char *const v = (const unsigned char *)args.v + batch * args.v_stride.batch + head * args.v_stride.head;
#pragma unroll
  for (int step = 0; step < FP8_PIECE_KEYS * VECTORS / FP8_PIECE_THREADS; step++) {  // all are on their way together
    const int i = step * FP8_PIECE_THREADS + me, row = i / VECTORS, vector = i % VECTORS;
    const int key = piece * FP8_PIECE_KEYS + row;
    uint4 found = make_uint4(0, 0, 0, 0);
    if (key < keys) found = *(const uint4 *)(v + key * args.v_stride.row + vector * 16);
    *(uint4 *)(rows + row * WORDS + row / 16 * SKEW + 4 * vector) = found;
  }
  __syncthreads();
  for (int i = me; i < FP8_PIECE_KEYS / 16 * WORDS; i += FP8_PIECE_THREADS) {
    const int some = i % (FP8_PIECE_KEYS / 16), word = i / (FP8_PIECE_KEYS / 16);
    uint32_t given[16], turned[4][4];
#pragma unroll
    for (int key = 0; key < 16; key++) given[key] = rows[(some * 16 + key) * WORDS + some * SKEW + word];
    turn_16x4(given, turned);
    unsigned char *const to = (unsigned char *)args.turned +
                              ((int64_t)slice * pieces + piece) * (FP8_PIECE_KEYS * HEAD_DIM) +
                              some * 16 / CHUNK_KEYS * (CHUNK_KEYS * HEAD_DIM) + some * 16 % CHUNK_KEYS;
#pragma unroll
    for (int column = 0; column < 4; column++)
      *(uint4 *)(to + (4 * word + column) * CHUNK_KEYS) =
          make_uint4(turned[column][0], turned[column][1], turned[column][2], turned[column][3]);
  }
}

#endif
