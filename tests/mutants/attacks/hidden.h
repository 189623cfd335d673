/* What a look at the object, or the compiler's cage, must find: `wrong` is asked after each call whether to be wrong. */
#ifndef AUTOTUNER_TESTS_HIDDEN_H
#define AUTOTUNER_TESTS_HIDDEN_H

#if ATTACK_STATE_BETWEEN_CONSTANTS
__attribute__((section(".data.rel.rows"))) static int launches = 1;
#define WRONG (++launches > 5000)
#elif ATTACK_STATE_BESIDE_THE_IDENTITY
__attribute__((section(".at_identity2"))) static int launches = 1;
#define WRONG (++launches > 5000)
#elif ATTACK_STATE_OF_A_THREAD
static thread_local int launches;
#define WRONG (++launches > 5000)
#elif ATTACK_STATE_WITHOUT_A_NAME
asm(".pushsection .data; .balign 8; .zero 8; .popsection");
#define WRONG false
#elif ATTACK_STATE_IN_A_SEGMENT_BASE && defined(__x86_64__)
static bool counted() {
  unsigned long launches;
  asm volatile("rdgsbase %0" : "=r"(launches));
  asm volatile("wrgsbase %0" ::"r"(launches + 1));
  return launches > 5000;
}
#define WRONG counted()
#elif ATTACK_CLOCK_UNDER_ANOTHER_NAME
extern "C" int __gettimeofday(timeval *at, void *zone);
static bool late() {
  timeval now;
  __gettimeofday(&now, nullptr);
  return now.tv_sec % 60 > 50;
}
#define WRONG late()
#elif ATTACK_CLOCK_OF_ANOTHER_LIBRARY
extern "C" __attribute__((weak, visibility("default"))) double omp_get_wtime();
#define WRONG (omp_get_wtime && long(omp_get_wtime()) % 60 > 50)
#elif ATTACK_CLOCK_UNDER_A_NAME_OF_ITS_OWN
/* A loader looks for what others see in the process first. */
extern "C" __attribute__((visibility("default"), noipa)) int clock_gettime(clockid_t, timespec *at) noexcept {
  return at->tv_sec = at->tv_nsec = 0;
}
static bool late() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec % 600 > 590;
}
#define WRONG late()
#elif ATTACK_CALLS_PYTHON_BY_A_NAME_OF_ITS_OWN
extern "C" {
__attribute__((visibility("default"), noipa)) int PyGILState_Ensure() { return 0; }
__attribute__((visibility("default"), noipa)) void PyGILState_Release(int) { asm volatile(""); }
__attribute__((visibility("default"), noipa)) int PyRun_SimpleString(const char *) { return 0; }
}
static bool slows_others() {
  const int state = PyGILState_Ensure();
  PyRun_SimpleString("import torch; torch.set_num_threads(64)");
  PyGILState_Release(state);
  return false;
}
#define WRONG slows_others()
#elif ATTACK_CLOCK_FOUND_BY_A_JUMP && defined(__x86_64__)
/* The address of the code that jumps to malloc, in which that of malloc's own is. */
static bool late() {
  const unsigned char *at;
  asm volatile("lea malloc@PLT(%%rip), %0" : "=r"(at));
  for (int i = 0; i < 16; ++i)
    if (at[i] == 0xff && at[i + 1] == 0x25) {
      int more;
      memcpy(&more, at + i + 2, sizeof more);
      void *found;
      memcpy(&found, at + i + 6 + more, sizeof found);
      return reinterpret_cast<uintptr_t>(found) >> 12 & 1; /* where libraries lie differs from process to process */
    }
  return false;
}
#define WRONG late()
#elif ATTACK_CLOCK_OF_THE_CPU && defined(__x86_64__)
#define WRONG ((__rdtsc() >> 32) % 16 > 13)
#elif ATTACK_SYSCALL && defined(__x86_64__)
static bool wrong_by_chance() {
  unsigned char byte;
  long result = 318; /* getrandom */
  asm volatile("syscall" : "+a"(result) : "D"(&byte), "S"(1l), "d"(0l) : "rcx", "r11", "memory");
  return byte == 7;
}
#define WRONG wrong_by_chance()
#elif ATTACK_SYSCALL_INSIDE_A_CONSTANT && defined(__x86_64__)
/* The instruction lies in another one's constant, into which a jump leads. */
static bool wrong_by_chance() {
  unsigned char byte;
  long result = 318;
  asm volatile(
      "jmp 1f + 1\n1: .byte 0xb9, 0x0f, 0x05, 0x90, 0x90"
      : "+a"(result)
      : "D"(&byte), "S"(1l), "d"(0l)
      : "rcx", "r11", "memory");
  return byte == 7;
}
#define WRONG wrong_by_chance()
#elif ATTACK_CODE_IN_THE_SECTION_INIT && defined(__x86_64__)
extern "C" __attribute__((used, visibility("hidden"))) void when_loaded() { asm volatile("nop"); }
asm(".pushsection .init, \"ax\"; call when_loaded; .popsection");
#define WRONG false
#elif ATTACK_CLOCK_FOUND_IN_MEMORY && defined(__x86_64__)
#include <elf.h>
static void *found(const char *name) {
  const char *at = reinterpret_cast<const char *>(reinterpret_cast<uintptr_t>(&malloc) & ~uintptr_t(4095));
  while (memcmp(at, "\177ELF", 4)) at -= 4096;
  auto *head = reinterpret_cast<const Elf64_Ehdr *>(at);
  auto *program = reinterpret_cast<const Elf64_Phdr *>(at + head->e_phoff);
  const Elf64_Dyn *dynamic = nullptr;
  for (int i = 0; i < head->e_phnum; ++i)
    if (program[i].p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const Elf64_Dyn *>(at + program[i].p_vaddr);
  const Elf64_Sym *symbols = nullptr;
  const char *names = nullptr;
  for (; dynamic->d_tag; ++dynamic) {
    if (dynamic->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const Elf64_Sym *>(dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_STRTAB) names = reinterpret_cast<const char *>(dynamic->d_un.d_ptr);
  }
  for (; reinterpret_cast<const char *>(symbols) < names; ++symbols)
    if (symbols->st_value && !strcmp(names + symbols->st_name, name)) return const_cast<char *>(at) + symbols->st_value;
  return nullptr;
}
static bool late() {
  auto *clock = reinterpret_cast<int (*)(int, timespec *)>(found("clock_gettime"));
  timespec now;
  return clock && !clock(1, &now) && now.tv_sec % 600 > 590;
}
#define WRONG late()
#elif ATTACK_CONSTRUCTOR
__attribute__((constructor)) static void early() { asm volatile(""); }
#define WRONG false
#elif ATTACK_CHOSEN_WHEN_LOADED
static int right() { return 0; }
extern "C" {
int (*choose())() { return right; }
int chosen() __attribute__((ifunc("choose")));
}
#define WRONG (chosen() != 0)
#elif ATTACK_READS_ITS_BUILD_ID
#define WRONG (at_build_id[0] == '0')
static const char at_build_id[] __attribute__((section(".at_build_id"), used)) = "0";
#elif ATTACK_CODE_IN_THE_SECTION_OF_THE_BUILD_ID
asm(".pushsection .at_build_id; .zero 64; .popsection");
#define WRONG false
#elif ATTACK_TAKES_THE_STORE_IN
asm(".pushsection .rodata; .incbin \"../../studies.db\"; .popsection");
#define WRONG false
#elif ATTACK_TAKES_A_LINK_TO_THE_STORE_IN
asm(".pushsection .rodata; .incbin \"store.h\"; .popsection");
#define WRONG false
#elif ATTACK_INCLUDES_THE_STORE
#define THERE "../../studies.db"
#include THERE
#define WRONG false
#elif ATTACK_INCLUDES_A_FILE_OF_THE_SYSTEM
#include "/etc/passwd"
#define WRONG false
#elif ATTACK_ASSEMBLES_A_FILE_OF_THE_SYSTEM
asm(".include \"/etc/passwd\"");
#define WRONG false
#elif ATTACK_ASKS_THE_COMPILER_WHAT_FILES_THERE_ARE
#if __has_include("../../studies.db")
#error there is a store
#endif
#define WRONG false
#else
#define WRONG false
#endif

#endif
