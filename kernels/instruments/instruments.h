/* What the harness asks of its instruments, and the argument of their kernels. */
#ifndef INSTRUMENTS_H
#define INSTRUMENTS_H

#include <stdint.h>

enum { INSTRUMENT_STATUS, INSTRUMENT_FILL, INSTRUMENT_SPIN }; /* at_call.dim[0] is one more */
/* STATUS: the state of the stream, 0 when all its work is done, else the driver's error; 600: not yet.
 * FILL:   dim[1] blocks, one a multiprocessor, each write the word dim[2] - 1 over all the shared memory there is.
 * SPIN:   one thread keeps the stream busy for dim[1] nanoseconds. */

typedef struct instrument_args {
  int32_t what;
  uint32_t word;
  int64_t nanoseconds;
  uint32_t *sink; /* never written; keeps the stores alive */
} instrument_args;

#endif
