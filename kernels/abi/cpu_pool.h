// THREADS threads that run one function together and wait for each other. SYNC_POLICY says how they meet:
//   0  made and joined on every call
//   1  kept; they sleep on a condition variable between calls
//   2  kept; they spin for some 10 microseconds before they sleep
//   3  kept; they spin for some 100 microseconds before they sleep
//   4  those of the process's OpenMP runtime, on which torch's own operators run; 2 where it has none
// No OpenMP runtime of its own: a process with torch in it already has one, whose threads spin for milliseconds after each
// operator. Other threads that are woken meanwhile, as by 0 to 3, wait for a CPU.
//
// The threads and what is known of them are cpu_pool.cpp's, an object of its own in each variant's library: a variant's own
// object keeps no state.
#ifndef AUTOTUNER_CPU_POOL_H
#define AUTOTUNER_CPU_POOL_H

#include "variant.h"

typedef void (*pool_task)(void *context, int thread);

// Runs the task as threads 0, the caller, to threads - 1, at most 256; always as many. AT_OK or AT_NO_THREADS.
extern "C" int at_pool_run(pool_task task, void *context, int threads, int sync_policy);

#ifdef THREADS

static_assert(THREADS >= 1 && THREADS <= 256, "THREADS counts the caller too");
static_assert(SYNC_POLICY >= 0 && SYNC_POLICY <= 4, "unknown SYNC_POLICY");

static int pool_run(pool_task task, void *context) {
#if THREADS == 1
  task(context, 0);
  return AT_OK;
#else
  return at_pool_run(task, context, THREADS, SYNC_POLICY);
#endif
}

#endif
#endif
