// Runs IMPL = decode of sdpa_fp8, whose Q has 16 bits, as sdpa_fp8_driver.cpp runs IMPL = wgmma_fp8. Where blocks merge by way
// of the workspace another launch finds what this one left, and a graph launches with the same number again.
#include "sdpa_fp8_cuda.h"  // first: it names the op's fields of the geometry

#include <stdlib.h>

#include "memory.h"
#include "scheduler.h"

extern "C" const at_geometry variant_geometry;
extern "C" void variant_kernel(const sdpa_args args);

namespace {

using emulator::Region;

sdpa_args args;

}  // namespace

int main(int argc, char **argv) {
  if (argc != 28) emulator::fail("usage: %s INPUT OUTPUT seed ...", argv[0]);
  const at_geometry &shape = variant_geometry;
  if (!sdpa_is_argument(shape.args_bytes)) emulator::fail("geometry.args_bytes is %d", shape.args_bytes);
  const uint64_t seed = strtoull(argv[3], nullptr, 10);
  size_t offset = 0;
  const auto given = [&](const char *name, size_t bytes) -> const Region & {
    const Region &region = emulator::place(name, bytes, seed);
    emulator::read_tensor(region, argv[1], offset, false);
    offset += bytes;
    return region;
  };
  args.batch = atoi(argv[4]), args.heads = atoi(argv[5]), args.seq_q = atoi(argv[6]), args.seq_k = atoi(argv[7]);
  args.heads_kv = atoi(argv[8]);
  args.scale_log2 = (float)(atof(argv[9]) * 1.4426950408889634);
  const auto stride = [&](int i) { return sdpa_strides{atoll(argv[11 + 4 * i]), atoll(argv[12 + 4 * i]), atoll(argv[13 + 4 * i])}; };
  const auto elements = [&](int i) { return (size_t)atoll(argv[10 + 4 * i]); };
  args.q_stride = stride(0), args.k_stride = stride(1), args.v_stride = stride(2), args.o_stride = stride(3);
  args.q = given("Q", 2 * elements(0)).data;
  args.k = given("K", elements(1)).data;
  args.v = given("V", elements(2)).data;
  const Region &o = emulator::place("O", 2 * elements(3), seed);
  args.o = o.data;
  for (const void *&descale : args.more) descale = given("descale", 4 * (size_t)(args.batch * args.heads_kv)).data;
  if (const size_t lengths = (size_t)atoll(argv[26])) args.key_lengths = (const int32_t *)given("lengths", lengths).data;
  const size_t lse_bytes = (size_t)atoll(argv[27]);
  const Region *lse = lse_bytes ? &emulator::place("LSE", lse_bytes, seed) : nullptr;
  if (lse) args.lse = (float *)lse->data;
  const int group = shape.packs_groups ? args.heads / args.heads_kv : 1;
  const int blocks = args.batch * args.heads / group * ((args.seq_q * group + shape.rows - 1) / shape.rows) * shape.split;
  if (shape.block_workspace) {
    const int64_t words = blocks / shape.split * (int64_t)sizeof(sdpa_arrivals);
    args.workspace = emulator::place("workspace", (size_t)(blocks * (int64_t)shape.block_workspace + words), seed).data;
  }
  for (uint64_t again = 0; again <= (shape.block_workspace ? 2 : 0); again++) {
    args.launch = again ? 8 : 7;
    emulator::poison_tensor(o);
    emulator::run_grid([] { variant_kernel(args); }, shape, blocks, seed + again);
  }
  emulator::write_tensor(o, argv[2]);
  if (lse) emulator::append_tensor(*lse, argv[2]);
  return 0;
}
