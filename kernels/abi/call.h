/* A call as it was made, before it is a problem of the op. C11 and C++; neither Python nor torch.
 *
 * An op's header NAME_call.h says what its problem is: AT_OP_PROBLEM(tensors, said, problem), which returns 0 or the
 * reason why there is none, and AT_OP_LOOK_UP(table, problem), the place in the table or the reason why none serves. */
#ifndef AUTOTUNER_CALL_H
#define AUTOTUNER_CALL_H

#include "dispatch.h"

#define AT_CALL_RANK 8
#define AT_OPTIONS 8
#define AT_INT32 3  /* beside the values of DTYPE: the element type of a tensor of integers */
#define AT_FLOAT8 4 /* and e4m3, a byte each */

/* A tensor as it lies; strides in elements. */
typedef struct at_tensor {
  const void *data; /* null: it is not given */
  const void *storage; /* where the memory begins that it is a view of */
  int32_t dtype;       /* below 0: none that variants take */
  int32_t rank;
  int64_t size[AT_CALL_RANK], stride[AT_CALL_RANK];
} at_tensor;

/* What a call says beside its tensors: the options of the op's signature, in order. Yes and no are 1 and 0, a word is its
 * place among those that it may be. */
typedef double at_said[AT_OPTIONS];

static inline int at_item(const at_tensor *tensor) {
  if (tensor->dtype == AT_FLOAT8) return 1;
  return tensor->dtype == AT_FLOAT32 || tensor->dtype == AT_INT32 ? 4 : 2;
}

static inline int at_is_dense(const at_tensor *tensor) {
  int64_t due = 1;
  for (int i = tensor->rank - 1; i >= 0; due *= tensor->size[i--])
    if (tensor->size[i] != 1 && tensor->stride[i] != due) return 0;
  return 1;
}

static inline int at_are_dense(const at_tensor *tensors, int count) {
  for (int i = 0; i < count; i++)
    if (!at_is_dense(&tensors[i])) return 0;
  return 1;
}

/* Gives it the strides of a dense tensor of its sizes. */
static inline void at_lie_dense(at_tensor *tensor) {
  int64_t due = 1;
  for (int i = tensor->rank - 1; i >= 0; due *= tensor->size[i--]) tensor->stride[i] = due;
}

/* Rows are dense, all other strides are multiples of 16 bytes. */
static inline int at_has_dense_rows(const at_tensor *tensor) {
  const int last = tensor->rank - 1;
  if (tensor->stride[last] != 1) return 0;
  for (int i = 0; i < last; i++)
    if (tensor->size[i] > 1 && (tensor->stride[i] < 0 || tensor->stride[i] * at_item(tensor) % 16)) return 0;
  return 1;
}

/* Whether no two elements share a place: each stride, from the smallest on, leads past all that lies within. */
static inline int at_is_apart(const at_tensor *tensor) {
  int64_t within = 1;
  int done[AT_CALL_RANK] = {0};
  for (int turn = 0; turn < tensor->rank; turn++) {
    int least = -1;
    for (int i = 0; i < tensor->rank; i++)
      if (!done[i] && tensor->size[i] > 1 && (least < 0 || tensor->stride[i] < tensor->stride[least])) least = i;
    if (least < 0) return 1;
    if (tensor->stride[least] < within) return 0;
    within += (tensor->size[least] - 1) * tensor->stride[least];
    done[least] = 1;
  }
  return 1;
}

/* Whether a tensor may lie at an address. */
static inline int at_is_aligned(const at_tensor *tensor, const void *address) {
  return (uintptr_t)address % (tensor->dtype == AT_INT32 ? 4 : 16) == 0;
}

/* Strides as variants are given them: where not all tensors are dense, that of a dimension of size 1 is 0. */
static inline void at_strides_of(const at_tensor *tensor, int dense, int64_t *stride) {
  at_tensor lies = *tensor;
  if (dense) at_lie_dense(&lies);
  for (int i = 0; i < tensor->rank && i < AT_MAX_RANK; i++)
    stride[i] = dense ? lies.stride[i] : i == tensor->rank - 1 ? 1 : tensor->size[i] == 1 ? 0 : tensor->stride[i];
}

/* What a variant is given for a problem's tensors, `required` that are always there and `more` that need not be, and an
 * output that lies like `out`; without workspace and stream. The variant finds those of `more` that there are one after
 * another. */
static inline void at_prepared(const at_tensor *tensors, int required, int more, const at_tensor *out,
                               const at_problem *problem, at_call *call) {
  const int dense = at_are_dense(tensors, required);
  for (int i = 0; i < AT_MAX_DIM; i++) call->dim[i] = problem->dim[i];
  for (int i = 0; i < AT_MAX_SCALAR; i++) call->scalar[i] = problem->scalar[i];
  for (int i = 0, to = 0; i < required + more; i++) {
    if (i >= required && !tensors[i].data) continue;
    call->in[to] = tensors[i].data;
    at_strides_of(&tensors[i], i < required ? dense : tensors[i].rank == 1, call->in_stride[to++]);
  }
  call->out[0] = (void *)out->data;
  at_strides_of(out, dense, call->out_stride[0]);
}

#endif
