/* What the host sides of the mutants on CUDA share: the kernel's argument, and the driver's functions. */
#ifndef AUTOTUNER_TESTS_CUDA_CALL_H
#define AUTOTUNER_TESTS_CUDA_CALL_H

#include <dlfcn.h>

/* A function of libcuda by its name in cuda.h, where a macro may give it another. */
#define NAMED(function) #function
#define DRIVER(function) ((decltype(&function))dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), NAMED(function)))

/* Of dense tensors with as many heads of K and V as of Q, without a log-sum-exp. */
inline sdpa_args arguments(const at_call *call) {
  const int64_t *dim = call->dim;
  sdpa_args args = {};
  args.q = call->in[SDPA_Q];
  args.k = call->in[SDPA_K];
  args.v = call->in[SDPA_V];
  args.o = call->out[SDPA_O];
  args.workspace = call->workspace;
  args.batch = (int32_t)dim[SDPA_BATCH];
  args.heads = (int32_t)dim[SDPA_HEADS];
  args.seq_q = (int32_t)dim[SDPA_SEQ_Q];
  args.seq_k = (int32_t)dim[SDPA_SEQ_K];
  args.scale = (float)call->scalar[SDPA_SCALE];
  args.scale_log2 = (float)(call->scalar[SDPA_SCALE] * 1.4426950408889634);
  return args;
}

#endif
