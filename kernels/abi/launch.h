/* How a variant is launched on the CPU that calls it: it finds nothing there that an earlier launch can have left. Vector
 * and mask registers, the tiles of matrices, what x87 holds and the flags of what happened to numbers are as at a thread's
 * start; how numbers are rounded is left as the caller has it. All of these are free to change in any call. */
#ifndef AUTOTUNER_LAUNCH_H
#define AUTOTUNER_LAUNCH_H

#include "identity.h"

#if defined(__x86_64__)
#include <cpuid.h>

#if __has_attribute(noipa)
#define AT_APART __attribute__((noipa, unused))
#else
#define AT_APART __attribute__((noinline, unused))
#endif

/* XRSTOR of a header that names no part sets those that are asked for to their first state: all that are in use, but for
 * PKRU and the general registers of APX. Tiles may be asked for where they are in use alone. */
AT_APART static void at_forget_registers(void) {
  static int known; /* 1: such parts are kept, 2: and it can be asked which are in use; -1: neither */
  unsigned a, b, c = 0, d, used = ~0u & ~(3u << 17), high;
  if (!known) {
    known = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE) ? 1 : -1;
    if (known > 0 && __get_cpuid_count(13, 1, &a, &b, &c, &d) && (a & 4)) known = 2;
  }
  if (known < 0) return;
  if (known > 1) __asm__ volatile("xgetbv" : "=a"(used), "=d"(high) : "c"(1));
  uint32_t state[144] __attribute__((aligned(64))) = {0};
  uint16_t x87;
  __asm__ volatile("fnstcw %0\n\tstmxcsr %1" : "=m"(x87), "=m"(state[6]));
  state[6] &= ~0x3fu;
  used = (used | 2u) & ~(1u << 9 | 1u << 19);
  __asm__ volatile("xrstor64 %0\n\tfldcw %1" : : "m"(state), "m"(x87), "a"(used), "d"(0) : "memory");
}
#else
static inline void at_forget_registers(void) {}
#endif

static inline int at_launch(const at_identity *variant, const at_call *call) {
  at_forget_registers();
  return variant->run(call);
}

#endif
