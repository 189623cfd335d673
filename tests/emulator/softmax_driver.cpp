// Runs the softmax kernel of IMPL = cublas: unit INPUT OUTPUT seed rows chunk_rows first_row keys pitch
//
// INPUT holds the scores; the probabilities go to OUTPUT. They are the same memory where a score is an element.
#include "sdpa_cuda.h"  // first: it names the op's fields of the geometry

#include <stdlib.h>

#include "cublas_plan.h"
#include "memory.h"
#include "scheduler.h"

extern "C" const at_geometry variant_geometry;
extern "C" void variant_kernel(const softmax_args args);

namespace {

softmax_args args;

}  // namespace

int main(int argc, char **argv) {
  if (argc != 9) emulator::fail("usage: %s INPUT OUTPUT seed rows chunk_rows first_row keys pitch", argv[0]);
  const uint64_t seed = strtoull(argv[3], nullptr, 10);
  const at_geometry &shape = variant_geometry;
  if (shape.args_bytes != (int)sizeof args) emulator::fail("geometry.args_bytes is %d", shape.args_bytes);
  args.rows = atoi(argv[4]);
  args.chunk_rows = atoi(argv[5]);
  args.first_row = atoi(argv[6]);
  args.keys = atoi(argv[7]);
  args.pitch = atoi(argv[8]);
  const bool in_place = shape.host[CUBLAS_SCORE_BYTES] == 2;
  const size_t elements = (size_t)(args.rows * args.pitch);
  const emulator::Region &scores =
      emulator::place("S", elements * (size_t)shape.host[CUBLAS_SCORE_BYTES], seed);
  const emulator::Region &probabilities = in_place ? scores : emulator::place("P", elements * 2, seed);
  read_tensor(scores, argv[1], 0, in_place);
  args.scores = scores.data;
  args.probabilities = probabilities.data;
  emulator::run_grid([] { variant_kernel(args); }, shape, (args.rows + shape.rows - 1) / shape.rows, seed);
  write_tensor(probabilities, argv[2]);
  return 0;
}
