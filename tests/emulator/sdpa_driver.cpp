// Runs a variant of sdpa that is one kernel: unit INPUT OUTPUT seed batch heads seq_q seq_k heads_kv scale, then for each of
// Q, K, V and O its elements, gaps included, and its strides of batch, head and row; then the bytes of lengths and of
// log-sum-exps, 0 for none.
//
// INPUT holds Q, K, V and the lengths one after another; O and the log-sum-exps go to OUTPUT. Exits with 3 and a message
// when the kernel misbehaves.
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
  args.heads_kv = atoi(words[4]);
  const double scale = atof(words[5]);
  args.scale = (float)scale;
  args.scale_log2 = (float)(scale * 1.4426950408889634);
}

size_t read_strides(char **words, sdpa_strides &strides) {
  strides = {atoll(words[1]), atoll(words[2]), atoll(words[3])};
  return (size_t)atoll(words[0]) * 2;
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

struct Outputs {
  const emulator::Region *o, *lse;
};

// Places all tensors, the inputs with their contents.
Outputs place_tensors(const char *input, char **words, uint64_t seed) {
  const size_t sizes[4] = {read_strides(words, args.q_stride), read_strides(words + 4, args.k_stride),
                           read_strides(words + 8, args.v_stride), read_strides(words + 12, args.o_stride)};
  const size_t lengths = (size_t)atoll(words[16]), lse = (size_t)atoll(words[17]);
  const emulator::Region &q = emulator::place("Q", sizes[0], seed), &k = emulator::place("K", sizes[1], seed);
  const emulator::Region &v = emulator::place("V", sizes[2], seed), &o = emulator::place("O", sizes[3], seed);
  read_tensor(q, input, 0, false);
  read_tensor(k, input, sizes[0], false);
  read_tensor(v, input, sizes[0] + sizes[1], false);
  args.q = q.data;
  args.k = k.data;
  args.v = v.data;
  args.o = o.data;
  if (lengths) {
    const emulator::Region &region = emulator::place("lengths", lengths, seed);
    read_tensor(region, input, sizes[0] + sizes[1] + sizes[2], false);
    args.key_lengths = (const int32_t *)region.data;
  }
  Outputs outputs = {&o, nullptr};
  if (lse) {
    outputs.lse = &emulator::place("LSE", lse, seed);
    args.lse = (float *)outputs.lse->data;
  }
  return outputs;
}

// As launch.cpp does: a map has no stride of 0.
int64_t step(int64_t stride) { return stride ? stride : 8; }

void fill_map(sdpa_tensor_map &map, const void *base, const sdpa_strides &strides) {
  const at_geometry &shape = variant_geometry;
  emulator::TensorMap filled = {.magic = emulator::TENSOR_MAP_MAGIC,
                                .base = (const uint16_t *)base,
                                .head_dim = shape.head_dim,
                                .seq = args.seq_k,
                                .slices = args.batch * args.heads_kv,
                                .rows = shape.tma_rows};
  if (shape.strided_maps) {
    filled.slices = args.heads_kv;
    filled.row_stride = step(strides.row);
    filled.slice_stride = step(strides.head);
    filled.batches = args.batch;
    filled.batch_stride = step(strides.batch);
  }
  static_assert(sizeof filled <= sizeof map);
  memcpy(&map, &filled, sizeof filled);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 28) fail("usage: %s INPUT OUTPUT seed ...", argv[0]);
  const uint64_t seed = strtoull(argv[3], nullptr, 10);
  const at_geometry &shape = variant_geometry;
  read_arguments(argv + 4);
  check_geometry();
  const Outputs outputs = place_tensors(argv[1], argv + 10, seed);
  if (shape.tma_rows) {
    fill_map(args.k_map, args.k, args.k_stride);
    fill_map(args.v_map, args.v, args.v_stride);
  }
  const int group = shape.packs_groups ? args.heads / args.heads_kv : 1;
  const int row_blocks = (args.seq_q * group + shape.rows - 1) / shape.rows;
  const int blocks = args.batch * args.heads / group * row_blocks * shape.split;
  args.launch = 7;
  if (shape.block_workspace) {
    const int64_t words = blocks / shape.split * (int64_t)sizeof(sdpa_arrivals);
    args.workspace = emulator::place("workspace", (size_t)(blocks * (int64_t)shape.block_workspace + words), seed).data;
  }
  emulator::run_grid([] { variant_kernel(args); }, shape, blocks, seed);
  args.launch = 8;
  // Another launch finds what this one left, and a graph launches with the same number again.
  for (uint64_t again = 1; shape.block_workspace && again <= 2; again++) {
    emulator::poison_tensor(*outputs.o);
    emulator::run_grid([] { variant_kernel(args); }, shape, blocks, seed + again);
  }
  emulator::write_tensor(*outputs.o, argv[2]);
  if (outputs.lse) emulator::append_tensor(*outputs.lse, argv[2]);
  return 0;
}
