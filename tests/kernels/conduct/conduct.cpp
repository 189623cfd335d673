/* Misbehaves as a macro ACT_<NAME> says. What waits gives up by itself after a minute. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "sdpa.h"
#if ACT_SENDS_A_REPLY || ACT_ANNOUNCES_STEPS_WITHOUT_END
#include "forged_reply.h"
#endif

namespace {

[[maybe_unused]] void wait_a_minute() {
  for (int second = 0; second < 60; ++second) sleep(1);
}

/* Writes the same bytes into every open file but the standard ones. */
[[maybe_unused]] void write_everywhere(const char *bytes, size_t count) {
  for (int fd = 3; fd < 64; ++fd)
    if (write(fd, bytes, count) < 0) continue;
}

/* Where the file was that the driver reads what was printed from, there is nothing now. */
[[maybe_unused]] const char *no_log() {
  static char path[4096];
  const ssize_t length = readlink("/proc/self/fd/2", path, sizeof path - 1);
  path[length > 0 ? length : 0] = '\0';
  unlink(path);
  return path;
}

/* A child outside the process group of its parent. */
[[maybe_unused]] void start_child() {
  if (fork() == 0) {
    setpgid(0, 0);
    wait_a_minute();
    _exit(0);
  }
}

/* From now on the process gets no more of a resource than it has. */
[[maybe_unused]] void take_away(int resource) {
  rlimit limit = {};
  getrlimit(resource, &limit);
  limit.rlim_cur = 0;
  setrlimit(resource, &limit);
}

/* Attention as the textbook has it, for what misbehaves beside a right answer. */
[[maybe_unused]] void attention(const at_call *call) {
  const int64_t *dim = call->dim, rows = dim[SDPA_SEQ_Q], keys = dim[SDPA_SEQ_K];
  const int64_t group = dim[SDPA_HEADS] / dim[SDPA_HEADS_KV];
  for (int64_t row = 0; row < dim[SDPA_BATCH] * dim[SDPA_HEADS] * rows; ++row) {
    const int64_t batch = row / rows / dim[SDPA_HEADS], head = row / rows % dim[SDPA_HEADS];
    const int64_t first = (batch * dim[SDPA_HEADS_KV] + head / group) * keys * HEAD_DIM;
    const float *q = static_cast<const float *>(call->in[SDPA_Q]) + row * HEAD_DIM;
    const float *k = static_cast<const float *>(call->in[SDPA_K]) + first;
    const float *v = static_cast<const float *>(call->in[SDPA_V]) + first;
    double largest = -INFINITY, total = 0, sum[HEAD_DIM] = {};
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t key = 0; key < keys; ++key) {
        double score = 0;
        for (int d = 0; d < HEAD_DIM; ++d) score += static_cast<double>(q[d]) * k[key * HEAD_DIM + d];
        score *= call->scalar[SDPA_SCALE];
        if (pass == 0) {
          largest = fmax(largest, score);
          continue;
        }
        const double weight = exp(score - largest);
        total += weight;
        for (int d = 0; d < HEAD_DIM; ++d) sum[d] += weight * v[key * HEAD_DIM + d];
      }
    for (int d = 0; d < HEAD_DIM; ++d)
      static_cast<float *>(call->out[SDPA_O])[row * HEAD_DIM + d] = static_cast<float>(sum[d] / total);
  }
}

#if defined(__SSE__)
/* A right answer; only what comes after the call is rounded otherwise. */
[[maybe_unused]] void sse_rounding_left(const at_call *call, unsigned mode) {
  _MM_SET_ROUNDING_MODE(_MM_ROUND_NEAREST);
  attention(call);
  _MM_SET_ROUNDING_MODE(mode);
}
#endif

}  // namespace

int64_t variant_workspace(const at_call *) { return 0; }

int variant_run([[maybe_unused]] const at_call *call) {
#if ACT_LAST_WORDS
  for (int line = 0; line < 500; ++line) fprintf(stderr, "line %d\n", line);
  fprintf(stderr, "last words \xff\n");
  __builtin_trap();
#elif ACT_LOG_BECOMES_A_PIPE
  mkfifo(no_log(), 0600);
  __builtin_trap();
#elif ACT_LOG_BECOMES_A_LINK
  if (symlink("/etc/passwd", no_log())) return AT_NO_WORKSPACE;
  __builtin_trap();
#elif ACT_LOG_BECOMES_A_FOLDER
  mkdir(no_log(), 0700);
#elif ACT_LOG_BECOMES_LARGE
  if (ftruncate(2, int64_t(4000) << 20)) return AT_NO_WORKSPACE;
  __builtin_trap();
#elif ACT_MAKES_DEEP_FOLDERS
  if (chdir(getenv("TMPDIR"))) return AT_NO_WORKSPACE;
  for (int depth = 0; depth < 3000; ++depth)
    if (mkdir("d", 0700) || chdir("d")) return AT_NO_WORKSPACE;
  __builtin_trap();
#elif ACT_PRINTS
  printf("{\"verdict\": \"measured\"}\n");
  fflush(stdout);
  __builtin_trap();
#elif ACT_SENDS_GARBAGE
  write_everywhere("garbage, garbage, garbage", 25);
  wait_a_minute();
#elif ACT_SENDS_HALF_A_MESSAGE
  write_everywhere("\0\0\1\0half", 8);
  wait_a_minute();
#elif ACT_SENDS_A_REPLY
  send_reply();
  wait_a_minute();
#elif ACT_ANNOUNCES_STEPS_WITHOUT_END
  announce_without_end();
#elif ACT_LEAVES_A_CHILD
  start_child();
  __builtin_trap();
#elif ACT_LEAVES_A_SESSION
  if (fork() == 0) {
    setsid();
    wait_a_minute();
    _exit(0);
  }
  __builtin_trap();
#elif ACT_LEAVES_AN_ORPHAN
  if (fork() == 0) {
    setsid();
    if (fork() == 0) {
      setsid();
      wait_a_minute();
    }
    _exit(0);
  }
  usleep(300000);
  __builtin_trap();
#elif ACT_LEAVES_A_CHILD_AND_HANGS
  start_child();
  wait_a_minute();
#elif ACT_KILLS_THE_ZYGOTE
  kill(getppid(), SIGKILL);
  wait_a_minute();
#elif ACT_READS_THE_STORE || ACT_OVERWRITES_THE_STORE
  /* A process's own folder lies in that of its driver; here the store lies beside that. */
  char path[4096];
  snprintf(path, sizeof path, "%s/../../studies.db", getenv("TMPDIR"));
#if ACT_READS_THE_STORE
  FILE *store = fopen(path, "r");
#else
  FILE *store = fopen(path, "r+");
  if (store != nullptr) fputs("mine", store), fclose(store);
#endif
  if (store != nullptr) __builtin_trap();
#elif ACT_TAKES_ALL_MEMORY
  attention(call);
  take_away(RLIMIT_AS);
#elif ACT_TAKES_ALL_FILES
  attention(call);
  take_away(RLIMIT_NOFILE);
#elif ACT_LEAVES_SSE_ROUNDING_DOWN && defined(__SSE__)
  sse_rounding_left(call, _MM_ROUND_DOWN);
#elif ACT_LEAVES_SSE_ROUNDING_UP && defined(__SSE__)
  sse_rounding_left(call, _MM_ROUND_UP);
#elif ACT_LEAVES_SSE_ROUNDING_TO_ZERO && defined(__SSE__)
  sse_rounding_left(call, _MM_ROUND_TOWARD_ZERO);
#elif ACT_LEAVES_SSE_ROUNDING_LATER && defined(__SSE__)
  static int calls = 0;
  attention(call);
  if (++calls > 30) _MM_SET_ROUNDING_MODE(_MM_ROUND_DOWN);
#elif ACT_LEAVES_SSE_SUBNORMALS_FLUSHED && defined(__SSE__)
  attention(call);
  _mm_setcsr(_mm_getcsr() | 0x8000);
#elif ACT_LEAVES_SSE_SUBNORMALS_READ_AS_ZERO && defined(__SSE__)
  attention(call);
  _mm_setcsr(_mm_getcsr() | 0x0040);
#elif ACT_NONE
  attention(call);
#elif ACT_WAITS
  wait_a_minute();
#endif
  return AT_OK;
}
