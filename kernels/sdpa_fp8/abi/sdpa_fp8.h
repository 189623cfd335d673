/* The op sdpa_fp8: attention as sdpa.h has it, where Q, K and V are e4m3, a byte each, or with FP8_CACHE K and V alone, Q being
 * of DTYPE: a number of them is what is stored times the descale of its head. Heads of Q that share one of K and V have a descale in common. DTYPE is that of O. What sdpa.h says of strides is in elements here too: bytes of Q, K and V. */
#ifndef AUTOTUNER_SDPA_FP8_H
#define AUTOTUNER_SDPA_FP8_H

#include "../../sdpa/abi/sdpa.h"

/* at_call.in, behind Q, K and V; each descale is (batch, heads_kv) float32 */
enum { SDPA_FP8_Q_DESCALE = SDPA_V + 1, SDPA_FP8_K_DESCALE, SDPA_FP8_V_DESCALE, SDPA_FP8_KEY_LENGTHS };

#endif
