/* The op rmsnorm: Y = X / sqrt(mean(X^2) + eps) * W, the mean over the last dimension.
 *
 * X, Y: (tokens, hidden_size); W: (hidden_size,), all of element type DTYPE. */
#ifndef AUTOTUNER_RMSNORM_H
#define AUTOTUNER_RMSNORM_H

#include "variant.h"

enum { RMSNORM_X, RMSNORM_W };                /* at_call.in */
enum { RMSNORM_Y };                           /* at_call.out */
enum { RMSNORM_TOKENS, RMSNORM_HIDDEN_SIZE }; /* at_call.dim */
enum { RMSNORM_EPS };                         /* at_call.scalar */

#endif
