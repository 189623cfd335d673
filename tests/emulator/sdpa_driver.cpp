// Runs a variant of sdpa that is one kernel: unit INPUT OUTPUT seed batch heads seq_q seq_k scale
//
// INPUT holds Q, K and V one after another; O goes to OUTPUT. Exits with 3 and a message when the kernel misbehaves.
#include "sdpa_cuda.h"  // first: it names the op's fields of the geometry

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "scheduler.h"
#include "tensor_map.h"

extern "C" const at_geometry variant_geometry;
extern "C" void variant_kernel(const sdpa_args args);

namespace {

using emulator::fail;

sdpa_args args;

void read_arguments(char **words) {
  args.batch = atoi(words[0]);
  args.heads = atoi(words[1]);
  args.seq_q = atoi(words[2]);
  args.seq_k = atoi(words[3]);
  const double scale = atof(words[4]);
  args.scale = (float)scale;
  args.scale_log2 = (float)(scale * 1.4426950408889634);
}

void check_geometry() {
  const at_geometry &shape = variant_geometry;
  if (shape.abi_version != AT_ABI_VERSION) fail("geometry.abi_version is %d", shape.abi_version);
  if (shape.args_bytes != (int)sizeof(sdpa_args)) fail("geometry.args_bytes is %d", shape.args_bytes);
  if (shape.rows < 1 || shape.split < 1 || shape.cluster < 1) fail("geometry: rows, split and cluster are at least 1");
  if (shape.cluster > 16) fail("geometry.cluster is %d", shape.cluster);
  if (shape.tma_rows > 256) fail("geometry.tma_rows is %d", shape.tma_rows);
  if (shape.fixed_seq_q && shape.fixed_seq_q != args.seq_q) fail("only seq_q %d is served", shape.fixed_seq_q);
  if (shape.fixed_seq_k && shape.fixed_seq_k != args.seq_k) fail("only seq_k %d is served", shape.fixed_seq_k);
}

// Places Q, K and V with their contents, and O, which is returned.
const emulator::Region &place_tensors(const char *input, uint64_t seed) {
  const size_t row = (size_t)variant_geometry.head_dim * 2, slices = (size_t)(args.batch * args.heads);
  const size_t queries = slices * (size_t)args.seq_q * row, keys = slices * (size_t)args.seq_k * row;
  const emulator::Region &q = emulator::place("Q", queries, seed), &k = emulator::place("K", keys, seed);
  const emulator::Region &v = emulator::place("V", keys, seed), &o = emulator::place("O", queries, seed);
  read_tensor(q, input, 0, false);
  read_tensor(k, input, queries, false);
  read_tensor(v, input, queries + keys, false);
  args.q = q.data;
  args.k = k.data;
  args.v = v.data;
  args.o = o.data;
  return o;
}

void fill_map(sdpa_tensor_map &map, const void *base) {
  const at_geometry &shape = variant_geometry;
  const emulator::TensorMap filled = {.magic = emulator::TENSOR_MAP_MAGIC,
                                      .base = (const uint16_t *)base,
                                      .head_dim = shape.head_dim,
                                      .seq = args.seq_k,
                                      .slices = args.batch * args.heads,
                                      .rows = shape.tma_rows};
  static_assert(sizeof filled <= sizeof map);
  memcpy(&map, &filled, sizeof filled);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 9) fail("usage: %s INPUT OUTPUT seed batch heads seq_q seq_k scale", argv[0]);
  const uint64_t seed = strtoull(argv[3], nullptr, 10);
  const at_geometry &shape = variant_geometry;
  read_arguments(argv + 4);
  check_geometry();
  const emulator::Region &output = place_tensors(argv[1], seed);
  if (shape.tma_rows) {
    fill_map(args.k_map, args.k);
    fill_map(args.v_map, args.v);
  }
  const int row_blocks = (args.seq_q + shape.rows - 1) / shape.rows;
  emulator::run_grid([] { variant_kernel(args); }, shape, args.batch * args.heads * row_blocks * shape.split, seed);
  write_tensor(output, argv[2]);
  return 0;
}
