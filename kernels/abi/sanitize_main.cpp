/* Runs a CPU variant in a program that is built with a sanitizer: neither Python nor torch is in the process.
 *
 *   sanitized PROGRESS CALL...
 *
 * A CALL file is batch, heads, seq_q, seq_k, the bytes of Q and the bytes of K as int64, the scale as a double, then Q, K
 * and V. Every tensor and the workspace is a block of the heap of exactly its size, so that each lies between red zones
 * of its own. PROGRESS gets a line when the process is ready, after each call that was done, and for a status other
 * than 0. Results are not looked at: the other checks of the gate do that. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <vector>

#include "identity.h"
#include "sdpa.h"

/* Memory that is never freed is not what is looked for, nor is the order of locks. The runtimes ask these functions. */
#define OPTIONS extern "C" __attribute__((visibility("default"), used)) const char *
OPTIONS __asan_default_options() { return "detect_leaks=0"; }
OPTIONS __ubsan_default_options() { return "print_stacktrace=1"; }
OPTIONS __tsan_default_options() { return "halt_on_error=1:detect_deadlocks=0:report_thread_leaks=0"; }

namespace {

constexpr int RUNS = 4;
constexpr int64_t MOST_WORKSPACE = 1 << 30;

struct Header {
  int64_t dims[4];
  int64_t q_bytes, k_bytes;
  double scale;
};

struct Block {
  void *at = nullptr;
  size_t size;

  Block(size_t size, size_t alignment) : size(size) {
    if (size && posix_memalign(&at, alignment, size)) abort();
  }
  Block(const Block &) = delete;
  ~Block() { free(at); }
  void fill(int byte) {
    if (size) memset(at, byte, size);
  }
};

std::vector<char> contents(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) abort();
  std::vector<char> bytes;
  char part[4096];
  for (size_t count; (count = fread(part, 1, sizeof part, file)) > 0;) bytes.insert(bytes.end(), part, part + count);
  fclose(file);
  return bytes;
}

struct Run {
  const at_call *call;
  int status;
};

void *run(void *argument) {
  Run *self = (Run *)argument;
  self->status = variant_identity.run(self->call);
  return nullptr;
}

/* Odd runs come from a thread of their own: a variant is called from any thread, one call at a time. */
int run_from(bool another, const at_call *call) {
  Run one = {call, 0};
  pthread_t thread;
  if (!another || pthread_create(&thread, nullptr, run, &one))
    run(&one);
  else
    pthread_join(thread, nullptr);
  return one.status;
}

int do_call(const std::vector<char> &bytes) {
  Header header;
  memcpy(&header, bytes.data(), sizeof header);
  const char *from = bytes.data() + sizeof header;
  Block q(header.q_bytes, 16), k(header.k_bytes, 16), v(header.k_bytes, 16), o(header.q_bytes, 16);
  at_call call = {};
  memcpy(call.dim, header.dims, sizeof header.dims);
  call.scalar[SDPA_SCALE] = header.scale;
  const int64_t wanted = variant_identity.workspace(&call);
  if (wanted < 0 || wanted > MOST_WORKSPACE) return AT_NO_WORKSPACE;
  Block workspace(wanted, 64);
  call.in[SDPA_Q] = q.at, call.in[SDPA_K] = k.at, call.in[SDPA_V] = v.at, call.out[SDPA_O] = o.at;
  call.workspace = workspace.at, call.workspace_bytes = workspace.size;
  for (int i = 0; i < RUNS; ++i) {
    // All of it is written before each run and freed after the last: a thread that is still at work is seen.
    memcpy(q.at, from, q.size);
    memcpy(k.at, from + q.size, k.size);
    memcpy(v.at, from + q.size + k.size, v.size);
    o.fill(0xFF);  // a NaN in every element type
    workspace.fill(i % 2 ? 0xFF : 0x7B);
    if (const int status = run_from(i % 2, &call)) return status;
  }
  return AT_OK;
}

}  // namespace

int main(int count, char **arguments) {
  FILE *progress = fopen(arguments[1], "w");
  if (!progress) return 1;
  setlinebuf(progress);
  fputs("ready\n", progress);
  for (int i = 2; i < count; ++i) {
    if (const int status = do_call(contents(arguments[i])))
      return fprintf(progress, "status %d\n", status), 1;
    fputs("done\n", progress);
  }
  _exit(0);  // threads that a variant keeps must not meet what the end of a process takes down
}
