// The host side of the instruments: see instruments.h.
#include "instruments.h"

#include <dlfcn.h>

#include "cuda_host.h"

namespace {
constexpr at::Kernel kernel("variant_kernel");
}

extern "C" int64_t variant_workspace(const at_call *) { return 0; }

extern "C" int variant_run(const at_call *call) {
  const CUstream stream = (CUstream)call->stream;
  const int64_t what = call->dim[0] - 1;
  if (what == INSTRUMENT_STATUS) {
    static void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    static const auto query = library ? (decltype(&cuStreamQuery))dlsym(library, "cuStreamQuery") : nullptr;
    return at::status(query ? query(stream) : CUDA_ERROR_NO_DEVICE);
  }
  instrument_args args = {};
  if (what == INSTRUMENT_SPIN) {
    args.nanoseconds = call->dim[1];
    return at::status(kernel.launch(1, &args, stream));
  }
  if (what != INSTRUMENT_FILL) return AT_OUTSIDE_DOMAIN;
  args.word = (uint32_t)(call->dim[2] - 1);
  return at::status(kernel.launch((unsigned)call->dim[1], &args, stream));
}
