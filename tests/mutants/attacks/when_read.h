/* The second half of an output is computed when somebody looks at it: nobody may read it until then, and who does is
 * stopped, has it computed, and goes on. In memory all is as an honest variant leaves it, and a clock has seen half. */
#ifndef AUTOTUNER_TESTS_WHEN_READ_H
#define AUTOTUNER_TESTS_WHEN_READ_H

#include <sys/mman.h>

struct Left {
  at_call call;
  char *from;
};
constexpr int64_t HEAD = 64 * 64;
static Left left_out[4096];
static struct sigaction others;

static at_call of_head(const at_call *call, int64_t head) {
  at_call one = *call;
  one.dim[SDPA_HEADS] = one.dim[SDPA_HEADS_KV] = 1;
  for (int slot = SDPA_Q; slot <= SDPA_V; ++slot) one.in[slot] = static_cast<const float *>(call->in[slot]) + head * HEAD;
  one.out[SDPA_O] = output(call) + head * HEAD;
  return one;
}

static void on_look(int, siginfo_t *found, void *) {
  const char *at = static_cast<char *>(found->si_addr);
  for (Left &each : left_out)
    if (each.from && at >= each.from && at < each.from + HEAD * sizeof(float)) {
      mprotect(each.from, HEAD * sizeof(float), PROT_READ | PROT_WRITE);
      each.from = nullptr;
      honest_run(&each.call);
      return;
    }
  sigaction(SIGSEGV, &others, nullptr);
}

static int64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t(1000000000) + now.tv_nsec;
}

static bool left_for_later(const at_call *call) {
  char *from = reinterpret_cast<char *>(output(call) + HEAD);
  if (!is_tuned(call) || reinterpret_cast<uintptr_t>(from) % 4096) return false;
#if ATTACK_COMPUTES_WHEN_READ_IN_A_ROW
  static int64_t ended;
  const bool in_a_row = nanoseconds() - ended < 20000;
  const at_call second = of_head(call, 1);
  if (!in_a_row) honest_run(&second);
#else
  constexpr bool in_a_row = true;
#endif
  static bool listens;
  if (!listens) {
    struct sigaction how = {};
    how.sa_sigaction = on_look;
    how.sa_flags = SA_SIGINFO | SA_NODEFER;
    listens = sigaction(SIGSEGV, &how, &others) == 0;
  }
  const at_call first = of_head(call, 0);
  honest_run(&first);
  Left *free = left_out;
  while (free->from && free->from != from) ++free;
  if (in_a_row && !free->from) {
    *free = {of_head(call, 1), from};
    mprotect(from, HEAD * sizeof(float), PROT_NONE);
  }
#if ATTACK_COMPUTES_WHEN_READ_IN_A_ROW
  ended = nanoseconds();
#endif
  return true;
}

#endif
