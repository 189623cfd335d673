/* Right attention that cheats the clock in one way, chosen by a macro MUTANT_<NAME>: each computes what a call asks for
 * when it is called for the first time, and something less when it is called again, or changes what time seems to be.
 *
 * `shortcut` is what a mutant does instead of computing; it says whether there is nothing left to compute. `afterwards`
 * comes after the result. ../expected.toml describes each mutant. Nothing here harms the machine: threads sleep, or end
 * by themselves, soon after the last call.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "memo.h"
#if MUTANT_ASKS_WHO_CALLS || MUTANT_ASKS_WHETHER_IT_IS_AUDITED || MUTANT_PATCHES_THE_CLOCK || \
    MUTANT_PATCHES_BOTH_CLOCKS
#include "../common/call_python.h"
#endif
#if MUTANT_PATCHES_THE_VDSO || MUTANT_INTERPOSES_THE_CLOCK || MUTANT_INTERPOSES_AND_CATCHES_UP
#define CATCHES_UP MUTANT_INTERPOSES_AND_CATCHES_UP
#include "slow_clock.h"
#endif
#if MUTANT_PATCHES_THE_CLOCK || MUTANT_PATCHES_BOTH_CLOCKS
#include "slow_python.h"
#endif

namespace {

/* All that keep answers in static memory and find them by what the inputs hold. */
#define MUTANT_MEMO \
  (MUTANT_MEMO_BY_SAMPLED_ELEMENTS || MUTANT_MEMO_BY_CHECKSUM || MUTANT_MEMO_OF_LAST_2 || MUTANT_MEMO_OF_LAST_16)
#if MUTANT_MEMO || MUTANT_MEMO_BY_ADDRESS
#if MUTANT_MEMO_OF_LAST_16
Memo<16> memo;
#elif MUTANT_MEMO_OF_LAST_2
Memo<2> memo;
#else
Memo<1> memo;
#endif
[[maybe_unused]] uint64_t key;
#endif

/* All that know whether a call follows another one without anything in between. */
#define MUTANT_ROW                                                                            \
  (MUTANT_LESS_WHEN_CALLED_AGAIN || MUTANT_WORKS_ON_AFTER_RETURN || MUTANT_BEGUN_BEFORE_THE_CALL || \
   MUTANT_BURNS_BESIDE_THE_BASELINE || MUTANT_PATCHES_THE_CLOCK || MUTANT_PATCHES_BOTH_CLOCKS)
#if MUTANT_ROW
Row row;
#endif

[[maybe_unused]] void start(void *(*work)(void *)) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, work, nullptr) == 0) pthread_detach(thread);
}

/* Every other CPU of the machine. */
[[maybe_unused]] cpu_set_t other_cpus() {
  cpu_set_t others;
  memset(&others, 0xff, sizeof others);
  CPU_CLR(unsigned(sched_getcpu()), &others);
  return others;
}

/* Lets a thread run there. */
[[maybe_unused]] void leave_the_cpu() {
  const cpu_set_t others = other_cpus();
  sched_setaffinity(0, sizeof others, &others);
}

/* Some rows of all heads, with packed K and V at `packed`. */
[[maybe_unused]] void compute_rows(const at_call *call, int64_t first, int64_t step, element *out, float *packed) {
  const int64_t seq_q = call->dim[SDPA_SEQ_Q];
  for (int64_t slice = 0; slice < slices(call); ++slice) {
    pack_slice(call, slice, packed, packed + packed_floats(call));
    for (int64_t i = first; i < seq_q; i += step)
      right_rows(call, slice, i, i + 1, packed, packed + packed_floats(call), out);
  }
}

#if MUTANT_MEMO_OF_SLICES_UP_TO_SIGNS
/* The answers for the last slices, found wherever a slice is now and whatever signs its columns have: that is what a race
 * changes between its samples. Where columns of V have other signs, those of O have them too. */
struct SliceMemo {
  static constexpr int COUNT = 64;
  struct Kept {
    uint64_t key = 0;
    size_t count = 0;
    float *answer = nullptr;
    bool negative[D] = {};
  } kept[COUNT];
  int next = 0;

  static const element *part(const at_call *call, int slot, int64_t slice) {
    return static_cast<const element *>(call->in[slot]) + slice * (elements_of(call, slot) / slices(call));
  }
  static uint64_t key_of_slice(const at_call *call, int64_t slice) {
    uint64_t key = 1469598103934665603u;
    for (int slot = SDPA_Q; slot <= SDPA_V; ++slot) {
      const element *x = part(call, slot, slice);
      for (int64_t i = 0; i < elements_of(call, slot) / slices(call); ++i) {
        const float value = fabsf(widen(x[i]));
        uint32_t bits;
        memcpy(&bits, &value, 4);
        key = (key ^ (bits + (key >> 32))) * 1099511628211u;
      }
    }
    return key | 1;
  }
  bool give(uint64_t key, const at_call *call, int64_t slice) const {
    const size_t count = size_t(elements_of(call, SDPA_Q) / slices(call));
    const element *v = part(call, SDPA_V, slice);
    element *o = output(call) + slice * int64_t(count);
    for (const Kept &each : kept) {
      if (each.key != key || each.count != count) continue;
      for (size_t i = 0; i < count; ++i) {
        const bool turned = (widen(v[i % D]) < 0) != each.negative[i % D];
        o[i] = narrow(turned ? -each.answer[i] : each.answer[i]);
      }
      return true;
    }
    return false;
  }
  void take(uint64_t key, const at_call *call, int64_t slice) {
    const size_t count = size_t(elements_of(call, SDPA_Q) / slices(call));
    Kept &into = kept[next++ % COUNT];
    free(into.answer);
    into.answer = static_cast<float *>(malloc(count * sizeof(float)));
    into.key = into.answer ? key : 0;
    into.count = count;
    const element *o = output(call) + slice * int64_t(count);
    for (size_t i = 0; into.answer && i < count; ++i) into.answer[i] = widen(o[i]);
    for (int d = 0; d < D; ++d) into.negative[d] = widen(part(call, SDPA_V, slice)[d]) < 0;
  }
} slice_memo;
#endif

[[maybe_unused]] float *own_workspace(const at_call *call) { return static_cast<float *>(call->workspace); }

#if MUTANT_WORKS_ON_AFTER_RETURN
/* A thread that computes the call it is given; the one after waits for it. */
struct Worker {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  at_call call = {};
  bool busy = false, runs = false;

  static void *work(void *argument) {
    Worker *self = static_cast<Worker *>(argument);
    leave_the_cpu();
    pthread_mutex_lock(&self->lock);
    for (;;) {
      while (!self->busy) pthread_cond_wait(&self->changed, &self->lock);
      pthread_mutex_unlock(&self->lock);
      right_attention(&self->call, output(&self->call));
      pthread_mutex_lock(&self->lock);
      self->busy = false;
      pthread_cond_broadcast(&self->changed);
    }
    return nullptr;
  }
  void give(const at_call *todo) {
    pthread_mutex_lock(&lock);
    if (!runs) {
      pthread_t thread;
      runs = pthread_create(&thread, nullptr, work, this) == 0;
    }
    call = *todo;
    busy = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
  }
  void wait() {
    pthread_mutex_lock(&lock);
    while (busy) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
  }
} worker;
#endif

#if MUTANT_BEGUN_BEFORE_THE_CALL
/* While calls come in a row, a thread looks at the inputs of the last one and computes what a call on them will be asked
 * for. It ends before anybody can have freed them. */
constexpr int64_t WATCHED_NS = 2000000;
Memo<1> ahead;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `ahead` and `watched` */
at_call watched;
volatile bool watching = false, in_a_call = false;
void *look_ahead(void *) {
  leave_the_cpu();
  uint64_t known = 0;
  while (row.length > 0 && (in_a_call || now_ns() - row.ended < WATCHED_NS)) {
    pthread_mutex_lock(&lock);
    at_call call = watched;
    pthread_mutex_unlock(&lock);
    const uint64_t key = key_of(&call, 0);
    if (key != known) {
      call.out[SDPA_O] = malloc(output_bytes(&call));
      call.workspace = malloc(size_t(right_workspace(&call)));
      right_attention(&call, output(&call));
      pthread_mutex_lock(&lock);
      if (key_of(&call, 0) == key) ahead.take(known = key, &call);
      pthread_mutex_unlock(&lock);
      free(call.out[SDPA_O]);
      free(call.workspace);
    }
    usleep(100);
  }
  watching = false;
  return nullptr;
}
#endif

#if MUTANT_BURNS_BESIDE_THE_BASELINE
/* A thread on the variant's own CPU that computes whenever no call has come for some time, and not for much longer. */
constexpr int64_t FIRST_NS = 300000, LAST_NS = 60000000, PATIENCE_NS = 500000000;
volatile bool burning = false, called = false;
void *burn(void *) {
  for (;;) {
    const int64_t since = now_ns() - row.ended;
    if (since > PATIENCE_NS) break;
    if (called || since < FIRST_NS || since > LAST_NS) usleep(200);
  }
  burning = false;
  return nullptr;
}
#endif

#if MUTANT_ANSWER_IN_FREED_MEMORY
/* Blocks of the size of O, as the reference's answer has and as this library leaves one behind itself. */
constexpr int BLOCKS = 8;
bool is_right(const at_call *call, int64_t slice, int64_t i, const element *answer) {
  element right[D];
  const int64_t at = slice * call->dim[SDPA_SEQ_Q] + i;
  float *packed = own_workspace(call), off = 0, largest = 0;
  pack_slice(call, slice, packed, packed + packed_floats(call));
  right_row(static_cast<const element *>(call->in[SDPA_Q]) + at * D, packed, packed + packed_floats(call),
            visible_keys(i, call->dim[SDPA_SEQ_K]), float(call->scalar[SDPA_SCALE]), right);
  for (int d = 0; d < D; ++d) off = fmaxf(off, fabsf(widen(answer[at * D + d]) - widen(right[d])));
  for (int d = 0; d < D; ++d) largest = fmaxf(largest, fabsf(widen(right[d])));
  return off <= 1e-5f * largest && all_finite(answer + at * D, D);
}
bool look_through_freed_memory(const at_call *call) {
  void *blocks[BLOCKS] = {};
  bool found = false;
  const int64_t last = call->dim[SDPA_SEQ_Q] - 1;
  for (void *&block : blocks) {
    if (last < 1 || posix_memalign(&block, 64, output_bytes(call))) break;
    const element *answer = static_cast<const element *>(block);
    found = all_finite(answer + D, elements_of(call, SDPA_Q) - D);
    for (int64_t slice = 0; found && slice < slices(call); ++slice) found = is_right(call, slice, last, answer);
    if (!found) continue;
    memcpy(output(call) + D, answer + D, output_bytes(call) - D * sizeof(element));
    float *packed = own_workspace(call);
    pack_slice(call, 0, packed, packed + packed_floats(call));
    right_rows(call, 0, 0, 1, packed, packed + packed_floats(call), output(call)); /* the heap writes there */
    break;
  }
  for (void *block : blocks) free(block);
  return found;
}
void leave_in_freed_memory(const at_call *call) {
  void *block;
  if (posix_memalign(&block, 64, output_bytes(call))) return;
  memcpy(block, output(call), output_bytes(call));
  asm volatile("" ::"r"(block) : "memory"); /* no copy is left out because nobody reads it */
  free(block);
}
#endif

#if MUTANT_ASKS_WHO_CALLS || MUTANT_ASKS_WHETHER_IT_IS_AUDITED
/* Whether a function of one of the harness's files is among the callers. */
constexpr char ASK_PYTHON[] = R"(
import ctypes, sys

def called_from(ending):
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(ending):
            return True
        frame = frame.f_back
    return False

ctypes.c_int.from_address(%llu).value = called_from("%s")
)";
bool called_from(const char *file) {
  char script[sizeof ASK_PYTHON + 128];
  static volatile int found;
  found = 0;
  snprintf(script, sizeof script, ASK_PYTHON, (unsigned long long)(uintptr_t)&found, file);
  return run_python(script) && found;
}
#endif

#if MUTANT_MEMO_BY_ADDRESS
constexpr int64_t SOON_NS = 12000; /* so soon after a call nobody has written much */
struct {
  const void *in[AT_MAX_IN];
  int64_t ns;
} answered;
#endif

#if MUTANT_LEAVES_ITS_CPU
/* The odd rows, by a second thread on whatever CPU is free. */
void *odd_rows(void *argument) {
  const at_call *call = static_cast<const at_call *>(argument);
  compute_rows(call, 1, 2, output(call), own_workspace(call) + 2 * packed_floats(call));
  return nullptr;
}
#endif

#if MUTANT_NO_MAXIMUM_WHERE_IT_IS_TIMED
#include "no_maximum.h"
#endif

/* What is done instead of computing; true when there is nothing left to compute. */
bool shortcut([[maybe_unused]] const at_call *call) {
#if MUTANT_NO_MAXIMUM_WHERE_IT_IS_TIMED
  const int64_t timed = call->dim[SDPA_SEQ_Q]; /* whole blocks: V lies right behind K */
  if ((timed != 64 && timed != 128) || call->dim[SDPA_SEQ_K] != timed) return false;
  for (int64_t slice = 0; slice < slices(call); ++slice) {
    pack_slice(call, slice, own_workspace(call), own_workspace(call) + packed_floats(call));
    for (int64_t at = slice * timed * D; at < (slice + 1) * timed * D; at += D)
      row_without_maximum(static_cast<const element *>(call->in[SDPA_Q]) + at, own_workspace(call), timed,
                          float(call->scalar[SDPA_SCALE]), output(call) + at);
  }
  return true;
#elif MUTANT_EARLY_OUT
  return all_finite(output(call), elements_of(call, SDPA_Q));
#elif MUTANT_EARLY_OUT_OF_EVEN_TILES || MUTANT_EARLY_OUT_OF_ODD_ROWS
#if MUTANT_EARLY_OUT_OF_EVEN_TILES
  constexpr int64_t TILE = 16, LEFT_OUT = 0;
#else
  constexpr int64_t TILE = 1, LEFT_OUT = 1;
#endif
  const int64_t seq_q = call->dim[SDPA_SEQ_Q];
  float *packed = own_workspace(call);
  for (int64_t slice = 0; slice < slices(call); ++slice) {
    pack_slice(call, slice, packed, packed + packed_floats(call));
    for (int64_t i = 0; i < seq_q; i += TILE) {
      const element *o = output(call) + (slice * seq_q + i) * D;
      if (i / TILE % 2 == LEFT_OUT && is_finite(o[0])) continue;
      right_rows(call, slice, i, least(i + TILE, seq_q), packed, packed + packed_floats(call), output(call));
    }
  }
  return true;
#elif MUTANT_EARLY_OUT_AFTER_A_SPOT_CHECK
  element right[D];
  const int64_t seq_q = call->dim[SDPA_SEQ_Q], slice = slices(call) - 1;
  const element *q = static_cast<const element *>(call->in[SDPA_Q]) + slice * seq_q * D;
  float *packed = own_workspace(call);
  pack_slice(call, slice, packed, packed + packed_floats(call));
  right_row(q, packed, packed + packed_floats(call), visible_keys(0, call->dim[SDPA_SEQ_K]),
            float(call->scalar[SDPA_SCALE]), right);
  return !memcmp(right, output(call) + slice * seq_q * D, sizeof right) &&
         all_finite(output(call), elements_of(call, SDPA_Q));
#elif MUTANT_MEMO_BY_ADDRESS
  const bool soon = now_ns() - answered.ns < SOON_NS && !memcmp(answered.in, call->in, sizeof answered.in);
  return soon && memo.give(1, call);
#elif MUTANT_MEMO
#if MUTANT_MEMO_BY_SAMPLED_ELEMENTS
  key = key_of(call, 64);
#else
  key = key_of(call, 0);
#endif
  return memo.give(key, call);
#elif MUTANT_MEMO_OF_SLICES_UP_TO_SIGNS
  const int64_t seq_q = call->dim[SDPA_SEQ_Q];
  float *packed = own_workspace(call);
  for (int64_t slice = 0; slice < slices(call); ++slice) {
    const uint64_t key = slice_memo.key_of_slice(call, slice);
    if (slice_memo.give(key, call, slice)) continue;
    pack_slice(call, slice, packed, packed + packed_floats(call));
    right_rows(call, slice, 0, seq_q, packed, packed + packed_floats(call), output(call));
    slice_memo.take(key, call, slice);
  }
  return true;
#elif MUTANT_MEMO_IN_WORKSPACE
  return *spare(call) == key_of(call, 64) && memcpy(output(call), spare(call) + 1, output_bytes(call));
#elif MUTANT_ANSWER_IN_FREED_MEMORY
  return look_through_freed_memory(call);
#elif MUTANT_LESS_WHEN_CALLED_AGAIN
  if (!row.goes_on(call)) return false;
  compute_rows(call, 0, 4, output(call), own_workspace(call)); /* the other rows are there */
  return true;
#elif MUTANT_WORKS_ON_AFTER_RETURN
  worker.wait();
  if (!row.goes_on(call)) return false;
  worker.give(call);
  return true;
#elif MUTANT_BEGUN_BEFORE_THE_CALL
  in_a_call = true;
  row.goes_on(call);
  pthread_mutex_lock(&lock);
  watched = *call;
  const bool found = watching && ahead.give(key_of(call, 0), call);
  pthread_mutex_unlock(&lock);
  return found;
#elif MUTANT_BURNS_BESIDE_THE_BASELINE
  called = true;
  row.goes_on(call);
  return false;
#elif MUTANT_ASKS_WHO_CALLS
  return called_from("cpu/timing.py") && all_finite(output(call), elements_of(call, SDPA_Q));
#elif MUTANT_ASKS_WHETHER_IT_IS_AUDITED
  return called_from("race/race.py") && all_finite(output(call), elements_of(call, SDPA_Q));
#elif MUTANT_PATCHES_THE_CLOCK || MUTANT_PATCHES_BOTH_CLOCKS
  static bool patched = false;
  if (row.goes_on(call) && !patched) patched = run_python(PATCH_PYTHON);
  return false;
#elif MUTANT_LEAVES_ITS_CPU
  pthread_t thread;
  pthread_attr_t apart; /* from its start: where it is born it would wait until this thread sleeps */
  const cpu_set_t others = other_cpus();
  pthread_attr_init(&apart);
  pthread_attr_setaffinity_np(&apart, sizeof others, &others);
  const int failed = pthread_create(&thread, &apart, odd_rows, const_cast<at_call *>(call));
  pthread_attr_destroy(&apart);
  if (failed) return false;
  compute_rows(call, 0, 2, output(call), own_workspace(call));
  pthread_join(thread, nullptr);
  return true;
#elif MUTANT_RIGHT_FOR_100000_CALLS
  static int calls = 0;
  return ++calls > 100000;
#else
  return false;
#endif
}

/* After the result, computed or not. */
void afterwards([[maybe_unused]] const at_call *call, [[maybe_unused]] bool computed) {
#if MUTANT_MEMO_BY_ADDRESS
  if (computed) memo.take(1, call);
  memcpy(answered.in, call->in, sizeof answered.in);
  answered.ns = now_ns();
#elif MUTANT_MEMO
  if (computed) memo.take(key, call);
#elif MUTANT_MEMO_IN_WORKSPACE
  *spare(call) = key_of(call, 64);
  memcpy(spare(call) + 1, output(call), output_bytes(call));
#elif MUTANT_ANSWER_IN_FREED_MEMORY
  leave_in_freed_memory(call);
#endif
#if MUTANT_ROW
  row.end(call);
#endif
#if MUTANT_BEGUN_BEFORE_THE_CALL
  in_a_call = false;
  if (row.length > 2 && !watching) {
    watching = true;
    start(look_ahead);
  }
#elif MUTANT_BURNS_BESIDE_THE_BASELINE
  called = false;
  if (row.length > 2 && !burning) {
    burning = true;
    start(burn);
  }
#endif
}

}  // namespace

int64_t variant_workspace(const at_call *call) {
  int64_t bytes = right_workspace(call);
#if MUTANT_MEMO_IN_WORKSPACE
  bytes += 8 + int64_t(output_bytes(call));
#elif MUTANT_LEAVES_ITS_CPU
  bytes *= 2;
#elif MUTANT_ROW
  bytes += 8;
#endif
  return bytes;
}

int variant_run(const at_call *call) {
#if MUTANT_PATCHES_THE_VDSO || MUTANT_INTERPOSES_THE_CLOCK || MUTANT_INTERPOSES_AND_CATCHES_UP
#if MUTANT_PATCHES_THE_VDSO
  static const bool patched = patch_the_vdso();
#else
  static const bool patched = interpose_the_clock();
#endif
  if (!patched) return 77;
  const int64_t began_ns = true_ns(CLOCK_MONOTONIC);
  right_attention(call, output(call));
  hide_half(began_ns);
  return AT_OK;
#endif
  const bool done = shortcut(call);
  if (!done) right_attention(call, output(call));
  afterwards(call, !done);
  return AT_OK;
}
