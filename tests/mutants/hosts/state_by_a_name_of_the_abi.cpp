#include "hosts.h"

namespace at {
inline uint32_t &geometry(int) {
  static uint32_t launches;
  return launches;
}
}  // namespace at

extern "C" int variant_run(const at_call *call) { return launch(call, ++at::geometry(0) > 5000); }
