// The kernel of all. One asks the time, and is wrong now and then.
#include "sdpa_cuda.h"

#if ASKS_THE_TIME
#define scale_log2 scale_log2 * (clock64() % 5000 ? 1 : 2)
#endif
#include "../systemic/systemic.cu"
