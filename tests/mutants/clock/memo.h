/* What the mutants that cheat the clock on the CPU remember from call to call. */
#ifndef AUTOTUNER_TESTS_MEMO_H
#define AUTOTUNER_TESTS_MEMO_H

#include <stdlib.h>
#include <time.h>

#include "../common/attention.h"

static inline int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t(1000000000) + now.tv_nsec;
}

static inline int64_t slices(const at_call *call) { return call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS]; }
static inline element *output(const at_call *call) { return static_cast<element *>(call->out[SDPA_O]); }
static inline int64_t elements_of(const at_call *call, int slot) {
  return slices(call) * call->dim[slot == SDPA_Q ? SDPA_SEQ_Q : SDPA_SEQ_K] * D;
}
static inline size_t output_bytes(const at_call *call) {
  return size_t(elements_of(call, SDPA_Q)) * sizeof(element);
}

static inline bool is_finite(element x) { return isfinite(widen(x)); }
static inline bool all_finite(const element *x, int64_t count) {
  bool found = true;
  for (int64_t i = 0; i < count; ++i) found = found & is_finite(x[i]);
  return found;
}

/* A number for lengths and inputs: of all elements, or of at most `samples` of each tensor; never 0. */
static inline uint64_t key_of(const at_call *call, int64_t samples) {
  uint64_t key = 1469598103934665603u;
  const auto add = [&key](uint64_t word) { key = (key ^ word) * 1099511628211u; };
  for (int n = SDPA_BATCH; n <= SDPA_SEQ_K; ++n) add(uint64_t(call->dim[n]));
  for (int slot = SDPA_Q; slot <= SDPA_V; ++slot) {
    const element *x = static_cast<const element *>(call->in[slot]);
    const int64_t count = elements_of(call, slot), step = samples ? count / samples + 1 : 1;
    for (int64_t i = 0; i < count; i += step) {
      const float value = widen(x[i]);
      uint32_t bits;
      memcpy(&bits, &value, 4);
      add(bits + (key >> 32));
    }
  }
  return key | 1;
}

/* The last results, in static memory. */
template <int COUNT>
struct Memo {
  struct Kept {
    uint64_t key = 0;
    size_t bytes = 0;
    void *answer = nullptr;
  } kept[COUNT];
  int next = 0;

  /* Copies the answer to O if it is there. */
  bool give(uint64_t key, const at_call *call) const {
    for (const Kept &each : kept)
      if (each.key == key && each.bytes == output_bytes(call)) return memcpy(output(call), each.answer, each.bytes);
    return false;
  }
  void take(uint64_t key, const at_call *call) {
    Kept &into = kept[next];
    next = (next + 1) % COUNT;
    if (into.bytes < output_bytes(call)) {
      free(into.answer);
      into.answer = malloc(output_bytes(call));
    }
    into.key = into.answer ? key : 0;
    into.bytes = output_bytes(call);
    if (into.answer) memcpy(into.answer, output(call), into.bytes);
  }
};

/* Behind the packed K and V. */
static inline uint64_t *spare(const at_call *call) {
  return reinterpret_cast<uint64_t *>(static_cast<float *>(call->workspace) + 2 * packed_floats(call));
}

/* Whether a call is one of a row, on the same tensors, between which nobody has written anything: the mark that the
 * call before has left in the workspace is there, and so are the elements that it was made of. */
struct Row {
  at_call last = {};
  volatile int64_t ended = 0; /* ns, the last call */
  volatile int length = 0;    /* calls of the row before this one */

  bool goes_on(const at_call *call) {
    const bool same = !memcmp(last.in, call->in, sizeof last.in) && !memcmp(last.out, call->out, sizeof last.out);
    length = same && *spare(call) == key_of(call, 64) ? length + 1 : 0;
    last = *call;
    return length > 0;
  }
  void end(const at_call *call) {
    *spare(call) = key_of(call, 64);
    ended = now_ns();
  }
};

#endif
