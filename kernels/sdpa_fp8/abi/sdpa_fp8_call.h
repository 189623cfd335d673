/* A call of attention from FP8 as a problem of the op sdpa_fp8: as sdpa_call.h has it, with the descales behind Q, K and V. O
 * is bfloat16, or of Q's element type where that has 16 bits. C11 and C++. */
#ifndef AUTOTUNER_SDPA_FP8_CALL_H
#define AUTOTUNER_SDPA_FP8_CALL_H

#include "../../sdpa/abi/sdpa_call.h"

#include "sdpa_fp8.h"

/* at_said, in the order of the signature */
enum { SDPA_FP8_SAID_IS_CAUSAL, SDPA_FP8_SAID_CORNER };

/* Reasons of its own, behind those of sdpa_call.h. */
enum {
  SDPA_FP8_ELEMENTS = SDPA_OTHER_BIAS - 1, /* K and V that are not e4m3, or Q that is neither that nor has 16 bits */
  SDPA_FP8_DESCALES = SDPA_OTHER_BIAS - 2  /* descales that are not there, or not as the op says */
};

/* at_problem.field, behind those of sdpa_call.h */
enum { SDPA_FP8_CACHE = SDPA_WITH_BIAS + 1 };

static inline int sdpa_fp8_is_16_bits(int32_t dtype) { return dtype == AT_BFLOAT16 || dtype == AT_FLOAT16; }

/* The problem of such a call, of Q, K, V, their descales and the lengths of keys. Returns 0, or the reason why there is none. */
static inline int sdpa_fp8_problem(at_tensor *in, const double *said, at_problem *problem) {
  const int cache = sdpa_fp8_is_16_bits(in[0].dtype);
  if ((!cache && in[0].dtype != AT_FLOAT8) || in[1].dtype != AT_FLOAT8 || in[2].dtype != AT_FLOAT8) return SDPA_FP8_ELEMENTS;
  at_tensor plain[AT_MAX_IN] = {in[0], in[1], in[2], in[SDPA_FP8_KEY_LENGTHS]};
  const at_said told = {said[SDPA_FP8_SAID_IS_CAUSAL], 1, said[SDPA_FP8_SAID_CORNER]};
  const int reason = sdpa_problem(plain, told, problem);
  if (reason) return reason;
  for (int i = SDPA_FP8_Q_DESCALE; i <= SDPA_FP8_V_DESCALE; i++) {
    const at_tensor *descale = &in[i];
    if (!descale->data || descale->dtype != AT_FLOAT32 || descale->rank != 2 || !at_is_dense(descale)) return SDPA_FP8_DESCALES;
    if (descale->size[0] != in[1].size[0] || descale->size[1] != in[1].size[1]) return SDPA_FP8_DESCALES;
  }
  if (!cache) problem->field[SDPA_DTYPE] = AT_BFLOAT16;
  if (cache && problem->field[SDPA_LAYOUT] == AT_PACKED_QKV) problem->field[SDPA_LAYOUT] = AT_BSHD;
  problem->field[SDPA_FP8_CACHE] = cache;
  return 0;
}

#undef AT_OP_PROBLEM /* the look-up is sdpa's */
#define AT_OP_PROBLEM sdpa_fp8_problem

#endif
