/* Takes a SIZE and works with another: G0.identity must notice. */
#include "sdpa.h"

#undef SIZE
#define SIZE 5

int64_t variant_workspace(const at_call *) { return SIZE; }
int variant_run(const at_call *) { return AT_OK; }
