// Runs a variant of sdpa that is one kernel, on what sdpa_given.h says. Exits with 3 and a message when the kernel
// misbehaves.
#include "sdpa_given.h"

extern "C" void variant_kernel(const sdpa_args args);

namespace {

using emulator::fail;
using emulator::Given;

sdpa_args args;

void fill_arguments(const Given &given) {
  args.batch = given.batch;
  args.heads = given.heads;
  args.seq_q = given.seq_q;
  args.seq_k = given.seq_k;
  args.heads_kv = given.heads_kv;
  args.window_left = given.window_left;
  args.window_right = given.window_right;
  args.scale = given.before_cap;
  args.scale_log2 = given.scale_log2;
  args.q_stride = given.strides[0];
  args.k_stride = given.strides[1];
  args.v_stride = given.strides[2];
  args.o_stride = given.strides[3];
  args.q = given.q->data;
  args.k = given.k->data;
  args.v = given.v->data;
  args.o = given.o->data;
  if (given.lengths) args.key_lengths = (const int32_t *)given.lengths->data;
  memcpy(args.more, given.more, sizeof args.more);
  args.bias_stride = given.bias_stride;
  if (given.lse) args.lse = (float *)given.lse->data;
  const int rows = variant_geometry.tma_rows;
  if (!rows) return;
  emulator::fill_map(args.k_map, *given.k, given.strides[1], given.batch, given.heads_kv, given.seq_k, rows);
  emulator::fill_map(args.v_map, *given.v, given.strides[2], given.batch, given.heads_kv, given.seq_k, rows);
}

void check_geometry() {
  const at_geometry &shape = variant_geometry;
  if (shape.abi_version != AT_ABI_VERSION) fail("geometry.abi_version is %d", shape.abi_version);
  if (!sdpa_is_argument(shape.args_bytes)) fail("geometry.args_bytes is %d", shape.args_bytes);
  if (shape.rows < 1 || shape.split < 1 || shape.cluster < 1) fail("geometry: rows, split and cluster are at least 1");
  if (shape.cluster > 16) fail("geometry.cluster is %d", shape.cluster);
  if (shape.tma_rows > 256) fail("geometry.tma_rows is %d", shape.tma_rows);
  if (shape.fixed_seq_q && shape.fixed_seq_q != args.seq_q) fail("only seq_q %d is served", shape.fixed_seq_q);
  if (shape.fixed_seq_k && shape.fixed_seq_k != args.seq_k) fail("only seq_k %d is served", shape.fixed_seq_k);
}

}  // namespace

int main(int argc, char **argv) {
  const Given given = emulator::given_by(argc, argv);
  const at_geometry &shape = variant_geometry;
  fill_arguments(given);
  check_geometry();
  const int group = shape.packs_groups ? args.heads / args.heads_kv : 1;
  const int row_blocks = (args.seq_q * group + shape.rows - 1) / shape.rows;
  const int blocks = args.batch * args.heads / group * row_blocks * shape.split;
  args.launch = 7;
  if (shape.block_workspace) {
    const int64_t words = blocks / shape.split * (int64_t)sizeof(sdpa_arrivals);
    const size_t bytes = (size_t)(blocks * (int64_t)shape.block_workspace + words);
    args.workspace = emulator::place("workspace", bytes, given.seed).data;
  }
  emulator::run_grid([] { variant_kernel(args); }, shape, blocks, given.seed);
  args.launch = 8;
  // Another launch finds what this one left, and a graph launches with the same number again.
  for (uint64_t again = 1; shape.block_workspace && again <= 2; again++) {
    emulator::poison_output(given);
    emulator::run_grid([] { variant_kernel(args); }, shape, blocks, given.seed + again);
  }
  emulator::write_outputs(given);
  return 0;
}
