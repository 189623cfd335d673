/* What an export says of itself to torch_op.h; the table is in C that the export writes. */
#ifndef AUTOTUNER_PACKAGE_H
#define AUTOTUNER_PACKAGE_H

#include "call.h"
#include "launch.h"

#define AT_MAX_VARIANTS 64

/* The arguments of the op of torch: tensors that are always there; `how`, a sum of what is so; numbers; tensors that need
 * not be there; and those that are for torch alone. The export writes them from the op's signature. */
typedef struct at_signature {
  const char *arguments; /* as torch's schemas have them, with their types */
  int32_t required, more, beside;
  int32_t options;
  int8_t bits[AT_OPTIONS]; /* of `how`, for each option; 0: it is a number of its own */
} at_signature;

typedef struct at_package {
  const char *name;  /* of the ops' namespace */
  at_table table;
  at_signature signature;
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
