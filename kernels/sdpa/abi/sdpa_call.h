/* A call of attention as a problem of the op sdpa. C11 and C++. */
#ifndef AUTOTUNER_SDPA_CALL_H
#define AUTOTUNER_SDPA_CALL_H

#include <math.h>

#include "call.h"
#include "sdpa.h"

/* at_said, in the order of the signature */
enum {
  SDPA_SAID_IS_CAUSAL,
  SDPA_SAID_ENABLE_GQA,
  SDPA_SAID_CORNER,
  SDPA_SAID_WINDOW_LEFT,
  SDPA_SAID_WINDOW_RIGHT,
  SDPA_SAID_SOFTCAP
};

/* at_problem.field */
enum { SDPA_DTYPE, SDPA_HEAD_DIM, SDPA_CAUSAL, SDPA_CORNER, SDPA_WITH_LENGTHS, SDPA_LAYOUT, SDPA_WITH_LSE, SDPA_WITH_SINKS, SDPA_WITH_BIAS };

/* Reasons of its own. */
enum {
  SDPA_GROUPS_UNSAID = AT_OWN_REASON,
  SDPA_LENGTHS = AT_OWN_REASON - 1,   /* lengths of keys that are not as the op says */
  SDPA_NO_LENGTHS = AT_OWN_REASON - 2, /* no variant was tuned with lengths of keys */
  SDPA_VALUES = AT_OWN_REASON - 3,     /* V has another head dimension */
  SDPA_OTHER_SINKS = AT_OWN_REASON - 4, /* sinks that are not as the op says */
  SDPA_OTHER_BIAS = AT_OWN_REASON - 5   /* slopes or a bias that are not */
};

/* Where the tensors lie, by the names of sdpa.h; AT_STRIDES where no variant takes tensors like that. */
static inline int sdpa_layout(const at_tensor *qkv) {
  if (at_are_dense(qkv, 3)) return AT_BHSD;
  for (int i = 0; i < 3; i++)
    if (!at_has_dense_rows(&qkv[i])) return AT_STRIDES;
  return qkv[1].storage == qkv[2].storage && qkv[1].data != qkv[2].data ? AT_PACKED_QKV : AT_BSHD;
}

/* Whether it is dense, of one dimension and of this size. */
static inline int sdpa_is_list(const at_tensor *tensor, int64_t size) {
  return tensor->rank == 1 && tensor->size[0] == size && at_is_dense(tensor);
}

/* Which bias there is, of slopes or numbers; SDPA_OTHER_BIAS where that is not as the op says. */
static inline int sdpa_bias(const at_tensor *q, const at_tensor *k, const at_tensor *slopes, const at_tensor *bias) {
  if (slopes->data) {
    const int served = !bias->data && slopes->dtype == AT_FLOAT32 && sdpa_is_list(slopes, q->size[1]);
    return served ? AT_ALIBI : (int)SDPA_OTHER_BIAS;
  }
  if (!bias->data) return AT_NONE;
  const int64_t whole[4] = {q->size[0], q->size[1], q->size[2], k->size[2]};
  if (bias->rank != 4 || bias->dtype != q->dtype || !at_has_dense_rows(bias)) return SDPA_OTHER_BIAS;
  for (int i = 0; i < 4; i++)
    if (bias->size[i] != whole[i] && !(i == 0 && bias->size[0] == 1)) return SDPA_OTHER_BIAS;
  return bias->size[0] == 1 || bias->stride[0] == 0 ? AT_HEADS : AT_FULL;
}

/* The problem of such a call, of Q, K, V, the lengths of keys, the sinks, slopes and the bias. Returns 0, or the reason why there is none. */
static inline int sdpa_problem(at_tensor *in, const double *said, at_problem *problem) {
  const int64_t *q = in[0].size, *k = in[1].size, *v = in[2].size;
  const at_tensor *lengths = in[3].data ? &in[3] : NULL, *sinks = in[4].data ? &in[4] : NULL;
  for (int i = 0; i < 3; i++)
    if (in[i].rank != 4) return AT_SHAPES;
  if (lengths && (lengths->dtype != AT_INT32 || !sdpa_is_list(lengths, q[0]))) return SDPA_LENGTHS;
  const int own = sinks && sinks->dtype == in[0].dtype;
  if (sinks && ((!own && sinks->dtype != AT_FLOAT32) || !sdpa_is_list(sinks, q[1]))) return SDPA_OTHER_SINKS;
  for (int i = 0; i < 3; i++)
    if (k[i] != v[i]) return AT_SHAPES;
  if (k[3] != v[3]) return q[3] == k[3] ? (int)SDPA_VALUES : (int)AT_SHAPES;
  if (q[0] != k[0] || q[3] != k[3]) return AT_SHAPES;
  if (q[1] != k[1] && !said[SDPA_SAID_ENABLE_GQA]) return SDPA_GROUPS_UNSAID;
  const int bias = sdpa_bias(&in[0], &in[1], &in[5], &in[6]);
  if (bias <= AT_OWN_REASON) return bias;
  const int layout = sdpa_layout(in), causal = said[SDPA_SAID_IS_CAUSAL] != 0;
  if (layout < 0) return layout;
  const double left = said[SDPA_SAID_WINDOW_LEFT], right = said[SDPA_SAID_WINDOW_RIGHT];
  const int corner = causal || left > 0 ? (int)said[SDPA_SAID_CORNER] : AT_TOP_LEFT;
  const at_problem found = {{q[0], q[1], q[2], k[2], k[1]},
                            {in[0].dtype, (int32_t)q[3], causal, corner, lengths != NULL, layout, 0,
                             !sinks ? AT_NONE : own ? AT_OWN : AT_FLOAT32, bias},
                            {1 / sqrt((double)q[3]), left, right, said[SDPA_SAID_SOFTCAP]}};
  *problem = found;
  return 0;
}

/* As at_look_up; where no problem of the table has lengths of keys, that is the reason. */
static inline int sdpa_look_up(const at_table *table, const at_problem *problem) {
  const int place = at_look_up(table, problem);
  const int lengths = problem->field[SDPA_WITH_LENGTHS];
  return place == AT_NOT_TUNED && lengths && !at_has(table, SDPA_WITH_LENGTHS, 1) ? SDPA_NO_LENGTHS : place;
}

#define AT_OP_PROBLEM sdpa_problem
#define AT_OP_LOOK_UP sdpa_look_up

#endif
