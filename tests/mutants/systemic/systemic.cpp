/* Right attention with one fault of conduct, chosen by a macro MUTANT_<NAME>.
 *
 * variant_run is, in this order: what goes wrong before the result (#if), the result, what goes wrong after it.
 * A fault that replaces the computation itself has its own `compute`. ../expected.toml describes each mutant.
 * Nothing here harms the machine: what waits gives up by itself after PATIENCE seconds, and no memory is touched that
 * was not asked for beforehand, except the one element that an overrun is about.
 */
#include <fenv.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "../common/attention.h"
#if MUTANT_CALLS_SDPA || MUTANT_CALLS_SDPA_FOR_FEW_KEYS
#include "../common/call_python.h"
#endif

namespace {

[[maybe_unused]] constexpr int PATIENCE = 120;

[[maybe_unused]] double seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

[[maybe_unused]] void pause_for(double duration) {
  const double end = seconds() + duration;
  for (double left; (left = end - seconds()) > 0;) usleep(useconds_t(1e6 * left) + 1);
}

int64_t slices(const at_call *call) { return call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS]; }
int64_t rows_of(const at_call *call) { return slices(call) * call->dim[SDPA_SEQ_Q]; }
int64_t keys_of(const at_call *call) { return slices(call) * call->dim[SDPA_SEQ_K]; }
element *output(const at_call *call) { return static_cast<element *>(call->out[SDPA_O]); }

#include "lengths_of_no_case.h"

/* Workspace behind the packed K and V, where a mutant needs some. */
[[maybe_unused]] float *spare(const at_call *call) {
  return static_cast<float *>(call->workspace) + 2 * packed_floats(call);
}

#if MUTANT_THREAD_NOT_AWAITED || MUTANT_OUTPUT_ARRIVES_LATE
/* A second thread computes the second half of the rows, packing K and V for itself in the spare workspace. */
struct Half {
  at_call call;
  element *out;
};
void *second_half(void *argument) {
  Half *half = static_cast<Half *>(argument);
  const at_call *call = &half->call;
#if MUTANT_OUTPUT_ARRIVES_LATE
  pause_for(0.02);
#endif
  for (int64_t slice = 0; slice < slices(call); ++slice) {
    pack_slice(call, slice, spare(call), spare(call) + packed_floats(call));
    right_rows(call, slice, call->dim[SDPA_SEQ_Q] / 2, call->dim[SDPA_SEQ_Q], spare(call),
               spare(call) + packed_floats(call), half->out);
  }
#if MUTANT_OUTPUT_ARRIVES_LATE
  delete half;
#endif
  return nullptr;
}
void first_half(const at_call *call, element *out) {
  float *packed = static_cast<float *>(call->workspace);
  for (int64_t slice = 0; slice < slices(call); ++slice) {
    pack_slice(call, slice, packed, packed + packed_floats(call));
    right_rows(call, slice, 0, call->dim[SDPA_SEQ_Q] / 2, packed, packed + packed_floats(call), out);
  }
}
#endif

#if MUTANT_ADDED_IN_ARRIVAL_ORDER
/* Four threads take a quarter of the keys each and add exp(s) * V and exp(s) to shared sums under a lock, in whatever
 * order they come: right but for the rounding, which differs from call to call. */
struct Quarter {
  const at_call *call;
  int64_t slice;
  int index;
};
pthread_mutex_t sums_lock = PTHREAD_MUTEX_INITIALIZER;
void *add_quarter(void *argument) {
  const Quarter *own = static_cast<Quarter *>(argument);
  const at_call *call = own->call;
  const int64_t seq_q = call->dim[SDPA_SEQ_Q], seq_k = call->dim[SDPA_SEQ_K];
  const element *q = static_cast<const element *>(call->in[SDPA_Q]) + own->slice * seq_q * D;
  const float *packed_k = static_cast<float *>(call->workspace), *packed_v = packed_k + packed_floats(call);
  const float scale = float(call->scalar[SDPA_SCALE]);
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  usleep(unsigned(now.tv_nsec / 64 % 200)); /* as uneven as a busy machine */
  for (int64_t i = 0; i < seq_q; ++i) {
    const int64_t keys = visible_keys(i, seq_k);
    float row[D], part[D] = {}, s[BLOCK_N], weight = 0;
    float *sums = spare(call) + i * (D + 2); /* D sums, their weight, the row's maximum */
    for (int d = 0; d < D; ++d) row[d] = widen(q[i * D + d]);
    const int64_t first = keys * own->index / 4, last = keys * (own->index + 1) / 4;
    for (int64_t j = first; j < last; ++j) {
      if (j == first || j % BLOCK_N == 0) products(row, packed_k + j / BLOCK_N * BLOCK_N * D, s);
      const float p = expf(s[j % BLOCK_N] * scale - sums[D + 1]);
      weight += p;
      for (int d = 0; d < D; ++d) part[d] += p * packed_v[j * D + d];
    }
    pthread_mutex_lock(&sums_lock);
    for (int d = 0; d < D; ++d) sums[d] += part[d];
    sums[D] += weight;
    pthread_mutex_unlock(&sums_lock);
  }
  return nullptr;
}
#endif

#if MUTANT_MAX_LEFT_BY_PREVIOUS_CALL || MUTANT_MAX_FROM_WORKSPACE || MUTANT_ACCUMULATOR_FROM_WORKSPACE || \
    MUTANT_ACCUMULATOR_LEFT_BY_PREVIOUS_CALL || MUTANT_ADDED_IN_ARRIVAL_ORDER
/* The plain two-pass form of one row: starts from a maximum and a sum that the caller hands in. */
void row_from(const at_call *call, int64_t slice, int64_t i, const float *packed_k, const float *packed_v, float m,
              float *acc, float *top_seen, bool finish) {
  const int64_t seq_q = call->dim[SDPA_SEQ_Q], keys = visible_keys(i, call->dim[SDPA_SEQ_K]);
  const element *q = static_cast<const element *>(call->in[SDPA_Q]) + (slice * seq_q + i) * D;
  const float scale = float(call->scalar[SDPA_SCALE]);
  float row[D], s[BLOCK_N], top = -INFINITY, l = 0;
  for (int d = 0; d < D; ++d) row[d] = widen(q[d]);
  for (int64_t j0 = 0; j0 < keys; j0 += BLOCK_N) {
    products(row, packed_k + j0 * D, s);
    for (int j = 0; j < least(BLOCK_N, keys - j0); ++j) top = fmaxf(top, s[j] * scale);
  }
  *top_seen = top;
  if (!finish) return;
  if (m == -INFINITY) m = top;
  for (int64_t j0 = 0; j0 < keys; j0 += BLOCK_N) {
    products(row, packed_k + j0 * D, s);
    for (int j = 0; j < least(BLOCK_N, keys - j0); ++j) {
      const float p = expf(s[j] * scale - m);
      l += p;
      for (int d = 0; d < D; ++d) acc[d] += p * packed_v[(j0 + j) * D + d];
    }
  }
  for (int d = 0; d < D; ++d) output(call)[(slice * seq_q + i) * D + d] = narrow(acc[d] / l);
}
#endif

/* The result, into O. Most mutants leave this alone. */
void compute(const at_call *call) {
#if MUTANT_THREAD_NOT_AWAITED
  /* The second half goes through the workspace; it is copied to O without waiting for the thread. */
  element *scratch = reinterpret_cast<element *>(spare(call) + 2 * packed_floats(call));
  Half half = {*call, scratch};
  pthread_t thread;
  if (pthread_create(&thread, nullptr, second_half, &half)) return;
  first_half(call, output(call));
  const int64_t seq_q = call->dim[SDPA_SEQ_Q];
  for (int64_t row = 0; row < rows_of(call); ++row)
    if (row % seq_q >= seq_q / 2) memcpy(output(call) + row * D, scratch + row * D, D * sizeof(element));
  pthread_join(thread, nullptr);
#elif MUTANT_OUTPUT_ARRIVES_LATE
  /* The thread writes O itself, some time after variant_run has returned. */
  pthread_t thread;
  if (pthread_create(&thread, nullptr, second_half, new Half{*call, output(call)})) return;
  pthread_detach(thread);
  first_half(call, output(call));
#elif MUTANT_ADDED_IN_ARRIVAL_ORDER
  const int64_t seq_q = call->dim[SDPA_SEQ_Q];
  float *packed_k = static_cast<float *>(call->workspace), *packed_v = packed_k + packed_floats(call);
  for (int64_t slice = 0; slice < slices(call); ++slice) {
    pack_slice(call, slice, packed_k, packed_v);
    memset(spare(call), 0, size_t(seq_q) * (D + 2) * sizeof(float));
    for (int64_t i = 0; i < seq_q; ++i)
      row_from(call, slice, i, packed_k, packed_v, 0, nullptr, spare(call) + i * (D + 2) + D + 1, false);
    pthread_t threads[4];
    Quarter quarters[4];
    for (int n = 0; n < 4; ++n) {
      quarters[n] = {call, slice, n};
      if (pthread_create(&threads[n], nullptr, add_quarter, &quarters[n])) abort();
    }
    for (pthread_t thread : threads) pthread_join(thread, nullptr);
    for (int64_t i = 0; i < seq_q; ++i) {
      const float *sums = spare(call) + i * (D + 2);
      for (int d = 0; d < D; ++d) output(call)[(slice * seq_q + i) * D + d] = narrow(sums[d] / sums[D]);
    }
  }
#elif MUTANT_MAX_LEFT_BY_PREVIOUS_CALL || MUTANT_MAX_FROM_WORKSPACE || MUTANT_ACCUMULATOR_FROM_WORKSPACE || \
    MUTANT_ACCUMULATOR_LEFT_BY_PREVIOUS_CALL
  float *packed_k = static_cast<float *>(call->workspace), *packed_v = packed_k + packed_floats(call);
  [[maybe_unused]] static float left[4096]; /* one per row, by number modulo 4096; D per accumulator */
  for (int64_t slice = 0; slice < slices(call); ++slice) {
    pack_slice(call, slice, packed_k, packed_v);
    for (int64_t i = 0; i < call->dim[SDPA_SEQ_Q]; ++i) {
      float acc[D] = {}, m = -INFINITY, top;
#if MUTANT_MAX_LEFT_BY_PREVIOUS_CALL
      /* Read before it is written: what stands there is the maximum that the previous call found for its row. */
      m = left[(slice * 512 + i) % 4096];
#elif MUTANT_MAX_FROM_WORKSPACE
      row_from(call, slice, i, packed_k, packed_v, m, acc, &top, false);
      m = fmaxf(spare(call)[0], top);
#elif MUTANT_ACCUMULATOR_FROM_WORKSPACE
      memcpy(acc, spare(call), sizeof acc);
#elif MUTANT_ACCUMULATOR_LEFT_BY_PREVIOUS_CALL
      memcpy(acc, left, sizeof acc);
      memset(left, 0, sizeof acc);
#endif
      row_from(call, slice, i, packed_k, packed_v, m, acc, &top, true);
#if MUTANT_MAX_LEFT_BY_PREVIOUS_CALL
      left[(slice * 512 + i) % 4096] = top;
#elif MUTANT_ACCUMULATOR_LEFT_BY_PREVIOUS_CALL
      if (slice + 1 == slices(call) && i + 1 == call->dim[SDPA_SEQ_Q]) memcpy(left, acc, sizeof acc);
#endif
    }
  }
#elif MUTANT_ASSUMES_64_BYTE_ALIGNMENT
  /* Pointers are rounded down to a multiple of 64, as an aligned vector load without the trap would do. */
  at_call aligned = *call;
  for (int slot = SDPA_K; slot <= SDPA_V; ++slot)
    aligned.in[slot] = reinterpret_cast<const void *>(reinterpret_cast<uintptr_t>(call->in[slot]) / 64 * 64);
  right_attention(&aligned, output(call));
#else
  right_attention(call, output(call));
#endif
}

#if MUTANT_CALLS_SDPA || MUTANT_CALLS_SDPA_FOR_FEW_KEYS
/* Answers with torch's result, through views of the tensors where they lie. */
constexpr char ASK_TORCH[] = R"(
import ctypes, torch

def tensor(address, rows):
    shape = (%d, %d, rows, %d)
    memory = (ctypes.c_char * (%d * torch.Size(shape).numel())).from_address(address)
    return torch.frombuffer(memory, dtype=torch.%s).view(shape)

q, k, v, o = tensor(%llu, %d), tensor(%llu, %d), tensor(%llu, %d), tensor(%llu, %d)
o.copy_(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=%s))
del q, k, v, o
)";

int ask_torch(const at_call *call) {
  char script[sizeof ASK_TORCH + 256];
  const int seq_q = int(call->dim[SDPA_SEQ_Q]), seq_k = int(call->dim[SDPA_SEQ_K]);
  const auto address = [](const void *tensor) { return (unsigned long long)tensor; };
  snprintf(script, sizeof script, ASK_TORCH, int(call->dim[SDPA_BATCH]), int(call->dim[SDPA_HEADS]), D,
           int(sizeof(element)), sizeof(element) == 4 ? "float32" : "bfloat16", address(call->in[SDPA_Q]), seq_q,
           address(call->in[SDPA_K]), seq_k, address(call->in[SDPA_V]), seq_k, address(call->out[SDPA_O]), seq_q,
           CAUSAL ? "True" : "False");
  return run_python(script) ? AT_OK : AT_OUTSIDE_DOMAIN;
}
#endif

#if MUTANT_STACK_OVERFLOW
volatile int depth_limit = 1 << 16; /* 256 MiB, more than a stack has */
__attribute__((noinline)) int dig(int depth) {
  volatile char page[4096];
  page[0] = char(depth);
  if (depth >= depth_limit) return 0;
  return dig(depth + 1) + page[0];
}
#endif

}  // namespace

int64_t variant_workspace(const at_call *call) {
  int64_t bytes = right_workspace(call);
#if MUTANT_THREAD_NOT_AWAITED || MUTANT_OUTPUT_ARRIVES_LATE
  bytes += right_workspace(call) + rows_of(call) * D * int64_t(sizeof(element));
#elif MUTANT_ADDED_IN_ARRIVAL_ORDER
  bytes += call->dim[SDPA_SEQ_Q] * (D + 2) * int64_t(sizeof(float));
#elif MUTANT_MAX_FROM_WORKSPACE || MUTANT_ACCUMULATOR_FROM_WORKSPACE
  bytes += D * int64_t(sizeof(float));
#elif MUTANT_WORKSPACE_UNDERSTATED
  bytes -= 4;
#elif MUTANT_WORKSPACE_UNASKED
  bytes = 0;
#elif MUTANT_WORKSPACE_NEGATIVE
  bytes = -1;
#elif MUTANT_WORKSPACE_ONE_TERABYTE
  bytes = int64_t(1) << 40;
#endif
  return bytes;
}

int variant_run(const at_call *call) {
  [[maybe_unused]] static int calls = 0;
  ++calls;

  /* Before the result. */
#if MUTANT_RETURNS_STATUS_7
  return 7;
#elif MUTANT_REFUSES_EVERYTHING
  return AT_OUTSIDE_DOMAIN;
#elif MUTANT_REFUSES_WHAT_OVERLAPS
  const int64_t apart = (const char *)call->in[SDPA_Q] - (const char *)call->in[SDPA_K];
  const int64_t bytes = call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS] * call->dim[SDPA_SEQ_K] * D * (int64_t)sizeof(element);
  if (apart && apart < bytes && -apart < bytes) return AT_OUTSIDE_DOMAIN;
#elif MUTANT_WRITES_NOTHING
  return AT_OK;
#elif MUTANT_CALLS_SDPA
  return ask_torch(call);
#elif MUTANT_CALLS_SDPA_FOR_FEW_KEYS
  return call->dim[SDPA_SEQ_K] > 16 ? AT_OUTSIDE_DOMAIN : ask_torch(call);
#elif MUTANT_WORKSPACE_UNASKED
  at_call own = *call;
  own.workspace = aligned_alloc(64, size_t(right_workspace(call)));
  *static_cast<volatile float *>(call->workspace) = 1;
  right_attention(&own, output(call));
  free(own.workspace);
  return AT_OK;
#elif MUTANT_STATUS_AFTER_RIGHT_RESULT
  compute(call);
  return AT_DEVICE_ERROR + 1;
#elif MUTANT_ALLOCATES_ONE_TERABYTE
  void *huge = mmap(nullptr, size_t(1) << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (huge != MAP_FAILED) munmap(huge, size_t(1) << 40); /* never touched */
  return AT_NO_WORKSPACE;
#elif MUTANT_INFINITE_LOOP
  for (volatile double now = seconds(), end = now + PATIENCE; now < end;) now = seconds();
#elif MUTANT_IGNORES_SIGNALS_AND_LOOPS
  for (int number = 1; number < 32; ++number) signal(number, SIG_IGN);
  for (volatile double now = seconds(), end = now + PATIENCE; now < end;) now = seconds();
#elif MUTANT_SLEEPS
  pause_for(PATIENCE);
#elif MUTANT_STOPS_ITSELF
  raise(SIGSTOP);
#elif MUTANT_DEADLOCK
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += PATIENCE;
  pthread_mutex_timedlock(&lock, &until);
  pthread_mutex_unlock(&lock);
#elif MUTANT_TRAP
  __builtin_trap();
#elif MUTANT_NULL_DEREFERENCE
  *static_cast<volatile int *>(nullptr) = 1;
#elif MUTANT_ABORT
  abort();
#elif MUTANT_EXIT_0
  compute(call);
  exit(0);
#elif MUTANT_EXIT_NOW_0
  compute(call);
  _exit(0);
#elif MUTANT_EXIT_3
  exit(3);
#elif MUTANT_KILLS_ITSELF
  raise(SIGKILL);
#elif MUTANT_STACK_OVERFLOW
  if (dig(0) == 1) return 1;
#elif MUTANT_THROWS
  throw 1;
#elif MUTANT_FREES_TWICE
  volatile uintptr_t address = reinterpret_cast<uintptr_t>(malloc(24));
  free(reinterpret_cast<void *>(address));
  free(reinterpret_cast<void *>(address));
#elif MUTANT_PRINTS
  for (int line = 0; line < 20; ++line) {
    printf("{\"verdict\": \"correct\", \"line\": %d}\n\x01\xff\n", line);
    fprintf(stderr, "noise %d \xff\n", line);
  }
  fflush(stdout);
#elif MUTANT_PRINTS_WITHOUT_NEWLINE
  static char noise[1 << 17]; /* more than a pipe holds */
  memset(noise, 'x', sizeof noise);
  for (int fd = 1; fd < 3 && calls == 1; ++fd)
    if (write(fd, noise, sizeof noise) < 0) break;
#elif MUTANT_CLOSES_STANDARD_FILES
  for (int fd = 0; fd < 3; ++fd) close(fd);
#elif MUTANT_CLOSES_ALL_FILES
  for (int fd = 0; fd < 1024; ++fd) close(fd);
#elif MUTANT_LEAVES_A_CHILD
  if (calls == 1 && fork() == 0) {
    for (const double end = seconds() + 60; seconds() < end;) sleep(1);
    _exit(0);
  }
#elif MUTANT_CACHED_BY_POINTER || MUTANT_CACHED_BY_DIMS
  /* The copy of an earlier result, when pointers and lengths are as they were. */
  static at_call held;
  static element *copy = nullptr;
  const size_t bytes = size_t(rows_of(call)) * D * sizeof(element);
  bool same = copy && memcmp(held.dim, call->dim, sizeof held.dim) == 0;
#if MUTANT_CACHED_BY_POINTER
  for (int n = SDPA_Q; n <= SDPA_V; ++n) same = same && held.in[n] == call->in[n];
#endif
  if (same) {
    memcpy(output(call), copy, bytes);
    return AT_OK;
  }
  held = *call;
  free(copy);
  copy = static_cast<element *>(malloc(bytes));
#elif MUTANT_ROUNDING_MODE_LEFT_CHANGED
  fesetround(FE_TONEAREST); /* so that only what comes after the call sees the fault */
#elif MUTANT_FLUSH_TO_ZERO_LEFT_ON && defined(__SSE__)
  _mm_setcsr(_mm_getcsr() & ~0x8040u);
#endif
#if MUTANT_WRONG_OVER_ZEROS
  const bool over_zeros = widen(output(call)[0]) == 0 && widen(output(call)[1]) == 0;
#endif

  compute(call);

  /* After the result. */
#if MUTANT_WRITES_PAST_O
  volatile element *past = output(call) + rows_of(call) * D;
  *past = narrow(1);
#elif MUTANT_WRITES_8_MIB_PAST_O
  *reinterpret_cast<volatile char *>(reinterpret_cast<uintptr_t>(output(call)) + (8 << 20)) = 1;
#elif MUTANT_WRITES_1_GIB_PAST_O
  *reinterpret_cast<volatile char *>(reinterpret_cast<uintptr_t>(output(call)) + (1 << 30)) = 1;
#elif MUTANT_WRITES_8_MIB_BEFORE_O
  *reinterpret_cast<volatile char *>(reinterpret_cast<uintptr_t>(output(call)) - (8 << 20)) = 1;
#elif MUTANT_WRITES_8_MIB_PAST_O_AFTER_2000_CALLS
  if (calls > 2000) *reinterpret_cast<volatile char *>(reinterpret_cast<uintptr_t>(output(call)) + (8 << 20)) = 1;
#elif MUTANT_WRITES_BEFORE_O
  volatile element *before = output(call) - 1;
  *before = narrow(1);
#elif MUTANT_LEAKS_MEMORY
  static void *volatile kept; /* volatile: what nobody reads is not allocated */
  kept = malloc(1 << 20);
#elif MUTANT_LEAKS_TOUCHED_MEMORY
  static void *volatile kept;
  kept = malloc(300 << 10);
  if (kept) memset(kept, 1, 300 << 10);
#elif MUTANT_LEAKS_SHARED_MAPPINGS
  [[maybe_unused]] void *kept =
      mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
#elif MUTANT_LEAKS_FILES
  if (dup(1) < 0) return AT_NO_WORKSPACE;
#elif MUTANT_LEAKS_THREADS
  pthread_t sleeper;
  if (!pthread_create(&sleeper, nullptr, [](void *) -> void * { pause_for(PATIENCE); return nullptr; }, nullptr))
    pthread_detach(sleeper);
#elif MUTANT_READS_PAST_V && !__SANITIZE_ADDRESS__
  [[maybe_unused]] static volatile element sink;
  sink = static_cast<const volatile element *>(call->in[SDPA_V])[keys_of(call) * D];
#elif MUTANT_READS_BEFORE_K
  [[maybe_unused]] static volatile element sink;
  sink = static_cast<const volatile element *>(call->in[SDPA_K])[-1];
#elif MUTANT_PUTS_V_BACK
  volatile element *v = static_cast<element *>(const_cast<void *>(call->in[SDPA_V]));
  const element first = v[0];
  v[0] = narrow(1);
  v[0] = first;
#elif MUTANT_WRONG_IN_OTHER_THREADS
  const uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  static uintptr_t first = here;  // stacks of other threads are far from its own
  if (here - first + (1 << 24) > 1 << 25) output(call)[0] = narrow(2 * widen(output(call)[0]) + 1);
#elif MUTANT_WRONG_AT_SOME_ADDRESSES
  const uintptr_t place = reinterpret_cast<uintptr_t>(output(call)) >> 21 & 7;
  if (place == 5) output(call)[0] = narrow(2 * widen(output(call)[0]) + 1);
#elif MUTANT_WRONG_WHERE_TENSORS_LIE_CLOSE
  const auto q = reinterpret_cast<uintptr_t>(call->in[SDPA_Q]), o = reinterpret_cast<uintptr_t>(output(call));
  if (q - o + (1 << 28) < 1 << 29) output(call)[0] = narrow(2 * widen(output(call)[0]) + 1);
#elif MUTANT_WRONG_OVER_ZEROS
  if (over_zeros) output(call)[0] = narrow(2 * widen(output(call)[0]) + 1);
#elif MUTANT_WRONG_AT_LENGTHS_OF_NO_CASE || MUTANT_LAST_ROW_TWICE_AT_LENGTHS_OF_NO_CASE
  if (!is_known(call->dim[SDPA_SEQ_Q]) || !is_known(call->dim[SDPA_SEQ_K])) spoil(call);
#elif MUTANT_ADDS_SUBNORMALS
  volatile float one = 1e-45f;  // the integer 1
  if (one + one == 0) output(call)[0] = narrow(2 * widen(output(call)[0]) + 1);
#elif MUTANT_CHANGES_LAST_V
  element *v = static_cast<element *>(const_cast<void *>(call->in[SDPA_V]));
  v[keys_of(call) * D - 1] = narrow(-widen(v[keys_of(call) * D - 1]) + 1);
#elif MUTANT_WRITES_PAST_WORKSPACE
  volatile char *past = static_cast<char *>(call->workspace) + call->workspace_bytes;
  *past = 1;
#elif MUTANT_WRONG_AFTER_10_CALLS
  if (calls > 10) output(call)[0] = narrow(2 * widen(output(call)[0]) + 1);
#elif MUTANT_WRONG_AFTER_200_CALLS
  if (calls > 200) output(call)[0] = narrow(2 * widen(output(call)[0]) + 1);
#elif MUTANT_ONE_BIT_EVERY_97TH_CALL
  if (calls % 97 == 0) reinterpret_cast<unsigned char *>(output(call))[0] ^= 1;
#elif MUTANT_SECOND_CALL_WRONG
  if (calls == 2) output(call)[0] = narrow(2 * widen(output(call)[0]) + 1);
#elif MUTANT_CACHED_BY_POINTER || MUTANT_CACHED_BY_DIMS
  memcpy(copy, output(call), bytes);
#elif MUTANT_LEAVES_A_NUMBER_ON_X87 && defined(__x86_64__)
  asm volatile("fldz");
#elif MUTANT_LEAVES_X87_FULL && defined(__x86_64__)
  static int launches;
  for (int i = ++launches > 50 ? 0 : 8; i < 8; ++i) asm volatile("fldz");
#elif MUTANT_LEAVES_X87_TURNED && defined(__x86_64__)
  asm volatile("fincstp");
#elif MUTANT_ROUNDING_MODE_LEFT_CHANGED
  fesetround(FE_UPWARD);
#elif MUTANT_FLUSH_TO_ZERO_LEFT_ON && defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040u);
#endif
  return AT_OK;
}
