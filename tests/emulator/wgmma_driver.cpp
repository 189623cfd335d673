// Runs IMPL = wgmma: unit INPUT OUTPUT seed batch heads seq_q seq_k scale
//
// INPUT holds Q, K and V one after another; O goes to OUTPUT. Exits with 3 and a message when the kernel misbehaves. The
// blocks run one after another, so where blocks share the work, the first to run draws most of it.
#include "sdpa_cuda.h"  // first: it names the op's fields of the geometry

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "scheduler.h"
#include "tensor_map.h"
#include "wgmma_plan.h"

extern "C" const at_geometry variant_geometry;
extern "C" void variant_kernel(const wgmma_args args);

namespace {

using emulator::fail;

constexpr int RESIDENT = 3;  // blocks that the device has room for

wgmma_args args;

void read_arguments(char **words) {
  const at_geometry &shape = variant_geometry;
  if (shape.args_bytes != (int)sizeof(args)) fail("geometry.args_bytes is %d", shape.args_bytes);
  args.launch = 0x12345;
  args.slices = atoi(words[0]) * atoi(words[1]);
  args.slices_at_once = args.slices < 3 ? 1 : args.slices / 3;
  args.last_batch = args.slices / 2 / args.slices_at_once * args.slices_at_once;
  args.seq_q = atoi(words[2]);
  args.seq_k = atoi(words[3]);
  args.row_blocks = (args.seq_q + shape.rows - 1) / shape.rows;
  args.items = args.slices * args.row_blocks;
  args.scale_log2 = (float)(atof(words[4]) * 1.4426950408889634);
}

void fill_map(sdpa_tensor_map &map, const emulator::Region &tensor, int length, int rows) {
  const emulator::TensorMap filled = {.magic = emulator::TENSOR_MAP_MAGIC,
                                      .base = (const uint16_t *)tensor.data,
                                      .head_dim = variant_geometry.head_dim,
                                      .seq = length,
                                      .slices = args.slices,
                                      .rows = rows};
  memcpy(&map, &filled, sizeof filled);
}

// Places Q, K and V with their contents, and O, which is returned.
const emulator::Region &place_tensors(const char *input, uint64_t seed) {
  const size_t row = (size_t)variant_geometry.head_dim * 2, slices = (size_t)args.slices;
  const size_t queries = slices * (size_t)args.seq_q * row, keys = slices * (size_t)args.seq_k * row;
  const emulator::Region &q = emulator::place("Q", queries, seed), &k = emulator::place("K", keys, seed);
  const emulator::Region &v = emulator::place("V", keys, seed), &o = emulator::place("O", queries, seed);
  read_tensor(q, input, 0, false);
  read_tensor(k, input, queries, false);
  read_tensor(v, input, queries + keys, false);
  fill_map(args.q_map, q, args.seq_q, WGMMA_GROUP_ROWS);
  fill_map(args.k_map, k, args.seq_k, variant_geometry.tma_rows);
  fill_map(args.v_map, v, args.seq_k, variant_geometry.tma_rows);
  fill_map(args.o_map, o, args.seq_q, WGMMA_GROUP_ROWS);
  return o;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 9) fail("usage: %s INPUT OUTPUT seed batch heads seq_q seq_k scale", argv[0]);
  const uint64_t seed = strtoull(argv[3], nullptr, 10);
  const at_geometry &shape = variant_geometry;
  read_arguments(argv + 4);
  const emulator::Region &output = place_tensors(argv[1], seed);
  args.tickets = (unsigned long long *)emulator::place("tickets", 64, seed).data;
  const bool all = shape.host[WGMMA_SCHEDULE] == WGMMA_TILE || args.items < RESIDENT;
  emulator::run_grid([] { variant_kernel(args); }, shape, all ? args.items : RESIDENT, seed);
  if (shape.host[WGMMA_SCHEDULE] == WGMMA_DYNAMIC && *args.tickets != 0) fail("the last ticket does not leave 0");
  write_tensor(output, argv[2]);
  return 0;
}
