#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "autotuner_demo.h"

enum { HEADS = 2, LENGTH = 64, WIDTH = 64, ROOM = HEADS * LENGTH * WIDTH };

static void textbook(const autotuner_demo_call *c, const float *q, const float *k, const float *v, double *o) {
  const int n = (int)c->seq_q, keys = c->key_lengths ? *c->key_lengths : n;
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < n; i++) {
      double sum = 0, score[LENGTH], row[WIDTH] = {0};
      for (int j = 0; j < keys; j++) {
        score[j] = 0;
        for (int d = 0; d < WIDTH; d++) score[j] += (double)q[(h * n + i) * WIDTH + d] * k[(h * n + j) * WIDTH + d];
        sum += score[j] = exp(score[j] / sqrt(WIDTH));
      }
      for (int j = 0; j < keys; j++)
        for (int d = 0; d < WIDTH; d++) row[d] += score[j] / sum * v[(h * n + j) * WIDTH + d];
      for (int d = 0; d < WIDTH; d++) o[(h * n + i) * WIDTH + d] = row[d];
    }
}

int main(void) {
  static float tensors[4][ROOM] __attribute__((aligned(64)));
  static double expected[ROOM];
  for (int t = 0; t < 3; t++)
    for (int i = 0; i < ROOM; i++) tensors[t][i] = (float)rand() / (float)RAND_MAX - 0.5f;
  autotuner_demo_call call = {.query = tensors[0], .key = tensors[1], .value = tensors[2], .out = tensors[3],
                              .batch = 1, .heads = HEADS, .heads_kv = HEADS, .head_dim = WIDTH,
                              .dtype = autotuner_demo_FLOAT32};
  const int lengths[] = {32, 50, 64, 32};
  const int32_t keys = 20;
  for (int i = 0; i < 4; i++) {
    call.key_lengths = i == 3 ? &keys : NULL;
    call.seq_q = call.seq_k = lengths[i];
    call.workspace_bytes = autotuner_demo_workspace(&call);
    if (posix_memalign(&call.workspace, 64, call.workspace_bytes + 64)) return 1;
    const int status = autotuner_demo(&call);
    if (status) return printf("%d: %s\n", lengths[i], autotuner_demo_why(status)), 1;
    textbook(&call, tensors[0], tensors[1], tensors[2], expected);
    double worst = 0;
    for (int j = 0; j < HEADS * lengths[i] * WIDTH; j++) worst = fmax(worst, fabs(expected[j] - tensors[3][j]));
    if (!(worst < 1e-5)) return printf("%d: off by %g\n", lengths[i], worst), 1;
    free(call.workspace);
  }
  call.key_lengths = NULL, call.seq_q = call.seq_k = 20;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  call.seq_q = call.seq_k = 32, call.is_causal = 1;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  call.is_causal = 0, call.query = tensors[0] + 1;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  call.query = tensors[0], call.query_stride[0] = 1, call.query_stride[1] = WIDTH + 1, call.query_stride[2] = WIDTH;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  call.query_stride[0] = call.query_stride[1] = call.query_stride[2] = 0, call.seq_q = call.seq_k = 16;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  call.seq_q = call.seq_k = 32;
  const int64_t needed = autotuner_demo_workspace(&call);
  char *const space = aligned_alloc(64, (size_t)(needed / 64 + 2) * 64);
  const struct { void *at; int64_t bytes; } given[] = {
      {NULL, needed}, {space, needed - 1}, {space + 32, needed}, {space, needed}};
  for (int i = 0; i < 4; i++) {
    call.workspace = given[i].at, call.workspace_bytes = given[i].bytes;
    puts(autotuner_demo_why(autotuner_demo(&call)));
  }
  free(space);
  const int statuses[] = {1999, 3, -999, -1001, -2000};
  for (int i = 0; i < 5; i++) puts(autotuner_demo_why(statuses[i]));
  return 0;
}
