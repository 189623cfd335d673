/* Runs a CPU variant in a program that is built with a sanitizer: neither Python nor torch is in the process.
 *
 *   sanitized PROGRESS CALL...
 *
 * A CALL file is, as int64, the number of sizes, of scalars, of inputs and of outputs; the sizes as int64, the scalars as
 * double, the bytes of each input and of each output as int64 and their strides, AT_MAX_RANK each; then the inputs. Every
 * tensor and the workspace is a block of the heap of exactly its size, so that each lies between red zones
 * of its own. PROGRESS gets a line when the process is ready, after each call that was done, and for a status other
 * than 0. Results are not looked at: the other checks of the gate do that. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "identity.h"

/* Memory that is never freed is not what is looked for, nor is the order of locks. The runtimes ask these functions. */
#define OPTIONS extern "C" __attribute__((visibility("default"), used)) const char *
OPTIONS __asan_default_options() { return "detect_leaks=0"; }
OPTIONS __ubsan_default_options() { return "print_stacktrace=1"; }
OPTIONS __tsan_default_options() { return "halt_on_error=1:detect_deadlocks=0:report_thread_leaks=0"; }

namespace {

constexpr int RUNS = 4;
constexpr int64_t MOST_WORKSPACE = 1 << 30;

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

/* Reads numbers of one type from where it stands. */
template <class T>
const char *take(const char *from, T *to, int64_t count) {
  memcpy(to, from, count * sizeof(T));
  return from + count * sizeof(T);
}

std::vector<std::unique_ptr<Block>> blocks(const char *&from, int64_t count) {
  std::vector<int64_t> sizes(count);
  from = take(from, sizes.data(), count);
  std::vector<std::unique_ptr<Block>> made;
  for (const int64_t size : sizes) made.emplace_back(new Block(size, 16));
  return made;
}

int do_call(const std::vector<char> &bytes) {
  int64_t counts[4];
  at_call call = {};
  const char *from = take(bytes.data(), counts, 4);
  from = take(from, call.dim, counts[0]);
  from = take(from, call.scalar, counts[1]);
  const auto inputs = blocks(from, counts[2]), outputs = blocks(from, counts[3]);
  from = take(from, &call.in_stride[0][0], counts[2] * AT_MAX_RANK);
  from = take(from, &call.out_stride[0][0], counts[3] * AT_MAX_RANK);
  const int64_t wanted = variant_identity.workspace(&call);
  if (wanted < 0 || wanted > MOST_WORKSPACE) return AT_NO_WORKSPACE;
  Block workspace(wanted, 64);
  for (size_t i = 0; i < inputs.size(); ++i) call.in[i] = inputs[i]->at;
  for (size_t i = 0; i < outputs.size(); ++i) call.out[i] = outputs[i]->at;
  call.workspace = workspace.at, call.workspace_bytes = workspace.size;
  for (int i = 0; i < RUNS; ++i) {
    // All of it is written before each run and freed after the last: a thread that is still at work is seen.
    const char *contents = from;
    for (const auto &input : inputs) contents = take(contents, (char *)input->at, input->size);
    for (const auto &output : outputs) output->fill(0xFF);  // a NaN in every element type
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
