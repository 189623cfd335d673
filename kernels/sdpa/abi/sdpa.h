/* The op sdpa: O = softmax(scale * Q K^T) V for every (batch, head).
 *
 * Q, O: (batch, heads, seq_q, HEAD_DIM); K, V: (batch, heads_kv, seq_k, HEAD_DIM), all of element type DTYPE. Head h of Q
 * looks at head h / (heads / heads_kv) of K and V. A row that sees no key gives 0.
 *
 * Macros of the problem, beside DTYPE and HEAD_DIM:
 *   CAUSAL       1: row i sees keys j <= i + offset, for any seq_q and seq_k
 *   WINDOWED     1: it sees keys i + offset - scalar[SDPA_WINDOW_LEFT] <= j <= i + offset + scalar[SDPA_WINDOW_RIGHT] alone;
 *                the latter is 0 with CAUSAL
 *   SINKS        AT_OWN, AT_FLOAT32: in[SDPA_SINKS], (heads,) of DTYPE or of float, has one more score for each row of a
 *                head, which has no value; AT_NONE: there are none
 *   BIAS         AT_ALIBI: in[SDPA_BIAS], (heads,) of float, has slopes: a score gets slope * (j - i - offset) added; AT_HEADS,
 *                AT_FULL: it is (1, heads, seq_q, seq_k) or (batch, heads, seq_q, seq_k) of DTYPE, at any strides, and is
 *                added to scaled and capped scores; -INFINITY hides a key; AT_NONE: there is none
 *   SOFTCAPPED   1: a scaled score s becomes C tanh(s / C), with C = scalar[SDPA_SOFTCAP]
 *   CORNER       AT_TOP_LEFT: offset is 0, as torch's is_causal; AT_BOTTOM_RIGHT: keys - seq_q, so that the last row's
 *                place is that of the last key
 *   KEY_LENGTHS  1: in[SDPA_KEY_LENGTHS] says how many keys there are, (batch,) int32 from 0 to seq_k
 *   LAYOUT       AT_BHSD: all tensors are dense; any other: batches, heads and rows lie anywhere (at_call.in_stride)
 *   GROUPED      1: heads may be any multiple of heads_kv; 0: they are as many
 *   LSE          1: out[SDPA_LSE] gets ln(sum(exp(scale * scores))), (batch, heads, seq_q) float32; -INFINITY in a row
 *                that sees no key and has no sink
 */
#ifndef AUTOTUNER_SDPA_H
#define AUTOTUNER_SDPA_H

#include "variant.h"

/* Values of the macros CORNER and LAYOUT. */
#define AT_TOP_LEFT 0
#define AT_BOTTOM_RIGHT 1
#define AT_NONE -1
#define AT_OWN -2
#define AT_ALIBI 1
#define AT_HEADS 2
#define AT_FULL 3
#define AT_BHSD 0
#define AT_BSHD 1
#define AT_PACKED_QKV 2

enum { SDPA_Q, SDPA_K, SDPA_V, SDPA_MORE, SDPA_MOST = SDPA_MORE + 3 };             /* at_call.in */
enum { SDPA_O, SDPA_LSE };                                                         /* at_call.out */
enum { SDPA_BATCH, SDPA_HEADS, SDPA_SEQ_Q, SDPA_SEQ_K, SDPA_HEADS_KV };            /* at_call.dim */
enum { SDPA_SCALE, SDPA_WINDOW_LEFT, SDPA_WINDOW_RIGHT, SDPA_SOFTCAP };            /* at_call.scalar */
enum { SDPA_BATCH_STRIDE, SDPA_HEAD_STRIDE, SDPA_ROW_STRIDE };                     /* at_call.in_stride[i], out_stride[i] */

/* Where in at_call.in the others are: from SDPA_MORE on those that there are, in this order. */
#define SDPA_KEY_LENGTHS SDPA_MORE
#define SDPA_SINKS (SDPA_MORE + KEY_LENGTHS)
#define SDPA_BIAS (SDPA_SINKS + HAS_SINKS)

/* Whether the problem has them. */
#define HAS_SINKS (SINKS != AT_NONE)
#define HAS_BIAS (BIAS != AT_NONE)
#define HAS_NUMBERS (BIAS == AT_HEADS || BIAS == AT_FULL) /* a bias that may hide keys */

#endif
