// The op of a package of rmsnorm (torch_op.h), and what torch does where no variant serves.
#include "rmsnorm_call.h"
#include "torch_op.h"

namespace {

Tensor by_torch(const Call &call) {
  const Dims size = call.tensors[1].sizes();
  StableListHandle shape;
  check(torch_new_list_reserve_size((size_t)size.rank, &shape), "new_list");
  for (int64_t i = 0; i < size.rank; i++) check(torch_list_push_back(shape, (StableIValue)size[i]), "list_push_back");
  StableIValue stack[4] = {call.tensors[0].given(), (StableIValue)shape, optional(call.tensors[1]),
                           optional(number(call.said[RMSNORM_SAID_EPS]))};
  return called("aten::rms_norm", stack);
}

}  // namespace
