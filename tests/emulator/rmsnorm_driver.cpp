// Runs a variant of rmsnorm that is one kernel: unit INPUT OUTPUT seed tokens hidden_size element_bytes eps
//
// INPUT holds X and W one after another; Y goes to OUTPUT. Exits with 3 and a message when the kernel misbehaves.
#include "rmsnorm_cuda.h"

#include <stdlib.h>

#include "memory.h"
#include "scheduler.h"

extern "C" const at_geometry variant_geometry;
extern "C" void variant_kernel(const rmsnorm_args args);

namespace {

using emulator::fail;

rmsnorm_args args;

void check_geometry() {
  const at_geometry &shape = variant_geometry;
  if (shape.abi_version != AT_ABI_VERSION) fail("geometry.abi_version is %d", shape.abi_version);
  if (shape.args_bytes != (int)sizeof(rmsnorm_args)) fail("geometry.args_bytes is %d", shape.args_bytes);
  if (shape.rows < 1 || shape.split < 1 || shape.cluster < 1) fail("geometry: rows, split and cluster are at least 1");
  if (shape.cluster > 16) fail("geometry.cluster is %d", shape.cluster);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 8) fail("usage: %s INPUT OUTPUT seed tokens hidden_size element_bytes eps", argv[0]);
  const uint64_t seed = strtoull(argv[3], nullptr, 10);
  check_geometry();
  args.tokens = atoll(argv[4]);
  args.hidden_size = atoi(argv[5]);
  args.eps = (float)atof(argv[7]);
  const size_t row = (size_t)args.hidden_size * (size_t)atoi(argv[6]), whole = (size_t)args.tokens * row;
  const emulator::Region &x = emulator::place("X", whole, seed), &w = emulator::place("W", row, seed);
  const emulator::Region &y = emulator::place("Y", whole, seed);
  read_tensor(x, argv[1], 0, false);
  read_tensor(w, argv[1], whole, false);
  args.x = x.data;
  args.w = w.data;
  args.y = y.data;
  const at_geometry &shape = variant_geometry;
  const int64_t blocks = (args.tokens + shape.rows - 1) / shape.rows * shape.split;
  emulator::run_grid([] { variant_kernel(args); }, shape, (int)blocks, seed);
  write_tensor(y, argv[2]);
  return 0;
}
