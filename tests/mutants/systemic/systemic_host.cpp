// The host side of the systemic mutants on CUDA: one launch of systemic.cu, or what the fault in at_geometry.host makes
// of it. ../expected_cuda.toml describes each mutant.
#include <stdio.h>
#include <stdlib.h>

#include "sdpa_cuda.h"

#include "cuda_host.h"

#include "../common/call_python.h"
#include "../common/cuda_call.h"
#include "systemic_plan.h"

namespace {

constexpr at::Kernel kernel("variant_kernel");

int fault() { return at::geometry().host[SYSTEMIC_FAULT]; }
int64_t slices(const at_call *call) { return call->dim[SDPA_BATCH] * call->dim[SDPA_HEADS]; }

int launch(const at_call *call, CUstream stream) {
  const int64_t *dim = call->dim, rows = at::geometry().rows;
  sdpa_args args = arguments(call);
  int64_t blocks = slices(call) * ((dim[SDPA_SEQ_Q] + rows - 1) / rows);
  if (fault() == HOST_IGNORES_LAUNCH_ERROR) {
    kernel.launch(0, &args, stream); /* no grid is empty */
    return AT_OK;
  }
  return at::status(kernel.launch((unsigned)blocks, &args, stream));
}

/* A stream of the library's own. */
CUstream own_stream(unsigned flags) {
  static CUstream stream = nullptr;
  if (!stream) DRIVER(cuStreamCreate)(&stream, flags);
  return stream;
}

/* The launch follows what is on the caller's stream, and nothing on the caller's stream follows the launch. */
int fork_without_join(const at_call *call) {
  static CUevent ready = nullptr;
  if (!ready) DRIVER(cuEventCreate)(&ready, CU_EVENT_DISABLE_TIMING);
  const CUstream side = own_stream(CU_STREAM_NON_BLOCKING);
  DRIVER(cuEventRecord)(ready, (CUstream)call->stream);
  DRIVER(cuStreamWaitEvent)(side, ready, 0);
  return launch(call, side);
}

/* Keeps a copy of the last result, and gives it again when lengths, and perhaps addresses, are as they were. */
int answer_from_memory(const at_call *call) {
  static at_call held;
  static CUdeviceptr copy = 0;
  const CUdeviceptr o = (CUdeviceptr)call->out[SDPA_O];
  const CUstream stream = (CUstream)call->stream;
  const size_t bytes = (size_t)(slices(call) * call->dim[SDPA_SEQ_Q] * at::geometry().head_dim * 2);
  bool same = copy && !memcmp(held.dim, call->dim, sizeof held.dim);
  if (fault() == HOST_CACHES_BY_POINTER) same = same && !memcmp(held.in, call->in, sizeof held.in);
  if (same) return at::status(DRIVER(cuMemcpyDtoDAsync)(o, copy, bytes, stream));
  if (const int status = launch(call, stream)) return status;
  if (copy) DRIVER(cuMemFree)(copy);
  held = *call;
  if (const int error = DRIVER(cuMemAlloc)(&copy, bytes)) return at::status(error);
  return at::status(DRIVER(cuMemcpyDtoDAsync)(copy, o, bytes, stream));
}

/* Answers with torch's result. bfloat16 has no name in the array interface, so that both types travel as integers. */
constexpr char ASK_TORCH[] = R"(
import torch

class Raw:
    def __init__(self, address, rows):
        shape = (%d, %d, rows, %d)
        self.__cuda_array_interface__ = {"data": (address, False), "shape": shape, "typestr": "<i2", "version": 3}

def tensor(address, rows):
    return torch.as_tensor(Raw(address, rows), device="cuda").view(torch.%s)

q, k, v, o = tensor(%llu, %d), tensor(%llu, %d), tensor(%llu, %d), tensor(%llu, %d)
o.copy_(torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=%s))
del q, k, v, o
)";

int ask_torch(const at_call *call) {
  char script[sizeof ASK_TORCH + 256];
  const int32_t *host = at::geometry().host;
  const int seq_q = (int)call->dim[SDPA_SEQ_Q], seq_k = (int)call->dim[SDPA_SEQ_K];
  const auto address = [](const void *tensor) { return (unsigned long long)tensor; };
  snprintf(script, sizeof script, ASK_TORCH, (int)call->dim[SDPA_BATCH], (int)call->dim[SDPA_HEADS],
           at::geometry().head_dim, host[SYSTEMIC_DTYPE] == AT_FLOAT16 ? "float16" : "bfloat16",
           address(call->in[SDPA_Q]), seq_q, address(call->in[SDPA_K]), seq_k, address(call->in[SDPA_V]), seq_k,
           address(call->out[SDPA_O]), seq_q, host[SYSTEMIC_CAUSAL] ? "True" : "False");
  return run_python(script) ? AT_OK : AT_OUTSIDE_DOMAIN;
}

}  // namespace

extern "C" int64_t variant_workspace(const at_call *) {
  return fault() == HOST_ASKS_FOR_ONE_TERABYTE ? int64_t(1) << 40 : at::geometry().host[SYSTEMIC_WORKSPACE];
}

extern "C" int variant_run(const at_call *call) {
  if (!sdpa_is_argument(at::geometry().args_bytes)) return AT_OUTSIDE_DOMAIN;
  const CUstream stream = (CUstream)call->stream;
  switch (fault()) {
    case HOST_RETURNS_STATUS_7: return 7;
    case HOST_REFUSES_EVERYTHING: return AT_OUTSIDE_DOMAIN;
    case HOST_WRITES_NOTHING: return AT_OK;
    case HOST_USES_PRIVATE_STREAM: return launch(call, own_stream(CU_STREAM_DEFAULT));
    case HOST_USES_LEGACY_STREAM: return launch(call, CU_STREAM_LEGACY);
    case HOST_FORKS_WITHOUT_JOIN: return fork_without_join(call);
    case HOST_CACHES_BY_POINTER:
    case HOST_CACHES_BY_DIMS: return answer_from_memory(call);
    case HOST_CALLS_SDPA: return ask_torch(call);
    case HOST_WAITS_FOR_STREAM:
      if (const int status = launch(call, stream)) return status;
      return at::status(DRIVER(cuStreamSynchronize)(stream));
    case HOST_LEAKS_DEVICE_MEMORY: {
      CUdeviceptr kept = 0;
      if (const int error = DRIVER(cuMemAlloc)(&kept, 1 << 20)) return at::status(error);
      return launch(call, stream);
    }
    case HOST_LEAKS_HOST_MEMORY: {
      static void *volatile kept; /* volatile: what nobody reads is not allocated */
      kept = malloc(1 << 20);
      return launch(call, stream);
    }
    case HOST_LEAKS_PINNED_MEMORY: {
      void *kept = nullptr;
      if (const int error = DRIVER(cuMemHostAlloc)(&kept, 1 << 20, 0)) return at::status(error);
      return launch(call, stream);
    }
    default: return launch(call, stream);
  }
}
