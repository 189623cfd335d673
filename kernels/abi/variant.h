/* The C ABI between a variant and whoever calls it.
 *
 * A variant is one source file, compiled once per point of a search space. It includes this header, reads its
 * parameters as macros (docs/reference/kernel-abi.md says how), and defines two functions: variant_workspace and variant_run.
 * Everything else - identity, argument checks, the Python module - is added by the build.
 */
#ifndef AUTOTUNER_VARIANT_H
#define AUTOTUNER_VARIANT_H

#include <stdint.h>

#define AT_ABI_VERSION 2

/* Values of the macro DTYPE: the element type of the op's tensors. */
#define AT_FLOAT32 0
#define AT_BFLOAT16 1
#define AT_FLOAT16 2

/* What variant_run returns. Anything above AT_DEVICE_ERROR is AT_DEVICE_ERROR + the device runtime's own number. */
#define AT_OK 0
#define AT_OUTSIDE_DOMAIN 1 /* lengths this variant does not serve; nothing was launched, nothing was written */
#define AT_NO_WORKSPACE 2   /* workspace missing or smaller than variant_workspace said */
#define AT_NO_THREADS 3     /* the operating system refused a thread */
#define AT_DEVICE_ERROR 1000

#define AT_MAX_IN 8
#define AT_MAX_OUT 4
#define AT_MAX_DIM 8
#define AT_MAX_SCALAR 4
#define AT_MAX_RANK 4

/* One call. The meaning of each slot belongs to the op, whose header says it. Tensors are aligned to 16 bytes, those of
 * integers to their elements; no output overlaps another tensor. Strides are in elements, outermost first; that of a
 * dimension of size 1 is 0 where the op leaves strides to the caller, and the last dimension is dense there too. */
typedef struct at_call {
  const void *in[AT_MAX_IN];
  void *out[AT_MAX_OUT];
  int64_t in_stride[AT_MAX_IN][AT_MAX_RANK];
  int64_t out_stride[AT_MAX_OUT][AT_MAX_RANK];
  int64_t dim[AT_MAX_DIM];
  double scalar[AT_MAX_SCALAR];
  void *workspace; /* aligned to 64 bytes; holds garbage on entry */
  int64_t workspace_bytes;
  void *stream; /* a cudaStream_t on CUDA, null on the CPU */
} at_call;

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of workspace that variant_run needs for these dims (pointers and strides are not set yet). 0 when it needs none. */
int64_t variant_workspace(const at_call *call);

/* Computes the op. Returns AT_OK or one of the codes above. Must be callable from any thread, one call at a time,
 * must read only `in` and write only `out` and `workspace`, and must not print, exit or keep pointers. */
int variant_run(const at_call *call);

#ifdef __cplusplus
}
#endif
#endif
