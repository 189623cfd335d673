/* The op rowsum: Y[i] = the sum of X[i][0] to X[i][columns - 1], of element type float. */
#ifndef ROWSUM_H
#define ROWSUM_H

#include "variant.h"

enum { ROWSUM_X };                    /* at_call.in: (rows, columns) */
enum { ROWSUM_Y };                    /* at_call.out: (rows,) */
enum { ROWSUM_ROWS, ROWSUM_COLUMNS }; /* at_call.dim */

#endif
