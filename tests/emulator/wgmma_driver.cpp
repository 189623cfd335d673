// Runs IMPL = wgmma, on what sdpa_given.h says. Exits with 3 and a message when the kernel misbehaves. The blocks run one
// after another, so where blocks share the work, the first to run draws most of it.
#include "sdpa_given.h"

#include "wgmma_plan.h"

extern "C" void variant_kernel(const wgmma_args args);

namespace {

using emulator::fail;
using emulator::Given;

constexpr int RESIDENT = 3;  // blocks that the device has room for

wgmma_args args;

// As the host side has it.
bool boxes_reach_bias(const Given &given) {
  if (!variant_geometry.host[WGMMA_HAS_NUMBERS]) return false;
  const sdpa_strides &stride = given.bias_stride;
  const int64_t eighths = stride.row | stride.head | stride.batch | (int64_t)((uintptr_t)given.bias->data / 2);
  return (stride.row || given.seq_q == 1) && eighths % 8 == 0;
}

void fill_arguments(const Given &given) {
  const at_geometry &shape = variant_geometry;
  if (shape.args_bytes != (int)sizeof(args)) fail("geometry.args_bytes is %d", shape.args_bytes);
  args.launch = 0x12345;
  args.slices = given.batch * given.heads;
  args.slices_at_once = args.slices < 3 ? 1 : args.slices / 3;
  args.last_batch = args.slices / 2 / args.slices_at_once * args.slices_at_once;
  args.seq_q = given.seq_q;
  args.seq_k = given.seq_k;
  args.row_blocks = (args.seq_q + shape.rows - 1) / shape.rows;
  args.items = args.slices * args.row_blocks;
  args.window_left = given.window_left;
  args.window_right = given.window_right;
  args.scale = given.before_cap;
  args.scale_log2 = given.scale_log2;
  args.heads = given.heads;
  args.group = given.heads / given.heads_kv;
  for (int tensor = SDPA_Q; tensor <= SDPA_V; tensor++) {
    if (!given.strides[tensor].batch) args.expanded |= WGMMA_ONE_BATCH(tensor);
    if (!given.strides[tensor].head) args.expanded |= WGMMA_ONE_HEAD(tensor);
  }
  memcpy(args.more, given.more, sizeof args.more);
  args.bias_stride = given.bias_stride;
  args.bias_boxes = boxes_reach_bias(given);
  if (given.lse) args.lse = (float *)given.lse->data;
}

void fill_maps(const Given &given) {
  const int keys = variant_geometry.tma_rows, rows = WGMMA_GROUP_ROWS;
  const int batch = given.batch, heads = given.heads, heads_kv = given.heads_kv;
  emulator::fill_map(args.q_map, *given.q, given.strides[0], batch, heads, given.seq_q, rows);
  emulator::fill_map(args.k_map, *given.k, given.strides[1], batch, heads_kv, given.seq_k, keys);
  emulator::fill_map(args.v_map, *given.v, given.strides[2], batch, heads_kv, given.seq_k, keys);
  emulator::fill_map(args.o_map, *given.o, given.strides[3], batch, heads, given.seq_q, rows);
  if (args.bias_boxes)
    emulator::fill_map(args.bias_map, *given.bias, given.bias_stride, batch, heads, given.seq_q, rows, given.seq_k, true);
}

}  // namespace

int main(int argc, char **argv) {
  const Given given = emulator::given_by(argc, argv);
  const at_geometry &shape = variant_geometry;
  fill_arguments(given);
  fill_maps(given);
  args.tickets = (unsigned long long *)emulator::place("tickets", 64, given.seed).data;
  const bool all = shape.host[WGMMA_SCHEDULE] == WGMMA_TILE || args.items < RESIDENT;
  emulator::run_grid([] { variant_kernel(args); }, shape, all ? args.items : RESIDENT, given.seed);
  if (shape.host[WGMMA_SCHEDULE] == WGMMA_DYNAMIC && *args.tickets != 0) fail("the last ticket does not leave 0");
  emulator::write_outputs(given);
  return 0;
}
