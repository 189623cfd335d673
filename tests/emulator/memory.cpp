#include "memory.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <list>

#include "scheduler.h"

namespace emulator {

namespace {

constexpr size_t PAGE = 4096;

std::list<Region> regions;

bool near(const Region &region, const unsigned char *address) {
  return address >= region.pages - PAGE && address < region.pages + region.mapped + PAGE;
}

void check_slack(const Region &region) {
  const auto dirty = [](unsigned char byte) { return byte != POISON; };
  unsigned char *end = region.data + region.bytes, *last = region.pages + region.mapped;
  unsigned char *before = std::find_if(region.pages, region.data, dirty), *after = std::find_if(end, last, dirty);
  if (before != region.data) fail("%s was written %zu bytes before its start", region.name, region.data - before);
  if (after != last) fail("%s was written %zu bytes past its end", region.name, after - end);
}

// A fault of the kernel in words.
void report_fault(int signal, siginfo_t *info, void *) {
  const auto *address = (const unsigned char *)info->si_addr;
  if (signal != SIGSEGV) fail("signal %d at %p", signal, info->si_addr);
  for (const Region &region : regions)
    if (near(region, address))
      fail("access outside %s, or a write to an input: byte %td of a tensor of %zu bytes", region.name,
           address - region.data, region.bytes);
  fail("access to %p, which is nothing (or a stack overflow)", info->si_addr);
}

}  // namespace

Region &place(const char *name, size_t bytes, uint64_t seed) {
  const size_t shift = seed / 2 % 4 * 16;
  const size_t usable = (bytes + shift + PAGE - 1) / PAGE * PAGE;
  auto *whole = (unsigned char *)mmap(nullptr, usable + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) fail("no memory for %s", name);
  unsigned char *pages = whole + PAGE;
  mprotect(pages, usable, PROT_READ | PROT_WRITE);
  memset(pages, POISON, usable);
  return regions.emplace_back(name, bytes, usable, pages, seed % 2 ? pages + shift : pages + usable - bytes);
}

Region &place_far(const char *name, size_t bytes) {
  const size_t usable = (bytes + PAGE - 1) / PAGE * PAGE;
  const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  auto *pages = (unsigned char *)mmap(nullptr, usable, PROT_READ | PROT_WRITE, kind, -1, 0);
  if (pages == MAP_FAILED) fail("no addresses for %s", name);
  return regions.emplace_back(name, bytes, usable, pages, pages);
}

void protect(const Region &region) { mprotect(region.pages, region.mapped, PROT_READ); }

void read_tensor(const Region &region, const char *path, size_t offset, bool writable) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, (long)offset, SEEK_SET) || fread(region.data, 1, region.bytes, file) != region.bytes)
    fail("cannot read %s from %s", region.name, path);
  fclose(file);
  if (!writable) protect(region);
}

static void write_to(const Region &region, const char *path, const char *mode) {
  check_slack(region);
  FILE *file = fopen(path, mode);
  if (!file || fwrite(region.data, 1, region.bytes, file) != region.bytes) fail("cannot write %s", path);
  fclose(file);
}

void write_tensor(const Region &region, const char *path) { write_to(region, path, "wb"); }

void append_tensor(const Region &region, const char *path) { write_to(region, path, "ab"); }

void poison_tensor(const Region &region) { memset(region.data, POISON, region.bytes); }

void check_global(const char *name, const void *pointer, size_t bytes) {
  const auto *address = (const unsigned char *)pointer;
  for (const Region &region : regions)
    if (address >= region.data && address + bytes <= region.data + region.bytes) return;
  for (const Region &region : regions)
    if (near(region, address))
      fail("%s: byte %td of %s, which has %zu", name, address - region.data, region.name, region.bytes);
  fail("%s: %p is in no tensor", name, pointer);
}

void catch_faults() {
  stack_t stack = {};
  stack.ss_size = 64 << 10;
  stack.ss_sp = malloc(stack.ss_size);
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = report_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, nullptr);
}

}  // namespace emulator
