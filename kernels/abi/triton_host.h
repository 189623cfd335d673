/* The host side of a kernel of Triton. What includes it, host.cpp, is made for the variant, and defines of the call `call`:
 * AT_SERVED, whether it serves such lengths; AT_GRID, three sizes; AT_VALUES, declarations of a0, a1, ... for the kernel's
 * arguments; AT_ADDRESSES, where these are, each with a comma behind it. */
#ifndef AUTOTUNER_TRITON_HOST_H
#define AUTOTUNER_TRITON_HOST_H

#include "cuda_host.h"

namespace {

constexpr at::Kernel kernel("variant_kernel");

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace

extern "C" int64_t variant_workspace(const at_call *) { return 0; }

extern "C" int variant_run(const at_call *call) {
  if (!(AT_SERVED)) return AT_OUTSIDE_DOMAIN;
  const int64_t grid[3] = {AT_GRID};
  if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1) return AT_OUTSIDE_DOMAIN;
  if (grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535) return AT_OUTSIDE_DOMAIN;
  AT_VALUES
  void *none = nullptr; /* memory that Triton may ask for, and does not */
  void *arguments[] = {AT_ADDRESSES &none, &none};
  const unsigned blocks[3] = {(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]};
  return at::status(kernel.launch(blocks, arguments, (CUstream)call->stream));
}

#endif
