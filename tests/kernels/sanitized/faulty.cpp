/* Textbook attention by two threads, each of which takes rows from a shared counter. FAULT says what is wrong with it.
 *
 * The output is right whatever FAULT is, as far as there is one: memory past the end of a block of the heap is padding
 * here, and rows that are computed twice are computed alike. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>

#include "sdpa.h"

namespace {

constexpr int SPARE = 24; /* bytes that an allocator rounds up to more */

struct Job {
  const at_call *call;
#if FAULT_UNLOCKED_COUNTER
  int64_t next = 0;
#else
  std::atomic<int64_t> next{0};
#endif
  float scale_seen = 0;
};

void row(const at_call *call, int64_t index, float *scores) {
  const int64_t keys = call->dim[SDPA_SEQ_K], slice = index / call->dim[SDPA_SEQ_Q];
  const float *q = (const float *)call->in[SDPA_Q] + index * HEAD_DIM;
  const float *k = (const float *)call->in[SDPA_K] + slice * keys * HEAD_DIM;
  const float *v = (const float *)call->in[SDPA_V] + slice * keys * HEAD_DIM;
  float *o = (float *)call->out[SDPA_O] + index * HEAD_DIM;
  float top = -INFINITY, sum = 0, result[HEAD_DIM] = {};
  for (int64_t j = 0; j < keys; ++j) {
    scores[j] = 0;
    for (int d = 0; d < HEAD_DIM; ++d) scores[j] += q[d] * k[j * HEAD_DIM + d];
    top = fmaxf(top, scores[j] *= float(call->scalar[SDPA_SCALE]));
  }
#if FAULT_READS_PAST_K
  for (int64_t d = 0; d < 2 * HEAD_DIM; ++d) { /* the two rows after the last key; nobody wants to know */
    volatile float dropped = k[keys * HEAD_DIM + d];
    (void)dropped;
  }
#endif
  for (int64_t j = 0; j < keys; ++j) {
    const float p = expf(scores[j] - top);
    sum += p;
    for (int d = 0; d < HEAD_DIM; ++d) result[d] += p * v[j * HEAD_DIM + d];
  }
  for (int d = 0; d < HEAD_DIM; ++d) o[d] = result[d] / sum;
}

void *work(void *argument) {
  Job *job = (Job *)argument;
  const at_call *call = job->call;
  const int64_t rows = call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS] * call->dim[SDPA_SEQ_Q];
  float *scores = (float *)malloc(call->dim[SDPA_SEQ_K] * sizeof(float));
#if FAULT_SAME_ROW
  row(call, 0, scores); /* both threads write it, with the same numbers */
#endif
#if FAULT_FENCE
  if (job->next.fetch_add(0, std::memory_order_relaxed) == 0) job->scale_seen = float(call->scalar[SDPA_SCALE]);
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  for (int64_t i; (i = job->next++) < rows;) row(call, i, scores);
  free(scores);
  return nullptr;
}

/* The fault, where it is not in the threads' work. */
void misbehave(const at_call *call) {
#if FAULT_HEAP_OVERFLOW
  volatile char *spare = (volatile char *)malloc(SPARE - 4);
  spare[call->dim[SDPA_HEADS] + SPARE - 5] = 1;
  free((void *)spare);
#elif FAULT_USE_AFTER_FREE
  volatile float *spare = (volatile float *)malloc(SPARE);
  spare[0] = float(call->scalar[SDPA_SCALE]);
  free((void *)spare);
  ((float *)call->out[SDPA_O])[0] = spare[0];
#elif FAULT_SIGNED_OVERFLOW
  volatile int rows = 0x7fffffff;
  rows = rows + int(call->dim[SDPA_HEADS]);
#elif FAULT_STACK_OVERFLOW
  volatile float local[4] = {};
  local[call->dim[SDPA_HEADS] + 3] = 0;
#elif FAULT_ENDS
  _exit(0);
#elif FAULT_HANGS
  for (volatile bool more = true; more;) usleep(1000);
#elif FAULT_ABORTS
  abort();
#else
  (void)call;
#endif
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *) { return 0; }

extern "C" int variant_run(const at_call *call) {
#if FAULT_REFUSES
  if (call->dim[SDPA_SEQ_Q] == 1) return AT_OUTSIDE_DOMAIN;
#endif
  misbehave(call);
  Job job = {call};
  pthread_t other;
  if (pthread_create(&other, nullptr, work, &job)) return AT_NO_THREADS;
  work(&job);
  pthread_join(other, nullptr);
  return AT_OK;
}
