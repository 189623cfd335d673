// Queries in 16 bits on a cache of FP8, a descale for each head: the kernel of attention in 16 bits, which widens K and V
// on their way to its products (mma_cache.h). mma.cu explains the parameters; those that are not chosen here have one value.
#include "sdpa_fp8_cuda.h"

#include "../sdpa/mma.cu"
