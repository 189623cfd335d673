// What cpu_simd.cpp refuses: parameters with which it would compute wrongly, and those that this CPU cannot serve.
#ifndef AUTOTUNER_SDPA_CPU_SIMD_LIMITS_H
#define AUTOTUNER_SDPA_CPU_SIMD_LIMITS_H

#include "cpu_pack.h"
#include "cpu_tile.h"

static_assert(HEAD_WORDS % VEC_WIDTH == 0, "a row of Q is whole vectors");
static_assert(BLOCK_M % (QK_VECS * VEC_WIDTH) == 0, "a block of queries is whole score tiles");
static_assert(BLOCK_M % PV_ROWS == 0, "a block of queries is whole output tiles");
static_assert(HEAD_DIM % (PV_VECS * VEC_WIDTH) == 0, "a row of V is whole output tiles");
static_assert(PACK_K != 3 || BLOCK_N % QK_KEYS == 0, "a panel may not straddle two blocks");
static_assert(PACK_K >= 0 && PACK_K <= 3 && PACK_V >= 0 && PACK_V <= 2, "unknown PACK_K or PACK_V");
static_assert(!WIDEN || (PACK_K > 0 && PACK_V > 0), "widening needs a place to put the floats");
static_assert(!BF16_DOT || (DTYPE == AT_BFLOAT16 && PACK_V > 0), "the dot product wants bfloat16, V in pairs of keys");
static_assert(!BF16_DOT || BLOCK_N % 2 == 0, "a pair of keys may not straddle two blocks");
static_assert(SCHEDULE >= 0 && SCHEDULE <= 2, "unknown SCHEDULE");
#if BF16_DOT && !(defined(__AVX512BF16__) && defined(__AVX512VL__))
#error "BF16_DOT needs AVX-512 BF16"
#endif
#if DTYPE == AT_FLOAT16 && !defined(__F16C__)
#error "float16 needs the conversions of F16C"
#endif
#if (defined(EXP_SCALEF3) || defined(EXP_SCALEF5)) && !defined(__AVX512VL__)
#error "EXP=scalef needs AVX-512"
#endif
#if (defined(EXP_POLY3) || defined(EXP_SCALEF3) || defined(EXP_TABLE1)) && DTYPE != AT_BFLOAT16
#error "this EXP is too coarse for all but bfloat16"
#endif
#if (defined(EXP_TABLE1) || defined(EXP_TABLE2)) && !(defined(__AVX512F__) && VEC_WIDTH == 16)
#error "EXP=table needs AVX-512 and VEC_WIDTH=16: the table is two registers"
#endif

#endif
