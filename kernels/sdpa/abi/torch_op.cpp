// The op of a package of sdpa (torch_op.h), and what torch does where no variant serves.
#include "sdpa_call.h"
#include "torch_op.h"

namespace {

Tensor by_torch(const Call &call) {
  const Tensor &q = call.tensors[0], &k = call.tensors[1], &v = call.tensors[2], &lengths = call.tensors[3],
               &sinks = call.tensors[4], &slopes = call.tensors[5], &bias = call.tensors[6];
  const bool alone = bias && !slopes && !sinks && !lengths && !call.said[SDPA_SAID_IS_CAUSAL] &&
                     !(call.said[SDPA_SAID_WINDOW_LEFT] > 0) && !(call.said[SDPA_SAID_SOFTCAP] > 0);
  const Tensor &mask = alone ? bias : call.beside(0);
  bool causal = call.said[SDPA_SAID_IS_CAUSAL];
  const bool windowed = call.said[SDPA_SAID_WINDOW_LEFT] > 0;
  const bool bottom_right = causal && call.said[SDPA_SAID_CORNER];
  if (mask && !alone && !lengths && !bottom_right && !windowed)
    throw std::runtime_error("attn_mask says what key_lengths, a corner or a window says: give these too");
  if ((windowed && !mask) || sinks || slopes || (bias && !alone) || call.said[SDPA_SAID_SOFTCAP] > 0) return computed(call);
  if (bottom_right && !lengths && !mask) {  // what torch can say itself
    const Dims rows = q.sizes(), keys = k.sizes();
    if (rows.rank < 2 || keys.rank < 2) return computed(call);
    causal = rows[rows.rank - 2] != 1;  // the last row sees all
    if (causal && rows[rows.rank - 2] != keys[keys.rank - 2]) return computed(call);
  } else if (lengths && !mask) {
    return computed(call);
  }
  StableIValue stack[8] = {q.given(), k.given(), v.given(), optional(mask), 0, causal && !mask, 0,
                           call.said[SDPA_SAID_ENABLE_GQA] != 0};
  return called("aten::scaled_dot_product_attention", stack);
}

}  // namespace
