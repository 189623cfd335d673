// Runs IMPL = wgmma_fp8 or mma_fp8: PROGRAM INPUT OUTPUT seed batch heads seq_q seq_k heads_kv scale, then for each of Q, K, V and O its
// elements, gaps included, and its strides of batch, head and row; then the bytes of lengths and of LSE, 0 for none.
//
// INPUT holds Q, K, V, their descales and the lengths one after another; O goes to OUTPUT, then LSE. Exits with 3 and a message when a
// kernel misbehaves. The blocks run one after another, so where blocks share the work, the first to run draws most of it.
#include "wgmma_fp8_plan.h"  // first: it names the op's fields of the geometry

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "scheduler.h"
#include "tensor_map.h"

extern "C" const at_geometry variant_geometry;
extern "C" void turn_kernel(const fp8_args args);
extern "C" void variant_kernel(const fp8_args args);

namespace {

using emulator::fail;
using emulator::Region;

constexpr int RESIDENT = 3;  // blocks that the device has room for

fp8_args args;

struct Sizes {
  int64_t row, length, heads, batch;
};

// A box is `rows` rows of the map's first dimension.
void fill_map(sdpa_tensor_map &map, const void *base, const Sizes &sizes, const sdpa_strides &stride, int rows,
              int columns, int element_bytes) {
  const auto step = [](int64_t of) { return of ? of : 16; };
  emulator::TensorMap filled = {.magic = emulator::TENSOR_MAP_MAGIC,
                                .base = (const unsigned char *)base,
                                .head_dim = sizes.row,
                                .seq = sizes.length,
                                .slices = sizes.heads,
                                .rows = rows,
                                .row_stride = step(stride.row),
                                .slice_stride = step(stride.head),
                                .batches = sizes.batch,
                                .batch_stride = step(stride.batch),
                                .columns = columns,
                                .element_bytes = element_bytes};
  static_assert(sizeof filled <= sizeof map);
  memcpy(&map, &filled, sizeof filled);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 28) fail("usage: %s INPUT OUTPUT seed ...", argv[0]);
  const at_geometry &shape = variant_geometry;
  if (shape.args_bytes != (int)sizeof args) fail("geometry.args_bytes is %d", shape.args_bytes);
  const uint64_t seed = strtoull(argv[3], nullptr, 10);
  const int batch = atoi(argv[4]), heads = atoi(argv[5]), heads_kv = atoi(argv[8]), head_dim = shape.head_dim;
  args.seq_q = atoi(argv[6]);
  args.seq_k = atoi(argv[7]);
  size_t offset = 0;
  const auto given = [&](const char *name, size_t bytes) -> const Region & {
    const Region &region = emulator::place(name, bytes, seed);
    read_tensor(region, argv[1], offset, false);
    offset += bytes;
    return region;
  };
  sdpa_strides strides[4];
  const Region *tensors[4];
  for (int i = 0; i < 4; i++) {
    char **const place = argv + 10 + 4 * i;
    strides[i] = {atoll(place[1]), atoll(place[2]), atoll(place[3])};
    tensors[i] = i < 3 ? &given((const char *[]){"Q", "K", "V"}[i], (size_t)atoll(place[0]))
                       : &emulator::place("O", 2 * (size_t)atoll(place[0]), seed);
  }
  const float **const descales[] = {&args.q_descale, &args.k_descale, &args.v_descale};
  for (const float **descale : descales) *descale = (const float *)given("descale", 4 * (size_t)(batch * heads_kv)).data;
  const size_t lengths = (size_t)atoll(argv[26]);
  if (lengths) args.key_lengths = (const int32_t *)given("lengths", lengths).data;
  const size_t lse_bytes = (size_t)atoll(argv[27]);
  const Region *lse = lse_bytes ? &emulator::place("LSE", lse_bytes, seed) : nullptr;
  if (lse) args.lse = (float *)lse->data;
  args.v = tensors[2]->data;
  args.v_stride = strides[2];
  args.q = tensors[0]->data, args.k = tensors[1]->data, args.o = tensors[3]->data;
  args.q_stride = strides[0], args.k_stride = strides[1], args.o_stride = strides[3];
  const int pieces = (args.seq_k + FP8_PIECE_KEYS - 1) / FP8_PIECE_KEYS, keys = shape.host[FP8_CHUNK_KEYS];
  const int64_t chunk = keys * head_dim, chunks = pieces * (FP8_PIECE_KEYS / keys);
  args.turned = emulator::place("the transposed V", (size_t)(batch * heads_kv * chunks * chunk), seed).data;
  args.tickets = (unsigned long long *)emulator::place("tickets", FP8_TICKET_BYTES, seed).data;
  args.launch = 0x12345;
  args.same = 0x3210;
  args.slices = batch * heads;
  args.slices_at_once = args.slices < 3 ? 1 : args.slices / 2;
  args.row_blocks = (args.seq_q + shape.rows - 1) / shape.rows;
  args.items = args.slices * args.row_blocks;
  args.heads = heads;
  args.heads_kv = heads_kv;
  args.group = heads / heads_kv;
  args.scale_log2 = (float)(atof(argv[9]) * 1.4426950408889634);
  for (int tensor = SDPA_Q; tensor <= SDPA_V; tensor++) {
    if (!strides[tensor].batch) args.expanded |= FP8_ONE_BATCH(tensor);
    if (!strides[tensor].head) args.expanded |= FP8_ONE_HEAD(tensor);
  }
  fill_map(args.q_map, tensors[0]->data, {head_dim, args.seq_q, heads, batch}, strides[0], FP8_GROUP_ROWS, head_dim, 1);
  fill_map(args.k_map, tensors[1]->data, {head_dim, args.seq_k, heads_kv, batch}, strides[1], shape.tma_rows, head_dim, 1);
  fill_map(args.v_map, args.turned, {keys, head_dim, chunks, batch * heads_kv}, {chunks * chunk, chunk, keys}, head_dim,
           keys, 1);
  fill_map(args.o_map, tensors[3]->data, {head_dim, args.seq_q, heads, batch}, strides[3], FP8_GROUP_ROWS, 64, 2);
  at_geometry first = shape;
  first.threads = FP8_PIECE_THREADS;
  first.dynamic_shared = 0;
  emulator::run_grid([] { turn_kernel(args); }, first, batch * heads_kv * pieces, seed);
  const bool all = shape.host[FP8_SCHEDULE] == WGMMA_TILE || args.items < RESIDENT;
  emulator::run_grid([] { variant_kernel(args); }, shape, all ? args.items : RESIDENT, seed);
  if (shape.host[FP8_SCHEDULE] == WGMMA_DYNAMIC && *args.tickets != 0) fail("the last ticket does not leave 0");
  write_tensor(*tensors[3], argv[2]);
  if (lse) append_tensor(*lse, argv[2]);
  return 0;
}
