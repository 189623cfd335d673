#include <stdio.h>
#include "autotuner_demo.h"

int main(void) {
  enum { ROOM = 2 * 2 * 32 * 64 };
  static float q[ROOM] __attribute__((aligned(64))), o[3 * ROOM] __attribute__((aligned(64)));
  static float space[1 << 20] __attribute__((aligned(64)));
  const int64_t outputs[][3] = {{4096, 64, 128}, {8192, 4096, 128}, {0, 64, 128},
                                {4096, 0, 128},  {4096, 64, 64},    {1024, 64, 128}};
  autotuner_demo_call call = {.query = q, .key = q, .value = q, .out = o, .batch = 2, .heads = 2, .heads_kv = 2,
                              .seq_q = 32, .seq_k = 32, .head_dim = 64,
                              .query_stride = {4096, 64, 128}, .key_stride = {4096, 64, 128},
                              .value_stride = {4096, 64, 128}, .workspace = space, .workspace_bytes = sizeof space};
  for (unsigned i = 0; i < sizeof outputs / sizeof *outputs; i++) {
    for (int j = 0; j < 3; j++) call.out_stride[j] = outputs[i][j];
    puts(autotuner_demo_why(autotuner_demo(&call)));
  }
  return 0;
}
