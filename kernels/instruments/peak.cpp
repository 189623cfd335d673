// What one CPU can do at most in float32: multiplies and adds that wait for nothing. The caller times it.
#include "variant.h"

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

enum { CHAINS = 12 };  // independent sums: more than latency times units of any CPU, fewer than there are registers

int64_t variant_workspace(const at_call *) { return 0; }

// CHAINS times dim[0] multiply-adds, a whole vector of them at a time.
int variant_run(const at_call *call) {
  vector sums[CHAINS];
  for (int chain = 0; chain < CHAINS; chain++) sums[chain] = vector{} + (float)chain;
  vector factor = vector{} + 0.999999f, term = vector{} + 1e-6f;
  for (int64_t done = 0; done < call->dim[0]; done += VECTOR_BYTES / sizeof(float)) {
#pragma GCC unroll 12
    for (int chain = 0; chain < CHAINS; chain++) sums[chain] = sums[chain] * factor + term;
    __asm__ volatile("" : "+x"(factor), "+x"(term));  // else the rounds could be computed beforehand
  }
  vector total = {};
  for (int chain = 0; chain < CHAINS; chain++) total += sums[chain];
  __asm__ volatile("" : : "x"(total));
  return AT_OK;
}
