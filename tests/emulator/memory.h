// Tensors between unmapped pages, and what is said of a kernel that leaves them.
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>
#include <stdint.h>

namespace emulator {

// Pages with a tensor in them, between two unmapped pages.
struct Region {
  const char *name;
  size_t bytes, mapped;
  unsigned char *pages, *data;
};

// A poisoned tensor of `bytes` that touches an unmapped page, at its end or its beginning as the seed has it. It
// lives as long as the process.
Region &place(const char *name, size_t bytes, uint64_t seed);

// Zeros, of which only the pages that are touched cost memory: what lies between far rows is nobody's business.
Region &place_far(const char *name, size_t bytes);

// The tensor may only be read from now on.
void protect(const Region &region);

// Fills a tensor from the bytes of a file at `offset`; a tensor that is not `writable` may not be written after that.
void read_tensor(const Region &region, const char *path, size_t offset, bool writable);

// Checks what lies around a tensor and writes its bytes to a file.
void write_tensor(const Region &region, const char *path);

// The same at the end of the file.
void append_tensor(const Region &region, const char *path);

// Poisons a tensor anew.
void poison_tensor(const Region &region);

}  // namespace emulator

#endif
