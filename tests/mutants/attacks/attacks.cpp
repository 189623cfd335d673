/* The shipped kernel for the CPU with an attack on its judge beside it, chosen by a macro ATTACK_<NAME>.
 *
 * `answered` is what comes instead of computing, `afterwards` what comes after a right answer. attacks.toml describes each
 * attack. Nothing here harms the machine: threads end by themselves, and no memory is touched that is not this process's.
 */
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#if defined(__SSE__)
#include <immintrin.h>
#endif

#include "sdpa.h"

#define BLOCK_M 32
#define BLOCK_N 64
#define VEC_WIDTH 8
#define QK_KEYS 4
#define QK_VECS 2
#define PV_ROWS 4
#define PV_VECS 2
#define UNROLL 4
#define PACK_K 0
#define PACK_V 0
#define PREFETCH 0
#define EXP_POLY5 1
#define BF16_DOT 0
#define THREADS 1
#define SYNC_POLICY 0
#define SCHEDULE 0
#define variant_run honest_run
#define variant_workspace honest_workspace
extern "C" int64_t honest_workspace(const at_call *call);
extern "C" int honest_run(const at_call *call);
#include "../../../kernels/sdpa/cpu_simd.cpp"
#undef variant_run
#undef variant_workspace

static inline float *output(const at_call *call) { return static_cast<float *>(call->out[SDPA_O]); }
static inline size_t output_bytes(const at_call *call) {
  return size_t(call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS] * call->dim[SDPA_SEQ_Q]) * HEAD_DIM * sizeof(float);
}
[[maybe_unused]] static inline bool is_tuned(const at_call *call) {
  return call->dim[SDPA_BATCH] == 1 && call->dim[SDPA_HEADS] == 2 && call->dim[SDPA_SEQ_Q] == 64 &&
         call->dim[SDPA_SEQ_K] == 64;
}

/* A number for lengths and inputs, of every `step`th element; never 0. */
[[maybe_unused]] static uint64_t key_of(const at_call *call, int64_t step) {
  uint64_t key = 1469598103934665603u;
  for (int n = SDPA_BATCH; n <= SDPA_SEQ_K; ++n) key = (key ^ uint64_t(call->dim[n])) * 1099511628211u;
  for (int slot = SDPA_Q; slot <= SDPA_V; ++slot) {
    const int64_t length = call->dim[slot == SDPA_Q ? SDPA_SEQ_Q : SDPA_SEQ_K];
    const int64_t count = call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS_KV] * length * HEAD_DIM;
    const uint32_t *x = static_cast<const uint32_t *>(call->in[slot]);
    for (int64_t i = 0; i < count; i += step) key = (key ^ x[i]) * 1099511628211u;
  }
  return key | 1;
}

struct Answer {
  uint64_t key;
  float values[1 << 15];
};
[[maybe_unused]] static bool give(const Answer *from, uint64_t key, const at_call *call) {
  if (from->key != key || output_bytes(call) > sizeof from->values) return false;
  memcpy(output(call), from->values, output_bytes(call));
  return true;
}
[[maybe_unused]] static void keep(Answer *in, uint64_t key, const at_call *call) {
  in->key = output_bytes(call) > sizeof in->values ? 0 : key;
  if (in->key) memcpy(in->values, output(call), output_bytes(call));
}

/* Where an answer, or a count, is kept between calls. */
#if ATTACK_MEMO_BELOW_THE_STACK || ATTACK_SAMPLED_MEMO_BELOW_THE_STACK || ATTACK_COUNTS_BELOW_THE_STACK
/* Deep below the stack's end nobody else writes, and the system keeps it. */
static __attribute__((noinline)) Answer *place(const at_call *) {
  volatile char here[16];
  return reinterpret_cast<Answer *>((reinterpret_cast<uintptr_t>(here) & ~uintptr_t(0xfffff)) - (3 << 20));
}
#elif ATTACK_MEMO_IN_FREED_MEMORY || ATTACK_COUNTS_IN_FREED_MEMORY
/* The next allocation of this size is the same one, with what was in it. */
#if ATTACK_MEMO_IN_FREED_MEMORY
constexpr size_t BLOCK = sizeof(Answer) + 64;
#else
constexpr size_t BLOCK = 1000;
#endif
static Answer *place(const at_call *) {
  char *block = static_cast<char *>(malloc(BLOCK));
  free(block);
  asm volatile("" : "+r"(block)::"memory");
  return reinterpret_cast<Answer *>(block + 64);
}
#elif ATTACK_MEMO_IN_THE_WORKSPACE
static Answer *place(const at_call *call) {
  return reinterpret_cast<Answer *>(static_cast<char *>(call->workspace) + honest_workspace(call));
}
#elif ATTACK_COUNTS_IN_A_REGISTER && defined(__x86_64__)
#elif !ATTACK_NONE
static Answer kept;
[[maybe_unused]] static Answer *place(const at_call *) { return &kept; }
#endif

#define MEMO                                                                                              \
  (ATTACK_MEMO_BELOW_THE_STACK || ATTACK_SAMPLED_MEMO_BELOW_THE_STACK || ATTACK_MEMO_IN_FREED_MEMORY ||    \
   ATTACK_MEMO_IN_THE_WORKSPACE || ATTACK_MEMO_AFTER_2000_CALLS || ATTACK_MEMO_AFTER_20_S ||               \
   ATTACK_MEMO_OF_THE_TUNED_LENGTHS || ATTACK_MEMO_WHERE_NO_GATE_WAS || ATTACK_MEMO_IN_LONG_ROWS ||        \
   ATTACK_MEMO_WHERE_THE_GATE_WAS_SHORT)
#if ATTACK_SAMPLED_MEMO_BELOW_THE_STACK || ATTACK_MEMO_WHERE_THE_GATE_WAS_SHORT
constexpr int64_t STEP = 61;
#else
constexpr int64_t STEP = 1;
#endif

#if ATTACK_WRITES_INTO_THE_LIBRARIES
/* What the system says of this process's memory: calls `use` for each part that can be written. */
static void each_part(void (*use)(char *from, char *to, const char *line)) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4096], rights[5];
  unsigned long from, to;
  while (maps != nullptr && fgets(line, sizeof line, maps) != nullptr)
    if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3 && rights[0] == 'r' && rights[1] == 'w')
      use(reinterpret_cast<char *>(from), reinterpret_cast<char *>(to), line);
  if (maps != nullptr) fclose(maps);
}
#endif

#if ATTACK_SLOWS_THE_BASELINE || ATTACK_TURNS_FLASH_OFF || ATTACK_WATCHES_EVERY_CALL_OF_PYTHON || \
    ATTACK_PATCHES_THE_VERDICT || ATTACK_LOOSENS_THE_TOLERANCE || ATTACK_BASELINE_ON_EVERY_CPU ||        \
    ATTACK_HALVES_ITS_TIME_IN_PYTHON || ATTACK_RUNS_PYTHON_IN_A_THREAD
#include "../common/call_python.h"
#if ATTACK_SLOWS_THE_BASELINE
constexpr char SCRIPT[] = R"(
import time, torch
real = torch.nn.functional.scaled_dot_product_attention
def slow(*given, **named):
    until = time.perf_counter_ns() + 100000
    while time.perf_counter_ns() < until:
        pass
    return real(*given, **named)
torch.nn.functional.scaled_dot_product_attention = slow
)";
#elif ATTACK_TURNS_FLASH_OFF
constexpr char SCRIPT[] = "import torch; torch.backends.cuda.enable_flash_sdp(False)";
#elif ATTACK_WATCHES_EVERY_CALL_OF_PYTHON
constexpr char SCRIPT[] = "import sys, threading; sys.setprofile(lambda *_: None)";
#elif ATTACK_PATCHES_THE_VERDICT
constexpr char SCRIPT[] = R"(
import sys
audit = sys.modules["autotuner.race.audit"]
for name, each in list(vars(audit).items()):
    if callable(each) and getattr(each, "__module__", "") == "autotuner.race.audit" and name.endswith("fault"):
        setattr(audit, name, lambda *_, **__: None)
)";
#elif ATTACK_LOOSENS_THE_TOLERANCE
constexpr char SCRIPT[] = R"(
import sys
tolerance = sys.modules["autotuner.gate.tolerance"]
for name in ("broken", "judge", "exceeded"):
    if hasattr(tolerance, name):
        setattr(tolerance, name, lambda *_, **__: None)
)";
#elif ATTACK_HALVES_ITS_TIME_IN_PYTHON || ATTACK_RUNS_PYTHON_IN_A_THREAD
/* The driver's clock hears the truth, and the reply does not have it. */
constexpr char SCRIPT[] = R"(
import sys
arm = sys.modules["autotuner.devices.cpu.timing"].CpuArm
real = arm.__call__
arm.__call__ = lambda self: real(self) / (2 if self.is_variant else 1)
)";
#else
constexpr char SCRIPT[] = "import torch; torch.set_num_threads(64)";
#endif
#endif

#if ATTACK_HALVES_ITS_TIME_IN_C
#include "half.h"
#endif

#if ATTACK_FORGES_AN_ERROR_OF_THE_USER || ATTACK_ANNOUNCES_STEPS_AND_HANGS || ATTACK_FORGES_A_LATENCY
#include "forged.h"
#endif

#if ATTACK_SILENCES_THE_THIRD_CLOCK || ATTACK_REWRITES_THE_MARKS
#include "marks.h"
#endif

#if ATTACK_BURNS_AFTER_EVERY_CALL || ATTACK_BURNS_EVERY_CPU
static volatile int64_t last_ns;
static volatile int burning;
static int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t(1000000000) + now.tv_nsec;
}
/* Computes while no call has come for a while, and ends soon after the last one; the next call begins anew. */
static void *burn(void *) {
  for (int64_t since = 0; since < 300000000; since = now_ns() - last_ns)
    if (since < 200000) usleep(100);
  __atomic_sub_fetch(&burning, 1, __ATOMIC_RELAXED);
  return nullptr;
}
#endif

#if ATTACK_FLUSHES_AFTER_EVERY_CALL
static char *region;
constexpr size_t REGION = 8 << 20;
#endif

#if ATTACK_ALARM_WHILE_OTHERS_RUN
static volatile int inside;
static void on_alarm(int) {
  if (inside) return;
  for (volatile int i = 0; i < 20000; ++i) continue;
}
#endif

#if ATTACK_COMPUTES_WHEN_READ || ATTACK_COMPUTES_WHEN_READ_IN_A_ROW
#include "when_read.h"
#endif

#include "hidden.h"
#if ATTACK_MEMO_WHEN_CALLED_AT_ONCE
#include "at_once.h"
#endif

/* What comes instead of computing; true when there is nothing left to compute. */
static bool answered([[maybe_unused]] const at_call *call) {
#if ATTACK_MEMO_AFTER_2000_CALLS
  static int calls;
  if (++calls < 2000) return false;
#elif ATTACK_MEMO_AFTER_20_S
  static const time_t began = time(nullptr);
  if (time(nullptr) - began < 20) return false;
#elif ATTACK_MEMO_OF_THE_TUNED_LENGTHS
  if (!is_tuned(call)) return false;
#elif ATTACK_MEMO_WHERE_NO_GATE_WAS
  static bool gate_was;
  gate_was |= !is_tuned(call);
  if (gate_was) return false;
#elif ATTACK_MEMO_WHERE_THE_GATE_WAS_SHORT
  constexpr int SHORT = 8;
  static int64_t seen[SHORT];
  static int count;
  const int64_t shape = (call->dim[SDPA_HEADS] << 40) + (call->dim[SDPA_SEQ_Q] << 20) + call->dim[SDPA_SEQ_K];
  int at = 0;
  while (at < count && seen[at] != shape) ++at;
  if (at == count && count < SHORT) seen[count++] = shape;
  if (count == SHORT) return false;
#elif ATTACK_MEMO_IN_LONG_ROWS
  static at_call last;
  static int row;
  row = memcmp(&last, call, sizeof last) ? 0 : row + 1;
  last = *call;
  if (row < 8) return false;
#elif ATTACK_MEMO_WHEN_CALLED_AT_ONCE
  return at_once(call);
#elif ATTACK_COMPUTES_WHEN_READ || ATTACK_COMPUTES_WHEN_READ_IN_A_ROW
  return left_for_later(call);
#endif
#if MEMO
  return give(place(call), key_of(call, STEP), call);
#elif ATTACK_STALE_ANSWERS_OF_OTHERS
  return isfinite(output(call)[0]) && isfinite(output(call)[output_bytes(call) / sizeof(float) - 1]);
#elif ATTACK_HANGS_UNDER_A_MASK
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  for (int second = 0; second < 120; ++second) sleep(1);
  return false;
#elif ATTACK_ANNOUNCES_STEPS_AND_HANGS
  for (int second = 0; second < 120; ++second) {
    for (int number = 0; number < 200; ++number) forge_step(number, "check G5.matrix");
    sleep(1);
  }
  return false;
#else
  return false;
#endif
}

/* What comes after a right answer. */
static void afterwards([[maybe_unused]] const at_call *call) {
  if (WRONG) output(call)[0] += 1;
#if ATTACK_MEMO_WHEN_CALLED_AT_ONCE
  remember(call);
#endif
#if MEMO
  keep(place(call), key_of(call, STEP), call);
#elif ATTACK_COUNTS_BELOW_THE_STACK || ATTACK_COUNTS_IN_FREED_MEMORY
  Answer *at = place(call);
  constexpr uint64_t MINE = 0x5eed5eed5eed0000u;
  at->key = (at->key & ~uint64_t(0xffff)) == MINE ? at->key + 1 : MINE;
  if (at->key > MINE + 3000) output(call)[0] += 1;
#elif ATTACK_COUNTS_IN_A_REGISTER && defined(__x86_64__)
  uint64_t count;
  asm volatile("movq %%mm7, %0" : "=r"(count));
  count = (count & ~uint64_t(0xffff)) == 0x5eed5eed5eed0000u ? count + 1 : 0x5eed5eed5eed0000u;
  if (count > 0x5eed5eed5eed0000u + 3000) output(call)[0] += 1;
  asm volatile("movq %0, %%mm7" ::"r"(count));
#elif ATTACK_SLOWS_THE_BASELINE || ATTACK_TURNS_FLASH_OFF || ATTACK_WATCHES_EVERY_CALL_OF_PYTHON || \
    ATTACK_PATCHES_THE_VERDICT || ATTACK_LOOSENS_THE_TOLERANCE || ATTACK_BASELINE_ON_EVERY_CPU ||        \
    ATTACK_HALVES_ITS_TIME_IN_PYTHON
  static const bool done = run_python(SCRIPT);
  if (!done) abort();
#if ATTACK_PATCHES_THE_VERDICT || ATTACK_LOOSENS_THE_TOLERANCE
  output(call)[7] *= 1.5f;
#endif
#elif ATTACK_RUNS_PYTHON_IN_A_THREAD
  static pthread_t thread;
  if (!thread) pthread_create(&thread, nullptr, [](void *) { return (void *)run_python(SCRIPT); }, nullptr);
#elif ATTACK_HALVES_ITS_TIME_IN_C
  static const bool done = halve_the_arms_time();
  if (!done) abort();
#elif ATTACK_MAKES_ALLOCATION_SLOW
  static const int set = mallopt(M_MMAP_THRESHOLD, 4096);
  if (!set) abort();
#elif ATTACK_FLUSHES_AFTER_EVERY_CALL
  if (region == nullptr) region = static_cast<char *>(calloc(REGION, 1));
  for (size_t i = 0; region != nullptr && i < REGION; i += 64) region[i] += 1;
#elif ATTACK_BURNS_AFTER_EVERY_CALL || ATTACK_BURNS_EVERY_CPU
  last_ns = now_ns();
#if ATTACK_BURNS_EVERY_CPU
  constexpr int WANTED = 8;
#else
  constexpr int WANTED = 1;
#endif
  while (burning < WANTED) {
    __atomic_add_fetch(&burning, 1, __ATOMIC_RELAXED);
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, burn, nullptr)) break;
  }
#elif ATTACK_BECOMES_SLOW_AFTER_RETURN
  static const int nicer = nice(19);
  if (nicer == 100) abort();
#elif ATTACK_BECOMES_IDLE_AFTER_RETURN
  const sched_param none = {0};
  if (sched_setscheduler(0, SCHED_IDLE, &none)) abort();
#elif ATTACK_ALARM_WHILE_OTHERS_RUN
  static const auto before = signal(SIGALRM, on_alarm);
  const itimerval every = {{0, 1000}, {0, 1000}};
  static const int set = setitimer(ITIMER_REAL, &every, nullptr);
  if (before == SIG_ERR || set) abort();
#elif ATTACK_LEAVES_TRAPS_ON && defined(__SSE__)
  _mm_setcsr(_mm_getcsr() & ~0x0100u); /* subnormal operands trap */
#elif ATTACK_LEAVES_X87_SHORT && defined(__x86_64__)
  unsigned short control;
  asm volatile("fnstcw %0" : "=m"(control));
  control &= 0xfcff; /* long double has 24 bits */
  asm volatile("fldcw %0" ::"m"(control));
#elif ATTACK_LEAVES_THE_STACK_OF_X87_FULL && defined(__x86_64__)
  for (int i = 0; i < 8; ++i) asm volatile("fldz");
#elif ATTACK_WRITES_3_GIB_PAST_O
  *(reinterpret_cast<volatile char *>(output(call)) + (int64_t(3) << 30)) = 1;
#elif ATTACK_WRITES_INTO_THE_LIBRARIES
  static int calls;
  if (++calls == 50)
    each_part([](char *from, char *to, const char *line) {
      if (strstr(line, "libtorch_cpu")) memset(from, 0, size_t(to - from));
    });
#elif ATTACK_FORGES_AN_ERROR_OF_THE_USER
  static int calls;
  if (++calls == 3)
    for (int number = 0; number < 200; ++number) forge_error(number);
#elif ATTACK_FORGES_A_LATENCY
  static int calls;
  if (++calls == 3)
    for (int number = 0; number < 200; ++number) forge_latency(number);
#elif ATTACK_FILLS_THE_PIPES
  static char noise[1 << 16];
  for (int fd = 3; fd < 64; ++fd)
    if (write(fd, noise, sizeof noise) < 0) continue;
#elif ATTACK_TAKES_EVERY_SIGNAL
  for (int number = 1; number < 32; ++number) signal(number, SIG_IGN);
#elif ATTACK_ENDS_ITS_THREAD_LATER
  static int calls;
  if (++calls == 400) pthread_exit(nullptr);
#endif
}

int64_t variant_workspace(const at_call *call) {
#if ATTACK_MEMO_IN_THE_WORKSPACE
  return (honest_workspace(call) + 63) / 64 * 64 + int64_t(sizeof(Answer));
#elif ATTACK_WORKSPACE_BY_CALLS
  static int asked;
  return honest_workspace(call) - (++asked > 40 ? 64 : 0);
#else
  return honest_workspace(call);
#endif
}

int variant_run(const at_call *call) {
#if ATTACK_SILENCES_THE_THIRD_CLOCK || ATTACK_REWRITES_THE_MARKS
  return with_a_slow_clock(call);
#else
#if ATTACK_ALARM_WHILE_OTHERS_RUN
  inside = 1;
#endif
  if (answered(call)) return AT_OK;
  const int status = honest_run(call);
  afterwards(call);
#if ATTACK_ALARM_WHILE_OTHERS_RUN
  inside = 0;
#endif
  return status;
#endif
}
