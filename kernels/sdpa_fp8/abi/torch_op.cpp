// The op of a package of sdpa_fp8 (torch_op.h). Where no variant serves, its Python says what torch computes.
#include "sdpa_fp8_call.h"

#define AT_OP_TAKES(dtype) 1
#define AT_OP_ALIKE 1
#define AT_OP_GIVES(first) \
  (sdpa_fp8_is_16_bits(element((first).dtype())) ? (first).dtype() : aoti_torch_dtype_bfloat16())
#include "torch_op.h"

namespace {

Tensor by_torch(const Call &call) { return computed(call); }

}  // namespace
