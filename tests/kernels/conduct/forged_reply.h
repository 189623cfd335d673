/* Sends the driver a reply of its own, under the key of the process: what a variant can do that knows how it is judged. */
#ifndef AUTOTUNER_TESTS_FORGED_REPLY_H
#define AUTOTUNER_TESTS_FORGED_REPLY_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

constexpr size_t KEY = 16, HEAD = 4;

/* A bytes object of CPython. */
struct Bytes {
  long references;
  const void *type;
  long size, hash;
  unsigned char data[KEY];
};

/* The key is an object of 16 bytes that others hold too (what was given back has an address there), and that nobody has
 * hashed; random bytes hardly repeat. */
static inline bool is_key(const Bytes &at, const void *type) {
  if (at.type != type || at.size != KEY || at.hash != -1 || at.references < 2 || at.references > 99) return false;
  size_t repeated = 0;
  for (size_t i = 1; i < KEY; ++i) repeated += memchr(at.data, at.data[i], i) != nullptr;
  return repeated < 5;
}

static inline bool key_in(const unsigned char *from, const unsigned char *to, unsigned char *key) {
  const void *type = dlsym(RTLD_DEFAULT, "PyBytes_Type");
  for (; from + sizeof(Bytes) <= to; from += 16) {
    const Bytes &at = *reinterpret_cast<const Bytes *>(from);
    if (is_key(at, type)) return memcpy(key, at.data, KEY), true;
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

/* Writes a frame, behind whose head and key so many bytes lie, to the driver. */
static inline void send_frame(unsigned char *frame, size_t size) {
  if (!find_key(frame + HEAD)) fprintf(stderr, "the key is nowhere\n"), abort();
  for (size_t i = 0; i < HEAD; ++i) frame[i] = static_cast<unsigned char>((KEY + size) >> (24 - 8 * i));
  for (int fd = 3; fd < 64; ++fd)
    if (write(fd, frame, HEAD + KEY + size) < 0) continue;
}

/* Of the job that runs: it is the name of the file that it prints to. */
static inline int job_number() {
  char path[4096] = {};
  if (readlink("/proc/self/fd/2", path, sizeof path - 1) < 0) abort();
  return atoi(strrchr(path, '/') + 1);
}

/* Steps of the job that runs, one after another for a minute. */
static inline void announce_without_end() {
  static unsigned char frame[HEAD + KEY + 4096];
  char *json = reinterpret_cast<char *>(frame + HEAD + KEY);
  const int size = snprintf(json, 4096, "{\"number\": %d, \"step\": \"G1.smoke\"}", job_number());
  send_frame(frame, size_t(size));
  for (const time_t began = time(nullptr); time(nullptr) - began < 60;)
    for (int fd = 3; fd < 64; ++fd)
      if (write(fd, frame, HEAD + KEY + size_t(size)) < 0) continue;
}

/* What to say lies, or soon will, in the folder of the driver's folder: a job's number is known once it is submitted. */
static inline void send_reply() {
  char path[4096];
  snprintf(path, sizeof path, "%s/../../%d.reply", getenv("TMPDIR"), job_number());
  FILE *file;
  while ((file = fopen(path, "rb")) == nullptr) usleep(1000);
  fseek(file, 0, SEEK_END);
  const size_t size = size_t(ftell(file));
  rewind(file);
  unsigned char *frame = static_cast<unsigned char *>(malloc(HEAD + KEY + size));
  if (fread(frame + HEAD + KEY, 1, size, file) != size) fprintf(stderr, "%s is shorter than it was\n", path), abort();
  send_frame(frame, size);
}

#endif
