/* Sends the driver a reply of its own, under the key of the process: what a variant can do that knows how it is judged. */
#ifndef AUTOTUNER_TESTS_FORGED_REPLY_H
#define AUTOTUNER_TESTS_FORGED_REPLY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

constexpr size_t KEY = 16, HEAD = 4;
static const char BEGINS[] = "{\"number\":";

/* Random bytes, and no text or pointers. */
static inline bool is_random(const unsigned char *at) {
  size_t zeros = 0, odd = 0;
  for (size_t i = 0; i < KEY; ++i) zeros += at[i] == 0, odd += at[i] < 0x20 || at[i] > 0x7e;
  return zeros < 2 && odd > 4;
}

/* The key stands in the process's memory before the JSON of a message that it has sent. */
static inline bool key_in(const unsigned char *from, const unsigned char *to, unsigned char *key) {
  for (const unsigned char *at = from + KEY; at + sizeof BEGINS < to; at += 1) {
    at = static_cast<const unsigned char *>(memmem(at, size_t(to - at), BEGINS, sizeof BEGINS - 1));
    if (at == nullptr) return false;
    if (!is_random(at - KEY)) continue;
    memcpy(key, at - KEY, KEY);
    return true;
  }
  return false;
}

static inline bool find_key(unsigned char *key) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4096];
  bool found = false;
  while (maps != nullptr && !found && fgets(line, sizeof line, maps) != nullptr) {
    unsigned long from, to;
    char rights[5];
    if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || strncmp(rights, "rw", 2) || strchr(line, '/')) continue;
    found = key_in(reinterpret_cast<unsigned char *>(from), reinterpret_cast<unsigned char *>(to), key);
  }
  if (maps != nullptr) fclose(maps);
  return found;
}

/* What to say lies in the folder of the driver's folder. */
static inline void send_reply() {
  char path[4096];
  snprintf(path, sizeof path, "%s/../../reply", getenv("TMPDIR"));
  FILE *file = fopen(path, "rb");
  if (file == nullptr) abort();
  fseek(file, 0, SEEK_END);
  const size_t size = size_t(ftell(file)), whole = HEAD + KEY + size;
  rewind(file);
  unsigned char *frame = static_cast<unsigned char *>(malloc(whole));
  if (fread(frame + HEAD + KEY, 1, size, file) != size || !find_key(frame + HEAD)) abort();
  for (size_t i = 0; i < HEAD; ++i) frame[i] = static_cast<unsigned char>((KEY + size) >> (24 - 8 * i));
  for (int fd = 3; fd < 64; ++fd)
    if (write(fd, frame, whole) < 0) continue;
}

#endif
