// THREADS threads that run one function together and wait for each other. SYNC_POLICY says how they meet:
//   0  made and joined on every call
//   1  kept; they sleep on a condition variable between calls
//   2  kept; they spin for some 10 microseconds before they sleep
//   3  kept; they spin for some 100 microseconds before they sleep
//   4  those of the process's OpenMP runtime, on which torch's own operators run; 2 where it has none
// No OpenMP runtime of its own: a process with torch in it already has one, whose threads spin for milliseconds after each
// operator. Other threads that are woken meanwhile, as by 0 to 3, wait for a CPU.
#ifndef AUTOTUNER_CPU_POOL_H
#define AUTOTUNER_CPU_POOL_H

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <unistd.h>

#include "variant.h"

typedef void (*pool_task)(void *context, int thread);

static_assert(THREADS >= 1 && THREADS <= 256, "THREADS counts the caller too");
static_assert(SYNC_POLICY >= 0 && SYNC_POLICY <= 4, "unknown SYNC_POLICY");

#if THREADS == 1

static int pool_run(pool_task task, void *context) {
  task(context, 0);
  return AT_OK;
}

#elif SYNC_POLICY == 0

struct pool_worker {
  pool_task task;
  void *context;
  int thread;
};

static void *pool_main(void *argument) {
  pool_worker *self = (pool_worker *)argument;
  self->task(self->context, self->thread);
  return nullptr;
}

static int pool_run(pool_task task, void *context) {
  pthread_t handles[THREADS];
  pool_worker workers[THREADS];
  int started = 1;  // thread 0 is the caller
  for (; started < THREADS; ++started) {
    workers[started] = {task, context, started};
    if (pthread_create(&handles[started], nullptr, pool_main, &workers[started]) != 0) break;
  }
  if (started == THREADS) task(context, 0);
  for (int i = 1; i < started; ++i) pthread_join(handles[i], nullptr);
  return started == THREADS ? AT_OK : AT_NO_THREADS;
}

#else

// Plain data without a destructor, on purpose: the workers are detached and never end, a variant is never unloaded, and
// at process exit nothing may be torn down under threads that still sleep here. The kernel ends them with the process.
struct pool_state {
  pthread_mutex_t mutex;
  pthread_cond_t work, done;
  pool_task task;
  void *context;
  uint32_t round;     // counts calls; a worker runs once for every new value
  uint32_t running;   // workers that have not finished this round
  uint32_t sleepers;  // workers that may be asleep, or about to be
  uint32_t waiting;   // 1 while the caller may be asleep
  pid_t owner;        // the process that the workers live in: a forked child has none of them
  int workers;
};
static pool_state pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER,
                          nullptr, nullptr, 0, 0, 0, 0, 0, 0};

// Sequential consistency throughout: "I announce, then look whether you sleep" against "I announce sleep, then look
// whether there is news" is wrong with anything weaker, and it happens twice a call, not in a loop that matters.
static inline uint32_t pool_read(uint32_t *x) { return __atomic_load_n(x, __ATOMIC_SEQ_CST); }
static inline void pool_write(uint32_t *x, uint32_t value) { __atomic_store_n(x, value, __ATOMIC_SEQ_CST); }

static inline void pool_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Spins until (*x == value) is `wanted`. False when patience ran out. Yielding now and then costs little, and much is
// won where the thread that is waited for sits behind this one on the same core.
static bool pool_spin(uint32_t *x, uint32_t value, bool wanted) {
  constexpr int tries = SYNC_POLICY == 1 ? 1 : SYNC_POLICY == 3 ? 5120 : 512;
  for (int i = 1; i <= tries; ++i) {
    if ((pool_read(x) == value) == wanted) return true;
    if (i % 64 == 0)
      sched_yield();
    else
      pool_relax();
  }
  return false;
}

static void pool_await_work(uint32_t last) {
  if (pool_spin(&pool.round, last, false)) return;
  pthread_mutex_lock(&pool.mutex);
  __atomic_fetch_add(&pool.sleepers, 1, __ATOMIC_SEQ_CST);
  while (pool_read(&pool.round) == last) pthread_cond_wait(&pool.work, &pool.mutex);
  __atomic_fetch_sub(&pool.sleepers, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&pool.mutex);
}

static void pool_finish() {
  if (__atomic_sub_fetch(&pool.running, 1, __ATOMIC_SEQ_CST) != 0 || pool_read(&pool.waiting) == 0) return;
  pthread_mutex_lock(&pool.mutex);
  pthread_cond_signal(&pool.done);
  pthread_mutex_unlock(&pool.mutex);
}

static void *pool_main(void *argument) {
  const int thread = (int)(intptr_t)argument;
  uint32_t last = 0;
  for (;;) {
    pool_await_work(last);
    last += 1;  // never two at once: the caller waits for every worker before it returns
    pool.task(pool.context, thread);
    pool_finish();
  }
}

// Starts the workers on the first call, and again in a forked child. Those that the system refused are asked for again at
// the next call; the others have waited for its round meanwhile.
static int pool_start() {
  const pid_t here = getpid();
  if (pool.owner != here)
    pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, nullptr, nullptr, 0, 0, 0, 0,
            here, 0};
  if (pool.workers == THREADS - 1) return AT_OK;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t handle;
  while (pool.workers < THREADS - 1) {
    if (pthread_create(&handle, &attributes, pool_main, (void *)(intptr_t)(pool.workers + 1)) != 0) break;
    pool.workers += 1;
  }
  pthread_attr_destroy(&attributes);
  return pool.workers == THREADS - 1 ? AT_OK : AT_NO_THREADS;
}

static int pool_run_kept(pool_task task, void *context) {
  const int status = pool_start();
  if (status != AT_OK) return status;
  pool.task = task;
  pool.context = context;
  pool_write(&pool.running, THREADS - 1);
  pool_write(&pool.round, pool.round + 1);
  if (pool_read(&pool.sleepers) != 0) {
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.mutex);
  }
  task(context, 0);
  if (pool_spin(&pool.running, 0, true)) return AT_OK;
  pthread_mutex_lock(&pool.mutex);
  pool_write(&pool.waiting, 1);
  while (pool_read(&pool.running) != 0) pthread_cond_wait(&pool.done, &pool.mutex);
  pool_write(&pool.waiting, 0);
  pthread_mutex_unlock(&pool.mutex);
  return AT_OK;
}

#if SYNC_POLICY == 4

// GNU's runtime, as GCC's own code calls it. Weak: null where the process has none.
extern "C" {
__attribute__((weak, visibility("default"))) void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
__attribute__((weak, visibility("default"))) int omp_get_max_threads(void);
}

struct pool_team {
  pool_task task;
  void *context;
  uint32_t next;
};

// The runtime says how many threads come, and when. Each takes the parts that are left, so that none is waited for that
// has nothing to do yet.
static void pool_member(void *argument) {
  pool_team *team = (pool_team *)argument;
  for (;;) {
    const uint32_t part = __atomic_fetch_add(&team->next, 1, __ATOMIC_RELAXED);
    if (part >= THREADS) return;
    team->task(team->context, (int)part);
  }
}

// The process of the first call: a forked child has none of the runtime's threads, and would wait for them.
static pid_t pool_first = 0;

// A team as large as that of torch's operators: another size would end threads, and have them made again.
static int pool_run(pool_task task, void *context) {
  if (pool_first == 0) pool_first = getpid();
  if (GOMP_parallel == nullptr || omp_get_max_threads == nullptr || getpid() != pool_first)
    return pool_run_kept(task, context);
  pool_team team = {task, context, 0};
  GOMP_parallel(pool_member, &team, (unsigned)omp_get_max_threads(), 0);
  return AT_OK;
}

#else

static int pool_run(pool_task task, void *context) { return pool_run_kept(task, context); }

#endif
#endif
#endif
