/* A call of torch's rms_norm as a problem of the op rmsnorm. C11 and C++. */
#ifndef AUTOTUNER_RMSNORM_CALL_H
#define AUTOTUNER_RMSNORM_CALL_H

#include "call.h"
#include "rmsnorm.h"

/* at_said, in the order of the signature */
enum { RMSNORM_SAID_EPS };

/* at_problem.field */
enum { RMSNORM_DTYPE };

/* The problem of such a call, of X and W: all dimensions of X but the last are tokens. Returns 0, or the reason why there
 * is none. */
static inline int rmsnorm_problem(at_tensor *in, const double *said, at_problem *problem) {
  at_tensor *x = &in[0], *w = &in[1];
  if (x->rank < 1 || w->rank != 1 || x->size[x->rank - 1] != w->size[0]) return AT_SHAPES;
  if (!at_are_dense(in, 2)) return AT_STRIDES;
  int64_t tokens = 1;
  for (int i = 0; i < x->rank - 1; i++) tokens *= x->size[i];
  x->rank = 2, x->size[0] = tokens, x->size[1] = w->size[0];
  at_lie_dense(x);
  const at_problem found = {{tokens, w->size[0]}, {x->dtype}, {said[RMSNORM_SAID_EPS]}};
  *problem = found;
  return 0;
}

#define AT_OP_PROBLEM rmsnorm_problem
#define AT_OP_LOOK_UP at_look_up

#endif
