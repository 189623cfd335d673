// cp.async, transaction barriers and bulk tensor copies. A copy lands at any legal moment, as the seed has it.
#include <string.h>

#include <algorithm>
#include <functional>

#include "scheduler.h"
#include "tensor_map.h"

namespace emulator {

// cp.async -----------------------------------------------------------------------------------------------------------

namespace {

void land(const AsyncCopy &copy) {
  if (copy.valid)
    memcpy(copy.shared, copy.global, copy.bytes);
  else
    memset(copy.shared, 0, copy.bytes);
}

bool lands_now() { return landing == Landing::AT_ISSUE || (landing == Landing::RANDOM && random_below(2)); }

}  // namespace

void copy_async(void *shared, const void *global, size_t bytes, bool valid) {
  check_shared("cp_async", shared, bytes, bytes);
  check_global("cp_async", global, bytes);
  if ((uintptr_t)global % bytes) fail("cp_async: the global address is no multiple of %zu", bytes);
  const AsyncCopy copy = {shared, global, bytes, valid};
  if (lands_now())
    land(copy);
  else
    running->open_group.push_back(copy);
}

void copy_commit() {
  running->groups.push_back(std::move(running->open_group));
  running->open_group.clear();
}

void copy_wait(int pending_groups) {
  auto &groups = running->groups;
  while ((int)groups.size() > pending_groups) {
    for (const AsyncCopy &copy : groups.front()) land(copy);
    groups.pop_front();
  }
}

void land_own_copies(Fiber &fiber) {
  fiber.groups.push_back(std::move(fiber.open_group));
  for (const auto &group : fiber.groups)
    for (const AsyncCopy &copy : group) land(copy);
  fiber.groups.clear();
}

// Transaction barriers -----------------------------------------------------------------------------------------------

namespace {

struct State {
  uint16_t expected, pending;  // arrivals a phase, arrivals still to come
  int32_t transactions : 31;
  uint32_t phase : 1;
};
static_assert(sizeof(State) == sizeof(uint64_t));

constexpr uint16_t UNINITIALISED = POISON << 8 | POISON;

// The block whose shared memory holds the address.
Block &owner(const void *address) {
  for (Block &block : cluster->blocks)
    if ((size_t)((const unsigned char *)address - block.shared) < block.shared_bytes) return block;
  fail("mbarrier: %p is in no shared memory", address);
}

State &state(const char *name, uint64_t *barrier) {
  State &found = *(State *)barrier;
  if (found.expected == UNINITIALISED) fail("%s: the barrier is not initialised", name);
  return found;
}

void complete_phase_if_due(uint64_t *barrier) {
  State &now = *(State *)barrier;
  if (now.pending || now.transactions) return;
  now.pending = now.expected;
  now.phase ^= 1;
  wake(owner(barrier), barrier);
}

void arrive(const char *name, uint64_t *barrier, int32_t bytes) {
  State &now = state(name, barrier);
  if (now.pending == 0) fail("%s: more arrivals than the %d of a phase", name, now.expected);
  now.transactions += bytes;
  now.pending--;
  complete_phase_if_due(barrier);
}

uint64_t *mapped(const char *name, uint64_t *barrier, uint32_t rank) {
  check_shared(name, barrier, 8, 8);
  return (uint64_t *)cluster_map(barrier, rank);
}

}  // namespace

void mbarrier_init(uint64_t *barrier, uint32_t arrivals) {
  check_shared("mbarrier_init", barrier, 8, 8);
  if (arrivals < 1 || arrivals > 1024) fail("mbarrier_init: %u arrivals", arrivals);
  *(State *)barrier = {(uint16_t)arrivals, (uint16_t)arrivals, 0, 0};
}

void mbarrier_expect(uint64_t *barrier, uint32_t bytes) {
  check_shared("mbarrier_expect", barrier, 8, 8);
  arrive("mbarrier_expect", barrier, (int32_t)bytes);
}

void mbarrier_arrive(uint64_t *barrier, uint32_t rank) {
  arrive("mbarrier_arrive", mapped("mbarrier_arrive", barrier, rank), 0);
}

void mbarrier_wait(uint64_t *barrier, uint32_t parity) {
  const uint32_t offset = check_shared("mbarrier_wait", barrier, 8, 8);
  if (parity > 1) fail("mbarrier_wait: parity %u", parity);
  while (state("mbarrier_wait", barrier).phase == parity) sleep_on(barrier, "mbarrier_wait at offset", (int)offset);
}

// Copies that complete on a transaction barrier ----------------------------------------------------------------------

namespace {

// Bytes on their way into one block.
struct Flight {
  Block *block;
  uint64_t *barrier;
  int32_t bytes;
  std::function<void()> write;
};

std::vector<Flight> flying;

// Copies into block `rank` of the cluster; completes on the barrier of the same name there.
void take_off(const char *name, uint32_t rank, uint64_t *barrier, size_t bytes, std::function<void()> write) {
  flying.push_back({&cluster->blocks[rank], mapped(name, barrier, rank), (int32_t)bytes, std::move(write)});
  while (landing == Landing::AT_ISSUE && land_one_copy()) {
  }
}

}  // namespace

bool land_one_copy() {
  if (flying.empty()) return false;
  std::swap(flying[random_below((uint32_t)flying.size())], flying.back());
  const Flight flight = std::move(flying.back());
  flying.pop_back();
  if (flight.block->live == 0) fail("a copy lands in a block that has ended");
  flight.write();
  state("an asynchronous copy", flight.barrier).transactions -= flight.bytes;
  complete_phase_if_due(flight.barrier);
  return true;
}

size_t copies_into(const Block &block) {
  const auto into_it = [&](const Flight &flight) { return flight.block == &block; };
  return (size_t)std::count_if(flying.begin(), flying.end(), into_it);
}

void store_async(float4 *shared, float4 x, uint64_t *barrier, uint32_t rank) {
  check_shared("store_async_16", shared, 16, 16);
  auto *target = (float4 *)cluster_map(shared, rank);
  take_off("store_async_16", rank, barrier, 16, [=] { *target = x; });
}

// Bulk tensor copies -------------------------------------------------------------------------------------------------

namespace {

constexpr int LONGEST_ROW = 128, CHUNK = 16;

struct Box {
  unsigned char *shared;
  TensorMap map;
  int x, y, z, w;
};

bool inside(const TensorMap &map, int64_t x, int64_t y, int64_t z) {
  return x >= 0 && x < map.head_dim && y >= 0 && y < map.seq && z >= 0 && z < map.slices;
}

void write_row(const Box &box, int row) {
  const TensorMap &map = box.map;
  unsigned char elements[LONGEST_ROW] = {};
  const int64_t y = box.y + row;
  const int bytes = map.element_bytes;
  for (int i = 0; i < map.columns; i++)
    if (inside(map, box.x + i, y, box.z))
      memcpy(elements + i * bytes, map.base + (map.place(y, box.z, box.w) + box.x + i) * bytes, (size_t)bytes);
  for (int at = 0; at < map.row_bytes(); at += CHUNK)
    memcpy(box.shared + swizzled((uint32_t)(row * map.row_bytes() + at), map.row_bytes()), elements + at, CHUNK);
}

void write(const Box &box) {
  for (int row = 0; row < box.map.rows; row++) write_row(box, row);
}

}  // namespace

void tma_load(void *shared, const void *map, int x, int y, int z, uint64_t *barrier, uint32_t blocks, int w) {
  TensorMap wanted;
  memcpy(&wanted, map, sizeof wanted);
  if (wanted.magic != TENSOR_MAP_MAGIC) fail("tma_load: not a tensor map (is geometry.tma_rows set?)");
  if ((w >= 0) != (wanted.batches > 0)) fail("tma_load: the map has another number of dimensions");
  if (w >= wanted.batches && w >= 0) fail("tma_load: batch %d of %d", w, (int)wanted.batches);
  const size_t bytes = (size_t)(wanted.rows * wanted.row_bytes());
  check_shared("tma_load", shared, bytes, (size_t)(8 * wanted.row_bytes()));
  if (blocks == 0 || blocks >> cluster->blocks.size()) fail("tma_load: blocks %x of the cluster", blocks);
  for (uint32_t rank = 0; rank < cluster->blocks.size(); rank++) {
    if (!(blocks >> rank & 1)) continue;
    const Box box = {(unsigned char *)cluster_map(shared, rank), wanted, x, y, z, w};
    take_off("tma_load", rank, barrier, bytes, [=] { write(box); });
  }
}

}  // namespace emulator
