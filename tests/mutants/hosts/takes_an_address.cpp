#include "hosts.h"

extern "C" int variant_run(const at_call *call) {
  const unsigned char *volatile near = (const unsigned char *)&at_cuda_launch_number;
  return launch(call, near[0] == 0xcc); /* where it would look on from */
}
