// The threads of cpu_pool.h, compiled once and linked with every variant.
#include "cpu_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <unistd.h>

#include "launch.h"

namespace {

constexpr int MOST = 256;
constexpr int MADE = 0, SLEEPS = 1, SPINS_LONG = 3, OPENMP = 4;  // values of SYNC_POLICY

// Made and joined on every call ---------------------------------------------------------------------------------------

struct Worker {
  pool_task task;
  void *context;
  int thread;
};

void *work_once(void *argument) {
  Worker *self = (Worker *)argument;
  self->task(self->context, self->thread);
  return nullptr;
}

int run_made(pool_task task, void *context, int threads) {
  pthread_t handles[MOST];
  Worker workers[MOST];
  int started = 1;  // thread 0 is the caller
  for (; started < threads; ++started) {
    workers[started] = {task, context, started};
    if (pthread_create(&handles[started], nullptr, work_once, &workers[started]) != 0) break;
  }
  if (started == threads) task(context, 0);
  for (int i = 1; i < started; ++i) pthread_join(handles[i], nullptr);
  return started == threads ? AT_OK : AT_NO_THREADS;
}

// Kept ----------------------------------------------------------------------------------------------------------------

// Plain data without a destructor, on purpose: the workers are detached and never end, a variant is never unloaded, and
// at process exit nothing may be torn down under threads that still sleep here. The kernel ends them with the process.
struct Pool {
  pthread_mutex_t mutex;
  pthread_cond_t work, done;
  pool_task task;
  void *context;
  uint32_t round;     // counts calls; a worker runs once for every new value
  uint32_t running;   // workers that have not finished this round
  uint32_t sleepers;  // workers that may be asleep, or about to be
  uint32_t waiting;   // 1 while the caller may be asleep
  int tries;          // how often is looked before a thread sleeps
  int workers;
  pid_t owner;  // the process that the workers live in: a forked child has none of them
};
Pool pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER,
             nullptr, nullptr, 0, 0, 0, 0, 0, 0, 0};

// Sequential consistency throughout: "I announce, then look whether you sleep" against "I announce sleep, then look
// whether there is news" is wrong with anything weaker, and it happens twice a call, not in a loop that matters.
inline uint32_t read(uint32_t *x) { return __atomic_load_n(x, __ATOMIC_SEQ_CST); }
inline void write(uint32_t *x, uint32_t value) { __atomic_store_n(x, value, __ATOMIC_SEQ_CST); }

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Spins until (*x == value) is `wanted`. False when patience ran out. Yielding now and then costs little, and much is
// won where the thread that is waited for sits behind this one on the same core.
bool spin(uint32_t *x, uint32_t value, bool wanted, int tries) {
  for (int i = 1; i <= tries; ++i) {
    if ((read(x) == value) == wanted) return true;
    if (i % 64 == 0)
      sched_yield();
    else
      relax();
  }
  return false;
}

void await_work(uint32_t last, int tries) {
  if (spin(&pool.round, last, false, tries)) return;
  pthread_mutex_lock(&pool.mutex);
  __atomic_fetch_add(&pool.sleepers, 1, __ATOMIC_SEQ_CST);
  while (read(&pool.round) == last) pthread_cond_wait(&pool.work, &pool.mutex);
  __atomic_fetch_sub(&pool.sleepers, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&pool.mutex);
}

void finish() {
  if (__atomic_sub_fetch(&pool.running, 1, __ATOMIC_SEQ_CST) != 0 || read(&pool.waiting) == 0) return;
  pthread_mutex_lock(&pool.mutex);
  pthread_cond_signal(&pool.done);
  pthread_mutex_unlock(&pool.mutex);
}

// What a task leaves in registers is gone before the next, at a time when nobody waits for this thread.
void *work(void *argument) {
  const int thread = (int)(intptr_t)argument, tries = pool.tries;
  uint32_t last = 0;
  for (;;) {
    await_work(last, tries);
    last += 1;  // never two at once: the caller waits for every worker before it returns
    pool.task(pool.context, thread);
    finish();
    at_forget_registers();
  }
}

// Starts the workers on the first call, and again in a forked child. Those that the system refused are asked for again at
// the next call; the others have waited for its round meanwhile.
int start(int threads, int sync_policy) {
  const pid_t here = getpid();
  if (pool.owner != here)
    pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER,
            nullptr, nullptr, 0, 0, 0, 0, sync_policy == SLEEPS ? 1 : sync_policy == SPINS_LONG ? 5120 : 512, 0, here};
  if (pool.workers == threads - 1) return AT_OK;
  if (pool.round != 0) return AT_NO_THREADS;  // another number of threads than before
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t handle;
  while (pool.workers < threads - 1) {
    if (pthread_create(&handle, &attributes, work, (void *)(intptr_t)(pool.workers + 1)) != 0) break;
    pool.workers += 1;
  }
  pthread_attr_destroy(&attributes);
  return pool.workers == threads - 1 ? AT_OK : AT_NO_THREADS;
}

int run_kept(pool_task task, void *context, int threads, int sync_policy) {
  const int status = start(threads, sync_policy);
  if (status != AT_OK) return status;
  pool.task = task;
  pool.context = context;
  write(&pool.running, (uint32_t)(threads - 1));
  write(&pool.round, pool.round + 1);
  if (read(&pool.sleepers) != 0) {
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.mutex);
  }
  task(context, 0);
  if (spin(&pool.running, 0, true, pool.tries)) return AT_OK;
  pthread_mutex_lock(&pool.mutex);
  write(&pool.waiting, 1);
  while (read(&pool.running) != 0) pthread_cond_wait(&pool.done, &pool.mutex);
  write(&pool.waiting, 0);
  pthread_mutex_unlock(&pool.mutex);
  return AT_OK;
}

// Those of OpenMP -----------------------------------------------------------------------------------------------------

// GNU's runtime, as GCC's own code calls it. Weak: null where the process has none.
extern "C" {
__attribute__((weak, visibility("default"))) void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
__attribute__((weak, visibility("default"))) int omp_get_max_threads(void);
}

struct Team {
  pool_task task;
  void *context;
  uint32_t next, threads;
};

// The runtime says how many threads come, and when. Each takes the parts that are left, so that none is waited for that
// has nothing to do yet.
void work_in_team(void *argument) {
  Team *team = (Team *)argument;
  for (;;) {
    const uint32_t part = __atomic_fetch_add(&team->next, 1, __ATOMIC_RELAXED);
    if (part >= team->threads) return;
    team->task(team->context, (int)part);
    at_forget_registers();
  }
}

// The process of the first call: a forked child has none of the runtime's threads, and would wait for them.
pid_t first_owner = 0;

// A team as large as that of torch's operators: another size would end threads, and have them made again.
int run_openmp(pool_task task, void *context, int threads) {
  if (first_owner == 0) first_owner = getpid();
  if (GOMP_parallel == nullptr || omp_get_max_threads == nullptr || getpid() != first_owner)
    return run_kept(task, context, threads, OPENMP);
  Team team = {task, context, 0, (uint32_t)threads};
  GOMP_parallel(work_in_team, &team, (unsigned)omp_get_max_threads(), 0);
  return AT_OK;
}

}  // namespace

extern "C" int at_pool_run(pool_task task, void *context, int threads, int sync_policy) {
  if (threads < 2 || threads > MOST) return AT_NO_THREADS;
  if (sync_policy == MADE) return run_made(task, context, threads);
  return sync_policy == OPENMP ? run_openmp(task, context, threads) : run_kept(task, context, threads, sync_policy);
}
