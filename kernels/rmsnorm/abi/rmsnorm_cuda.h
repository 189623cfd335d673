/* rmsnorm on CUDA: what the device code of a variant includes.
 *
 * A variant defines
 *
 *   AT_GEOMETRY = {.threads = ..., .rows = ..., ...};                     omitted fields are 0
 *   extern "C" __global__ void variant_kernel(const __grid_constant__ rmsnorm_args args)
 *
 * The grid is one-dimensional: ceil(tokens / rows) * split blocks; `split` consecutive blocks share their rows. */
#ifndef AUTOTUNER_RMSNORM_CUDA_H
#define AUTOTUNER_RMSNORM_CUDA_H

#include "geometry.h"
#include "rmsnorm.h"

/* The kernel's one argument. */
typedef struct rmsnorm_args {
  const void *x, *w;
  void *y;
  int64_t tokens;
  int32_t hidden_size;
  float eps;
} rmsnorm_args;

#define AT_GEOMETRY extern "C" __device__ const at_geometry variant_geometry

#endif
