#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_fp16.h>
#include "autotuner_demo.h"

static double at(const __half *x, size_t i) { return (double)__half2float(x[i]); }

static int tried(int heads, int rows, int dim) {
  const size_t each = (size_t)heads * rows * dim;
  __half *x[4];
  for (int t = 0; t < 4; t++)
    if (cudaMallocManaged(&x[t], each * sizeof(__half))) return puts("no memory"), 1;
  for (int t = 0; t < 3; t++)
    for (size_t i = 0; i < each; i++) x[t][i] = __float2half((float)rand() / (float)RAND_MAX * 2 - 1);
  cudaStream_t stream;
  if (cudaStreamCreate(&stream)) return puts("no stream"), 1;
  autotuner_demo_call call = {};
  call.query = x[0], call.key = x[1], call.value = x[2], call.out = x[3];
  call.batch = 1, call.heads = call.heads_kv = heads, call.seq_q = call.seq_k = rows, call.head_dim = dim;
  call.dtype = autotuner_demo_FLOAT16, call.stream = stream;
  call.workspace_bytes = autotuner_demo_workspace(&call);
  if (cudaMalloc(&call.workspace, call.workspace_bytes + 64)) return puts("no memory"), 1;
  const int status = autotuner_demo(&call);
  if (status) return printf("(%d,%d,%d): %s\n", heads, rows, dim, autotuner_demo_why(status)), 1;
  if (cudaStreamSynchronize(stream)) return puts("the launch failed"), 1;
  double worst = 0;
  std::vector<double> score(rows), row(dim);
  for (int trial = 0; trial < 64; trial++) {
    const size_t head = rand() % heads, i = rand() % rows;
    const __half *q = x[0] + (head * rows + i) * dim, *k = x[1] + head * rows * dim, *v = x[2] + head * rows * dim;
    double sum = 0;
    row.assign(dim, 0);
    for (int j = 0; j < rows; j++) {
      double product = 0;
      for (int d = 0; d < dim; d++) product += at(q, d) * at(k, (size_t)j * dim + d);
      sum += score[j] = exp(product / sqrt(dim));
    }
    for (int j = 0; j < rows; j++)
      for (int d = 0; d < dim; d++) row[d] += score[j] / sum * at(v, (size_t)j * dim + d);
    for (int d = 0; d < dim; d++) worst = fmax(worst, fabs(row[d] - at(x[3], (head * rows + i) * dim + d)));
  }
  if (!(worst < 1e-3)) return printf("(%d,%d,%d): off by %g\n", heads, rows, dim, worst), 1;
  return 0;
}

int main() { return tried(8, 512, 64) || tried(32, 2048, 128) || puts("well") < 0; }
