#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "autotuner_demo.h"
#ifdef __CUDACC__
#define PLACE static __managed__ __attribute__((aligned(64)))
#else
#define PLACE static __attribute__((aligned(64)))
static int cudaDeviceSynchronize(void) { return 0; }
#endif
enum { BATCH = 2, HEADS = 4, HEADS_KV = 2, ROWS = 24, KEYS = 40, WIDTH = 64, ONE = 0x38, SIXTY_FOUR = 0x68 };
PLACE uint16_t wide[BATCH * HEADS * ROWS * WIDTH];
PLACE uint16_t out[BATCH * HEADS * ROWS * WIDTH];
PLACE uint8_t narrow[BATCH * HEADS * ROWS * WIDTH];
PLACE uint8_t key[BATCH * HEADS_KV * KEYS * WIDTH];
PLACE uint8_t value[BATCH * HEADS_KV * KEYS * WIDTH];
PLACE char workspace[1 << 22];
PLACE float one[BATCH * HEADS_KV] = {1, 1, 1, 1};
/* Queries of 64 in the first column, FP8 or bfloat16, find the first key, whose value alone is 1. */
int main(void) {
  for (int row = 0; row < BATCH * HEADS * ROWS; row++) wide[row * WIDTH] = 0x4280, narrow[row * WIDTH] = SIXTY_FOUR;
  for (int head = 0; head < BATCH * HEADS_KV; head++) key[head * KEYS * WIDTH] = value[head * KEYS * WIDTH] = ONE;
  autotuner_demo_call call = {.key = key, .value = value, .q_descale = one, .k_descale = one, .v_descale = one, .out = out,
                              .batch = BATCH, .heads = HEADS, .seq_q = ROWS, .head_dim = WIDTH, .heads_kv = HEADS_KV,
                              .seq_k = KEYS, .workspace = workspace, .workspace_bytes = sizeof workspace};
  call.dtype = autotuner_demo_BFLOAT16, call.is_causal = 1;
  for (int cache = 0; cache < 2; cache++) {
    call.query = cache ? (void *)wide : narrow;
    call.query_dtype = cache ? call.dtype : autotuner_demo_FLOAT8;
    memset(out, 0, sizeof out);
    const int said = autotuner_demo(&call), failed = cudaDeviceSynchronize();
    const uint32_t bits = (uint32_t)out[(ROWS - 1) * WIDTH] << 16;
    float found;
    memcpy(&found, &bits, sizeof found);
    printf("%s, %.1f\n", failed ? "the launch failed" : autotuner_demo_why(said), found);
  }
  call.query_dtype = autotuner_demo_FLOAT32;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  return 0;
}
