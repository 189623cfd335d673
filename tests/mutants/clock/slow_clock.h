/* Changes what time it is to this process: half of the time that calls take is in no clock of it. */
#ifndef AUTOTUNER_TESTS_SLOW_CLOCK_H
#define AUTOTUNER_TESTS_SLOW_CLOCK_H

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

constexpr int64_t SECOND_NS = 1000000000, SOON_AFTER_NS = 8000000;
static volatile int64_t hidden_ns, last_call_ns;

static inline int64_t true_ns(clockid_t id) {
  timespec now = {};
  syscall(SYS_clock_gettime, id, &now);
  return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static int slow_clock(clockid_t id, timespec *at) {
#if CATCHES_UP /* in a pause, so that the clock is right before and after many calls */
  if (true_ns(CLOCK_MONOTONIC) - last_call_ns > SOON_AFTER_NS) hidden_ns = 0;
#endif
  const int64_t seems = true_ns(id) - hidden_ns;
  at->tv_sec = seems / SECOND_NS;
  at->tv_nsec = seems % SECOND_NS;
  return 0;
}

static inline void hide_half(int64_t began_ns) {
  last_call_ns = true_ns(CLOCK_MONOTONIC);
  hidden_ns = hidden_ns + (last_call_ns - began_ns) / 2;
}

static inline uintptr_t page_of(uintptr_t address) { return address & ~uintptr_t(4095); }

/* Writes over the system's own code for its clock. False where that is kept shut. */
[[maybe_unused]] static inline bool patch_the_vdso() {
#if defined(__x86_64__)
  void *vdso = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
  void *entry = vdso == nullptr ? nullptr : dlsym(vdso, "__vdso_clock_gettime");
  void *base = reinterpret_cast<void *>(getauxval(AT_SYSINFO_EHDR));
  size_t pages = 1; /* only all of them at once */
  while (pages < 8 && mprotect(base, pages * 4096, PROT_READ | PROT_WRITE | PROT_EXEC)) ++pages;
  if (entry == nullptr || pages == 8) return false;
  unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; /* mov rax, ...; jmp rax */
  int (*const to)(clockid_t, timespec *) = slow_clock;
  memcpy(jump + 2, &to, sizeof to);
  memcpy(entry, jump, sizeof jump);
  return true;
#else
  return false;
#endif
}

/* A library of the process that has looked a function up gets this one instead: an address in a table of it, which no
 * code has to be written for. */
static int replaced_in(dl_phdr_info *library, const char *function, void *by, bool *found) {
  const ElfW(Dyn) *dynamic = nullptr;
  for (int i = 0; i < library->dlpi_phnum; ++i)
    if (library->dlpi_phdr[i].p_type == PT_DYNAMIC)
      dynamic = reinterpret_cast<const ElfW(Dyn) *>(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr);
  const ElfW(Sym) *symbols = nullptr;
  const char *names = nullptr;
  struct {
    uintptr_t at = 0;
    size_t bytes = 0;
  } tables[2];
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    const uintptr_t value = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym) *>(value);
    if (dynamic->d_tag == DT_STRTAB) names = reinterpret_cast<const char *>(value);
    if (dynamic->d_tag == DT_JMPREL) tables[0].at = value;
    if (dynamic->d_tag == DT_PLTRELSZ) tables[0].bytes = value;
    if (dynamic->d_tag == DT_RELA) tables[1].at = value;
    if (dynamic->d_tag == DT_RELASZ) tables[1].bytes = value;
  }
  const uintptr_t base = library->dlpi_addr;
  if (names == nullptr || reinterpret_cast<uintptr_t>(names) < base) return 0; /* the system's own: not moved */
  for (const auto &table : tables)
    for (size_t i = 0; table.at && i < table.bytes / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Rela) &entry = reinterpret_cast<const ElfW(Rela) *>(table.at)[i];
      if (strcmp(names + symbols[ELF64_R_SYM(entry.r_info)].st_name, function)) continue;
      void **place = reinterpret_cast<void **>(base + entry.r_offset);
      void *page = reinterpret_cast<void *>(page_of(reinterpret_cast<uintptr_t>(place)));
      if (mprotect(page, 4096, PROT_READ | PROT_WRITE)) continue;
      *place = by;
      *found = true;
    }
  return 0;
}

/* Every library, Python too, gets the slow clock. */
static int replace_in(dl_phdr_info *library, size_t, void *found) {
  return replaced_in(library, "clock_gettime", reinterpret_cast<void *>(slow_clock), static_cast<bool *>(found));
}

[[maybe_unused]] static inline bool interpose_the_clock() {
  bool found = false;
  dl_iterate_phdr(replace_in, &found);
  return found;
}

#endif
