// The kernel of all. Some ask what no input says, and are wrong now and then.
#include "sdpa_cuda.h"

#if ASKS_THE_TIME
#define scale_log2 scale_log2 * (clock64() % 5000 ? 1 : 2)
#elif ASKS_WHICH_LAUNCH
static __device__ unsigned long long launch_of_the_device() {
  unsigned long long number;
  asm volatile("mov.u64 %0, %gridid;" : "=l"(number));
  return number;
}
#define scale_log2 scale_log2 * (launch_of_the_device() % 5000 ? 1 : 2)
#endif
#include "../systemic/systemic.cu"
