// The runtime's view of a cluster that runs: blocks, warps, fibers, and who may run next.
//
// One fiber runs at a time. A block is a thread of the operating system (so that thread_local is its shared memory) and
// waits on a semaphore until the turn is given to one of its fibers. Which fiber goes on is drawn from the seed: warps
// have random priorities that change now and then, so that one warp may run far ahead of another.
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include <semaphore.h>
#include <setjmp.h>
#include <ucontext.h>

#include <deque>
#include <functional>
#include <vector>

#include "emulator.h"
#include "geometry.h"

namespace emulator {

constexpr int MAX_BARRIERS = 16;
constexpr unsigned char POISON = 0xff;  // a NaN in every float format

struct Block;
struct Warp;

// When an asynchronous copy lands: all moments between its issue and its wait are legal.
enum class Landing { AT_ISSUE, WHEN_WAITED_FOR, RANDOM };

struct AsyncCopy {
  void *shared;
  const void *global;
  size_t bytes;
  bool valid;
};

struct Fiber {
  Indices at;
  Block *block = nullptr;
  Warp *warp = nullptr;
  ucontext_t start;
  jmp_buf context;
  bool started = false;
  bool finished = false;
  const void *awaited = nullptr;      // what wakes it
  const char *activity = "";          // what it waits in, for the report of a deadlock
  int detail = 0;                     // which one
  std::deque<std::vector<AsyncCopy>> groups;  // committed, oldest first
  std::vector<AsyncCopy> open_group;
  std::vector<std::function<void()>> open_stores, stores;  // bulk stores; committed ones
  bool cluster_arrived = false;
  uint64_t cluster_phase = 0;  // the phase it arrived in
};

// Lanes on their way to one warp-wide operation; lies on the stack of the lane that came first.
struct Meeting {
  const char *name;
  uint32_t mask, arrived;
  Operands operands;
};

struct Warp {
  std::vector<Fiber> lanes;
  std::vector<Meeting *> meetings;
  std::vector<std::function<void()>> open;                // products of warpgroups
  std::deque<std::vector<std::function<void()>>> groups;  // committed, oldest first
  uint32_t ready = 0;                                     // a bit a lane
  uint32_t priority = 0;
};

struct Barrier {
  int arrived = 0, threads = 0;
};

struct Block {
  std::vector<Warp> warps;
  Barrier barriers[MAX_BARRIERS];
  int live = 0;     // threads that have not returned
  Fiber main;       // the operating system's thread outside the kernel
  Fiber *resumed = nullptr;
  sem_t turn;
  pthread_t thread;
  unsigned char *shared = nullptr;  // its thread_local storage
  size_t shared_bytes = 0;
};

struct Cluster {
  std::vector<Block> blocks;
  int live = 0;
  int arrived = 0;  // at the cluster's barrier
  uint64_t phase = 0;
};

extern Cluster *cluster;
extern Fiber *running;
extern Landing landing;

uint32_t random_below(uint32_t bound);

// Waits until wake(key); `activity` and `detail` say in a report what for.
void sleep_on(const void *key, const char *activity, int detail);
void wake(Block &block, const void *key);

// Copies that complete on a transaction barrier; the scheduler lets them land.
bool land_one_copy();
size_t copies_into(const Block &block);
void land_own_copies(Fiber &fiber);

// The value of each 16-bit pattern.
const float *element_values(bool bfloat16);

// Bytes of dynamic shared memory of a block.
int dynamic_used();

// Launching ----------------------------------------------------------------------------------------------------------

// Runs all blocks of a grid, cluster after cluster; `kernel` calls the kernel with its arguments.
void run_grid(void (*kernel)(), const at_geometry &shape, int blocks, uint64_t seed);

// Fails unless the bytes lie in one of the tensors.
void check_global(const char *name, const void *pointer, size_t bytes);

// Makes faults of the calling thread into messages.
void catch_faults();

}  // namespace emulator

#endif
