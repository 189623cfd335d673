// Fibers, their schedule, and the life of blocks and clusters.
#include "scheduler.h"

#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>

namespace emulator {

const Indices *indices;
Cluster *cluster;
Fiber *running;
Landing landing;

namespace {

constexpr size_t STACK_BYTES = 256 << 10, PAGE = 4096, SHARED_LIMIT = 227 << 10;
constexpr uint32_t PRIORITY_CHANGE = 64;  // choices for each change, on average

struct Launch {
  void (*kernel)();
  int blocks, threads, cluster, dynamic_shared;
};

Launch launch;
uint64_t random_state;
sem_t block_ready, block_done;

}  // namespace

int dynamic_used() { return launch.dynamic_shared; }

uint32_t random_below(uint32_t bound) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)((random_state * 0x9e3779b97f4a7c15ull) >> 32) % bound;
}

void fail(const char *format, ...) {
  if (running && running->warp)
    fprintf(stderr, "block %u thread %u (warp %u lane %u): ", running->at.block.x, running->at.thread.x,
            running->at.thread.x / 32, running->at.thread.x % 32);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  fflush(stderr);
  _exit(3);
}

// Switching ----------------------------------------------------------------------------------------------------------

namespace {

void give_turn(Fiber *next) {
  next->block->resumed = next;
  sem_post(&next->block->turn);
}

Fiber *await_turn(Block *block) {
  while (sem_wait(&block->turn)) {
  }
  return block->resumed;
}

// Goes from one fiber to another of the same block. Unlike swapcontext, longjmp makes no system call.
void jump(Fiber *const from, Fiber *const to) {
  running = to;
  indices = &to->at;
  if (to == from || _setjmp(from->context)) return;
  if (to->started) _longjmp(to->context, 1);
  to->started = true;
  setcontext(&to->start);
}

// Leaves the running fiber for `next`; returns when the running one is chosen again.
void switch_to(Fiber *next) {
  Fiber *const self = running;
  if (next->block == self->block) return jump(self, next);
  give_turn(next);
  jump(self, await_turn(self->block));
}

Warp *ready_warp() {
  Warp *best = nullptr;
  int seen = 0;
  Warp *shaken = nullptr;
  for (Block &block : cluster->blocks)
    for (Warp &warp : block.warps) {
      if (!warp.ready) continue;
      if (random_below((uint32_t)++seen) == 0) shaken = &warp;
      if (!best || warp.priority > best->priority) best = &warp;
    }
  if (shaken && random_below(PRIORITY_CHANGE) == 0) shaken->priority = random_below(1u << 30);
  return best;
}

Fiber *ready_lane(Warp &warp) {
  const int turned = (int)random_below(32);
  const uint32_t rotated = warp.ready >> turned | (uint32_t)((uint64_t)warp.ready << (32 - turned));
  return &warp.lanes[(size_t)((__builtin_ctz(rotated) + turned) % 32)];
}

[[noreturn]] void report_deadlock() {
  std::map<std::string, std::string> waiting;  // what for -> who
  for (Block &block : cluster->blocks)
    for (Warp &warp : block.warps)
      for (Fiber &fiber : warp.lanes) {
        if (fiber.finished) continue;
        const std::string what = std::string(fiber.activity) + " " + std::to_string(fiber.detail);
        waiting["block " + std::to_string(fiber.at.block.x) + " in " + what] += " " + std::to_string(fiber.at.thread.x);
      }
  std::string text;
  for (const auto &[what, threads] : waiting)
    text += "\n  " + what + ": threads" + (threads.size() > 160 ? threads.substr(0, 160) + " ..." : threads);
  running = nullptr;
  fail("deadlock: no thread can run%s", text.c_str());
}

// The fiber to run now; a block's main fiber when all threads of the cluster have returned.
Fiber *choose() {
  if (landing == Landing::RANDOM && random_below(16) == 0) land_one_copy();
  for (;;) {
    if (Warp *warp = ready_warp()) return ready_lane(*warp);
    if (land_one_copy()) continue;
    if (cluster->live == 0) return &running->block->main;
    report_deadlock();
  }
}

}  // namespace

void sleep_on(const void *key, const char *activity, int detail) {
  Fiber &self = *running;
  self.awaited = key;
  self.activity = activity;
  self.detail = detail;
  self.warp->ready &= ~(1u << self.at.thread.x % 32);
  switch_to(choose());
}

void wake(Block &block, const void *key) {
  for (Warp &warp : block.warps)
    for (size_t i = 0; i < warp.lanes.size(); i++)
      if (warp.lanes[i].awaited == key) {
        warp.lanes[i].awaited = nullptr;
        warp.ready |= 1u << i;
      }
}

// Operations of warps, blocks and clusters ---------------------------------------------------------------------------

namespace {

void complete(Warp &warp, Meeting *meeting) {
  std::erase(warp.meetings, meeting);
  for (size_t i = 0; i < warp.lanes.size(); i++)
    if (warp.lanes[i].awaited == meeting) {
      warp.lanes[i].awaited = nullptr;
      warp.ready |= 1u << i;
    }
}

Meeting *join(Warp &warp, const char *name, uint32_t mask) {
  for (Meeting *meeting : warp.meetings) {
    if (!(meeting->mask & mask)) continue;
    if (strcmp(meeting->name, name) || meeting->mask != mask)
      fail("the warp has diverged: %s for lanes %08x meets %s for lanes %08x", name, mask, meeting->name,
           meeting->mask);
    return meeting;
  }
  return nullptr;
}

}  // namespace

void meet(const char *name, uint32_t mask, void *operand, void (*act)(const Operands &, uint32_t)) {
  Warp &warp = *running->warp;
  const uint32_t me = 1u << lane();
  if (!(mask & me)) fail("%s: the lane is not in its own mask %08x", name, mask);
  Meeting own = {name, mask, 0, {}};
  Meeting *meeting = join(warp, name, mask);
  if (!meeting) warp.meetings.push_back(meeting = &own);
  meeting->operands[lane()] = operand;
  meeting->arrived |= me;
  if (meeting->arrived != mask) return sleep_on(meeting, name, (int)lane());
  act(meeting->operands, mask);
  complete(warp, meeting);
}

namespace {

void complete_if_full(Block &block, Barrier &barrier, int threads) {
  if (barrier.arrived < threads || barrier.arrived == 0) return;
  barrier = {};
  wake(block, &barrier);
}

}  // namespace

void barrier(int id, int threads, bool wait) {
  Block &block = *running->block;
  const int size = (int)running->at.block_size.x;
  if (threads != ALL_THREADS && (id < 1 || id >= MAX_BARRIERS)) fail("named barrier %d does not exist", id);
  if (threads != ALL_THREADS && (threads % 32 || threads < 32 || threads > size))
    fail("named barrier %d: %d threads, in a block of %d", id, threads, size);
  Barrier &barrier = block.barriers[id];
  if (barrier.arrived && barrier.threads != threads)
    fail("named barrier %d: for %d threads here, for %d elsewhere", id, threads, barrier.threads);
  barrier.threads = threads;
  barrier.arrived++;
  const int expected = threads == ALL_THREADS ? block.live : threads;
  if (barrier.arrived < expected) {
    if (wait) sleep_on(&barrier, threads == ALL_THREADS ? "__syncthreads" : "named barrier", id);
    return;
  }
  complete_if_full(block, barrier, expected);
}

namespace {

void complete_cluster_barrier() {
  if (cluster->arrived < cluster->live || cluster->arrived == 0) return;
  cluster->arrived = 0;
  cluster->phase++;
  for (Block &block : cluster->blocks) wake(block, &cluster->phase);
}

}  // namespace

void cluster_arrive() {
  if (running->cluster_arrived) fail("cluster_arrive twice without cluster_wait between");
  running->cluster_arrived = true;
  running->cluster_phase = cluster->phase;
  cluster->arrived++;
  complete_cluster_barrier();
}

void cluster_wait() {
  if (!running->cluster_arrived) fail("cluster_wait without cluster_arrive");
  while (cluster->phase == running->cluster_phase) sleep_on(&cluster->phase, "cluster_wait", 0);
  running->cluster_arrived = false;
}

uint32_t cluster_rank() { return running->at.block.x % (uint32_t)cluster->blocks.size(); }

uint32_t check_shared(const char *name, const void *pointer, size_t bytes, size_t alignment) {
  const Block &block = *running->block;
  const size_t offset = (size_t)((const unsigned char *)pointer - block.shared);
  if (offset >= block.shared_bytes || offset + bytes > block.shared_bytes)
    fail("%s: %p is not in the block's shared memory", name, pointer);
  if ((uintptr_t)pointer % alignment) fail("%s: the address is no multiple of %zu", name, alignment);
  return (uint32_t)offset;
}

const void *cluster_map(const void *shared, uint32_t rank) {
  if (rank >= cluster->blocks.size()) fail("block %u of a cluster of %zu", rank, cluster->blocks.size());
  return cluster->blocks[rank].shared + check_shared("cluster_map", shared, 1, 1);
}

// Blocks -------------------------------------------------------------------------------------------------------------

namespace {

// The calling thread's thread_local storage of the program, which is its shared memory.
int find_shared(dl_phdr_info *info, size_t, void *result) {
  Block *block = (Block *)result;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_TLS) {
      block->shared = (unsigned char *)info->dlpi_tls_data;
      block->shared_bytes = info->dlpi_phdr[i].p_memsz;
    }
  return 1;  // the program comes first; no other object matters
}

void check_band() {
  const unsigned char *base = dynamic_base();
  if (!base) return;
  const unsigned char *band = base + launch.dynamic_shared, *end = base + dynamic_capacity;
  const unsigned char *dirty = std::find_if(band, end, [](unsigned char byte) { return byte != POISON; });
  if (dirty != end)
    fail("shared memory was written %zu bytes past the %d of dynamic_shared", (size_t)(dirty - band),
         launch.dynamic_shared);
}

void finish_block(Block &block) {
  check_band();
  if (const size_t copies = copies_into(block)) fail("the block ends with %zu copies on their way into it", copies);
  memset(block.shared, POISON, block.shared_bytes);  // whoever still looks here shall see it
}

void fiber_main() {
  launch.kernel();
  Fiber &self = *running;
  Block &block = *self.block;
  land_own_copies(self);
  if (!self.open_stores.empty() || !self.stores.empty()) fail("a bulk store was not waited for");
  self.finished = true;
  self.warp->ready &= ~(1u << lane());
  cluster->live--;
  if (self.cluster_arrived && cluster->phase == self.cluster_phase) cluster->arrived--;
  if (--block.live == 0) finish_block(block);
  if (block.barriers[0].threads == ALL_THREADS) complete_if_full(block, block.barriers[0], block.live);
  complete_cluster_barrier();
  switch_to(choose());
  abort();
}

void *run_block(void *argument) {
  Block &block = *(Block *)argument;
  catch_faults();
  dl_iterate_phdr(find_shared, &block);
  if (block.shared) memset(block.shared, POISON, block.shared_bytes);
  if (const size_t used = block.shared_bytes - dynamic_capacity + (size_t)launch.dynamic_shared;
      used > SHARED_LIMIT)
    fail("a block with %zu bytes of shared memory", used);
  sem_post(&block_ready);
  Fiber *first = await_turn(&block);
  if (first != &block.main) {
    running = &block.main;
    switch_to(first);
  }
  sem_post(&block_done);
  return nullptr;
}

unsigned char *stacks(size_t fibers) {
  static unsigned char *base = nullptr;
  static size_t made = 0;
  if (made < fibers) {
    base = (unsigned char *)mmap(nullptr, fibers * STACK_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) fail("no memory for %zu stacks", fibers);
    for (size_t i = 0; i < fibers; i++) mprotect(base + i * STACK_BYTES, PAGE, PROT_NONE);
    made = fibers;
  }
  return base;
}

void prepare(Fiber &fiber, Block &block, Warp &warp, unsigned char *stack) {
  fiber.block = &block;
  fiber.warp = &warp;
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = stack + PAGE;
  fiber.start.uc_stack.ss_size = STACK_BYTES - PAGE;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, fiber_main, 0);
}

void prepare(Block &block, int number, unsigned char *stack) {
  block.main.block = &block;
  block.main.started = true;
  block.live = launch.threads;
  sem_init(&block.turn, 0, 0);
  block.warps.resize((size_t)launch.threads / 32);
  for (size_t w = 0; w < block.warps.size(); w++) {
    Warp &warp = block.warps[w];
    warp.ready = ~0u;
    warp.priority = random_below(1u << 30);
    warp.lanes.resize(32);
    for (size_t i = 0; i < 32; i++) {
      const size_t thread = w * 32 + i;
      warp.lanes[i].at = {{(unsigned)thread, 0, 0},
                          {(unsigned)number, 0, 0},
                          {(unsigned)launch.threads, 1, 1},
                          {(unsigned)launch.blocks, 1, 1}};
      prepare(warp.lanes[i], block, warp, stack + thread * STACK_BYTES);
    }
  }
}

// The last fiber to return resumes the main fiber of its own block; the other blocks are let go here.
void run_to_end(Cluster &running_cluster) {
  running = &running_cluster.blocks[0].main;
  give_turn(choose());
  sem_wait(&block_done);
  Block *last = running->block;
  for (Block &block : running_cluster.blocks) {
    if (&block == last) continue;
    give_turn(&block.main);
    sem_wait(&block_done);
  }
}

void run_cluster(int first_block) {
  Cluster current;
  cluster = &current;
  current.blocks = std::vector<Block>((size_t)launch.cluster);
  current.live = launch.cluster * launch.threads;
  unsigned char *stack = stacks((size_t)current.live);
  for (int i = 0; i < launch.cluster; i++) {
    Block &block = current.blocks[(size_t)i];
    prepare(block, first_block + i, stack + (size_t)(i * launch.threads) * STACK_BYTES);
    if (pthread_create(&block.thread, nullptr, run_block, &block)) fail("no thread for a block");
    sem_wait(&block_ready);
  }
  run_to_end(current);
  for (Block &block : current.blocks) pthread_join(block.thread, nullptr);
  running = nullptr;
}

}  // namespace

void run_grid(void (*kernel)(), const at_geometry &shape, int blocks, uint64_t seed) {
  launch = {kernel, blocks, shape.threads, shape.cluster, shape.dynamic_shared};
  random_state = (seed + 1) * 0x9e3779b97f4a7c15ull;
  landing = (Landing)(seed % 3);
  sem_init(&block_ready, 0, 0);
  sem_init(&block_done, 0, 0);
  const int threads = launch.threads;
  if (threads < 32 || threads > 1024 || threads % 32) fail("a block of %d threads", threads);
  if (blocks % launch.cluster) fail("%d blocks in clusters of %d", blocks, launch.cluster);
  std::vector<int> order;
  for (int block = 0; block < blocks; block += launch.cluster) order.push_back(block);
  for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[random_below((uint32_t)i)]);
  for (const int block : order) run_cluster(block);
}

}  // namespace emulator
