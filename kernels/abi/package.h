/* What an export says of itself to torch_op.cpp; the table is in C that the export writes. */
#ifndef AUTOTUNER_PACKAGE_H
#define AUTOTUNER_PACKAGE_H

#include "dispatch.h"

#define AT_MAX_VARIANTS 64

typedef struct at_package {
  const char *name;  /* of the ops' namespace */
  at_table table;
  int32_t on_cuda;         /* 0: the variants are for the CPU */
  int32_t threads;         /* that torch must use, on the CPU */
  int32_t sm;              /* 10 * major + minor of the compute capability, on CUDA */
  int32_t multiprocessors; /* on CUDA */
} at_package;

#ifdef __cplusplus
extern "C"
#else
extern
#endif
const at_package autotuner_package;

#endif
