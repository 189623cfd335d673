// What the programs around kernels of attention are given, and where they put it: PROGRAM INPUT OUTPUT seed batch heads
// seq_q seq_k heads_kv scale, then for each of Q, K, V and O its elements, gaps included, and its strides of batch, head and
// row; then the bytes of lengths, of sinks, of the bias and of log-sum-exps, 0 for none, the bias's strides, the sides of the window and the cap. There may be
// five more: the number of a tensor that lies elsewhere for the kernel, its elements there, and its strides there.
//
// INPUT holds Q, K, V, the lengths, the sinks and the bias one after another; O and the log-sum-exps go to OUTPUT.
#ifndef SDPA_GIVEN_H
#define SDPA_GIVEN_H

#include "sdpa_cuda.h"  // first: it names the op's fields of the geometry

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "scheduler.h"
#include "tensor_map.h"

extern "C" const at_geometry variant_geometry;

namespace emulator {

struct Given {
  const char *input, *result;
  uint64_t seed;
  int batch, heads, seq_q, seq_k, heads_kv;
  double scale;
  sdpa_strides strides[4];                  // of Q, K, V and O
  const Region *q, *k, *v, *o;
  const Region *lengths = nullptr, *bias = nullptr, *lse = nullptr;
  sdpa_strides bias_stride = {};
  const void *more[SDPA_MOST - SDPA_MORE] = {};  // as at_call.in from SDPA_MORE on
  int window_left, window_right;
  double cap;
  float before_cap, scale_log2;  // as sdpa_cuda.h says
  int far = -1;                             // the tensor that lies elsewhere, and what it was made from
  const Region *near = nullptr;
  sdpa_strides near_strides;
};

// Copies every row of the tensor that lies elsewhere, to there or back.
inline void copy_far(const Given &given, const Region &there, bool back) {
  const bool of_q = given.far % 3 == 0;
  const auto at = [](const Region &region, const sdpa_strides &stride, int b, int h, int i) {
    return region.data + 2 * (b * stride.batch + h * stride.head + i * stride.row);
  };
  for (int b = 0; b < given.batch; b++)
    for (int h = 0; h < (of_q ? given.heads : given.heads_kv); h++)
      for (int i = 0; i < (of_q ? given.seq_q : given.seq_k); i++) {
        unsigned char *far = at(there, given.strides[given.far], b, h, i);
        unsigned char *near = at(*given.near, given.near_strides, b, h, i);
        memcpy(back ? near : far, back ? far : near, 2 * (size_t)variant_geometry.head_dim);
      }
}

inline void move_far(Given &given, char **words) {
  given.far = atoi(words[0]);
  const Region **tensors[] = {&given.q, &given.k, &given.v, &given.o}, **tensor = tensors[given.far];
  given.near = *tensor;
  given.near_strides = given.strides[given.far];
  given.strides[given.far] = {atoll(words[2]), atoll(words[3]), atoll(words[4])};
  const Region &there = place_far(given.near->name, 2 * (size_t)atoll(words[1]));
  *tensor = &there;
  copy_far(given, there, false);
  if (tensor != &given.o) protect(there);
}

inline void poison_output(const Given &given) {
  poison_tensor(given.far == 3 ? *given.near : *given.o);
  if (given.far == 3) copy_far(given, *given.o, false);
}

inline const Region &filled(const char *name, const Given &given, size_t bytes, size_t &offset) {
  const Region &region = place(name, bytes, given.seed);
  read_tensor(region, given.input, offset, false);
  offset += bytes;
  return region;
}

// Reads the command line and places all tensors, the inputs with their contents.
inline Given given_by(int argc, char **argv) {
  if (argc != 36 && argc != 41) fail("usage: %s INPUT OUTPUT seed ...", argv[0]);
  Given given = {argv[1], argv[2], strtoull(argv[3], nullptr, 10)};
  char **const words = argv + 4, **const places = argv + 10;
  given.batch = atoi(words[0]);
  given.heads = atoi(words[1]);
  given.seq_q = atoi(words[2]);
  given.seq_k = atoi(words[3]);
  given.heads_kv = atoi(words[4]);
  given.scale = atof(words[5]);
  size_t bytes[4], offset = 0;
  for (int i = 0; i < 4; i++) {
    bytes[i] = (size_t)atoll(places[4 * i]) * 2;
    given.strides[i] = {atoll(places[4 * i + 1]), atoll(places[4 * i + 2]), atoll(places[4 * i + 3])};
  }
  given.q = &filled("Q", given, bytes[0], offset);
  given.k = &filled("K", given, bytes[1], offset);
  given.v = &filled("V", given, bytes[2], offset);
  given.o = &place("O", bytes[3], given.seed);
  const size_t lengths = (size_t)atoll(places[16]), lse = (size_t)atoll(places[19]);
  int more = 0;
  if (lengths) given.lengths = &filled("lengths", given, lengths, offset), given.more[more++] = given.lengths->data;
  if (const size_t sinks = (size_t)atoll(places[17])) given.more[more++] = filled("sinks", given, sinks, offset).data;
  if (const size_t bias = (size_t)atoll(places[18]))
    given.bias = &filled("bias", given, bias, offset), given.more[more++] = given.bias->data;
  given.bias_stride = {atoll(places[20]), atoll(places[21]), atoll(places[22])};
  if (lse) given.lse = &place("LSE", lse, given.seed);
  given.window_left = atoi(places[23]);
  given.window_right = atoi(places[24]);
  given.cap = atof(places[25]);
  given.before_cap = (float)(given.scale / (given.cap > 0 ? given.cap : 1));
  given.scale_log2 = (float)((given.cap > 0 ? given.cap : given.scale) * 1.4426950408889634);
  if (argc == 41) move_far(given, argv + 36);
  return given;
}

inline void write_outputs(const Given &given) {
  if (given.far == 3) copy_far(given, *given.o, true);
  write_tensor(given.far == 3 ? *given.near : *given.o, given.result);
  if (given.lse) append_tensor(*given.lse, given.result);
}

// As sdpa_maps.h does: a map has no stride of 0.
inline int64_t map_step(int64_t stride) { return stride ? stride : 8; }

inline void fill_map(sdpa_tensor_map &map, const Region &tensor, const sdpa_strides &strides, int batch, int heads,
                     int length, int rows, int columns = variant_geometry.head_dim,
                     bool strided = variant_geometry.strided_maps) {
  TensorMap filled = {.magic = TENSOR_MAP_MAGIC,
                      .base = tensor.data,
                      .head_dim = columns,
                      .seq = length,
                      .slices = batch * heads,
                      .rows = rows};
  if (strided) {
    filled.slices = heads;
    filled.row_stride = map_step(strides.row);
    filled.slice_stride = map_step(strides.head);
    filled.batches = batch;
    filled.batch_stride = map_step(strides.batch);
  }
  static_assert(sizeof filled <= sizeof map);
  memcpy(&map, &filled, sizeof filled);
}

}  // namespace emulator

#endif
