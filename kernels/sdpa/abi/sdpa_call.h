/* A call of attention as a problem of the op sdpa, and as what its variants are given. C11 and C++. */
#ifndef AUTOTUNER_SDPA_CALL_H
#define AUTOTUNER_SDPA_CALL_H

#include "dispatch.h"
#include "sdpa.h"

/* at_problem.field */
enum { SDPA_DTYPE, SDPA_HEAD_DIM, SDPA_CAUSAL, SDPA_CORNER, SDPA_WITH_LENGTHS, SDPA_LAYOUT, SDPA_WITH_LSE };

/* A tensor as it lies: (batch, heads, length, head_dim), strides in elements. */
typedef struct sdpa_tensor {
  const void *data;
  const void *storage; /* where the memory begins that it is a view of */
  int64_t size[4], stride[4];
} sdpa_tensor;

static inline int sdpa_is_dense(const sdpa_tensor *tensor) {
  int64_t due = 1;
  for (int i = 3; i >= 0; due *= tensor->size[i--])
    if (tensor->size[i] != 1 && tensor->stride[i] != due) return 0;
  return 1;
}

/* Rows are dense, all other strides are multiples of 16 bytes. */
static inline int sdpa_is_served(const sdpa_tensor *tensor, int item) {
  if (tensor->stride[3] != 1) return 0;
  for (int i = 0; i < 3; i++)
    if (tensor->size[i] > 1 && (tensor->stride[i] < 0 || tensor->stride[i] * item % 16)) return 0;
  return 1;
}

/* Whether no two elements share a place: each stride, from the smallest on, leads past all that lies within. */
static inline int sdpa_is_apart(const sdpa_tensor *tensor) {
  int64_t within = 1;
  int done[4] = {0};
  for (int turn = 0; turn < 4; turn++) {
    int least = -1;
    for (int i = 0; i < 4; i++)
      if (!done[i] && tensor->size[i] > 1 && (least < 0 || tensor->stride[i] < tensor->stride[least])) least = i;
    if (least < 0) return 1;
    if (tensor->stride[least] < within) return 0;
    within += (tensor->size[least] - 1) * tensor->stride[least];
    done[least] = 1;
  }
  return 1;
}

/* Where the tensors lie, by the names of sdpa.h; AT_STRIDES where no variant takes tensors like that. */
static inline int sdpa_layout(const sdpa_tensor *qkv, int item) {
  if (sdpa_is_dense(&qkv[0]) && sdpa_is_dense(&qkv[1]) && sdpa_is_dense(&qkv[2])) return AT_BHSD;
  for (int i = 0; i < 3; i++)
    if (!sdpa_is_served(&qkv[i], item)) return AT_STRIDES;
  return qkv[1].storage == qkv[2].storage && qkv[1].data != qkv[2].data ? AT_PACKED_QKV : AT_BSHD;
}

/* What a call says beside Q, K and V. */
typedef struct sdpa_said {
  int dtype, causal;
  int corner;        /* of a causal mask: AT_TOP_LEFT, as torch's, or AT_BOTTOM_RIGHT */
  int groups;        /* K and V may have fewer heads than Q */
  int lengths;       /* it gives the lengths of keys */
} sdpa_said;

/* The problem of such a call. Returns 0, or the reason why there is none. */
static inline int sdpa_problem(const sdpa_tensor *qkv, const sdpa_said *said, at_problem *problem) {
  const int64_t *q = qkv[0].size, *k = qkv[1].size, *v = qkv[2].size;
  for (int i = 0; i < 4; i++)
    if (k[i] != v[i]) return AT_SHAPES;
  if (q[0] != k[0] || q[3] != k[3]) return AT_SHAPES;
  if (q[1] != k[1] && !said->groups) return AT_GROUPS_UNSAID;
  const int layout = sdpa_layout(qkv, said->dtype == AT_FLOAT32 ? 4 : 2);
  if (layout < 0) return layout;
  const at_problem found = {{q[0], q[1], q[2], k[2], k[1]},
                            {said->dtype, (int32_t)q[3], said->causal, said->causal ? said->corner : AT_TOP_LEFT,
                             said->lengths, layout, 0}};
  *problem = found;
  return 0;
}

/* As at_look_up; where no problem of the table has lengths of keys, that is the reason. */
static inline int sdpa_look_up(const at_table *table, const at_problem *problem) {
  const int place = at_look_up(table, problem), with = problem->field[SDPA_WITH_LENGTHS];
  return place == AT_NOT_TUNED && with && !at_has(table, SDPA_WITH_LENGTHS, 1) ? AT_NO_LENGTHS : place;
}

/* Strides as variants are given them: of a dimension of size 1 it is 0, for tensors of any layout but the dense one. */
static inline void sdpa_strides_of(const sdpa_tensor *tensor, int layout, int64_t *stride) {
  int64_t due = 1;
  for (int i = 3; i >= 0; due *= tensor->size[i--])
    stride[i] = layout == AT_BHSD ? due : i == 3 ? 1 : tensor->size[i] == 1 ? 0 : tensor->stride[i];
}

/* The call without its output, workspace and stream. `lengths`: of keys, null where there are none. */
static inline void sdpa_inputs(const sdpa_tensor *qkv, const void *lengths, const at_problem *problem, double scale,
                               at_call *call) {
  for (int i = 0; i < 5; i++) call->dim[i] = problem->dim[i];
  call->scalar[SDPA_SCALE] = scale;
  for (int i = 0; i < 3; i++) {
    call->in[i] = qkv[i].data;
    sdpa_strides_of(&qkv[i], problem->field[SDPA_LAYOUT], call->in_stride[i]);
  }
  call->in[SDPA_KEY_LENGTHS] = lengths;
  call->in_stride[SDPA_KEY_LENGTHS][0] = lengths != NULL;
}

#endif
