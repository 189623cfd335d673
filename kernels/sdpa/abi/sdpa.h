/* The op sdpa: O = softmax(scale * Q K^T) V for every (batch, head).
 *
 * Q, O: (batch, heads, seq_q, HEAD_DIM); K, V: (batch, heads, seq_k, HEAD_DIM), all of element type DTYPE.
 * CAUSAL = 1: row i sees keys j <= i (aligned at the top left, as torch's is_causal), for any seq_q and seq_k.
 */
#ifndef AUTOTUNER_SDPA_H
#define AUTOTUNER_SDPA_H

#include "variant.h"

enum { SDPA_Q, SDPA_K, SDPA_V, SDPA_Q_SCALE, SDPA_K_SCALE, SDPA_V_SCALE }; /* at_call.in; scales: (heads,) float32, or null */
enum { SDPA_O };                                                          /* at_call.out */
enum { SDPA_BATCH, SDPA_HEADS, SDPA_SEQ_Q, SDPA_SEQ_K };                  /* at_call.dim */
enum { SDPA_SCALE };                                                      /* at_call.scalar */

#endif
