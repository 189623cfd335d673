// What the CPU implementations share: a call, and its rows dealt out to THREADS threads.
#ifndef AUTOTUNER_RMSNORM_CPU_ROWS_H
#define AUTOTUNER_RMSNORM_CPU_ROWS_H

#include "rmsnorm.h"

#include "cpu_element.h"
#include "cpu_pool.h"

struct Rows {
  const element *x, *w;
  element *y;
  int64_t tokens, hidden_size;
  float eps;

  explicit Rows(const at_call *call)
      : x((const element *)call->in[RMSNORM_X]),
        w((const element *)call->in[RMSNORM_W]),
        y((element *)call->out[RMSNORM_Y]),
        tokens(call->dim[RMSNORM_TOKENS]),
        hidden_size(call->dim[RMSNORM_HIDDEN_SIZE]),
        eps((float)call->scalar[RMSNORM_EPS]) {}

  // What a row is multiplied by, from the sum of its squares.
  float factor(float sum) const { return 1.0f / __builtin_sqrtf(sum / (float)hidden_size + eps); }

  // The first row of a thread's part; a part is whole blocks, but for the last.
  int64_t first(int thread, int block) const {
    const int64_t blocks = (tokens + block - 1) / block, row = blocks * thread / THREADS * block;
    return row < tokens ? row : tokens;
  }
};

#endif
