/* What the two sides of IMPL = cublas agree on: cublas.cu, the softmax kernel, and cublas_host.cpp, which calls cuBLAS
 * around it. Plain C. */
#ifndef CUBLAS_PLAN_H
#define CUBLAS_PLAN_H

#include <stdint.h>

/* The slots of at_geometry.host. They are constants of the cubin, so that the host side's choices, too, are part of the
 * program hash. */
enum {
  CUBLAS_DTYPE,       /* DTYPE: element type of Q, K, V, O and of the probabilities */
  CUBLAS_CAUSAL,      /* CAUSAL */
  CUBLAS_SCORE_BYTES, /* bytes of a score in memory: 4 is a float, 2 an element */
  CUBLAS_CHUNK,       /* query rows that go through the three steps together; 0: all */
  CUBLAS_HEURISTIC    /* which of the algorithms that cuBLAS proposes for a product, best first; or the last there is */
};

/* Rows of the scores and of the probabilities begin at multiples of this number of elements: 16 bytes at least. */
#define CUBLAS_ROW_ELEMENTS 8

/* The softmax kernel's argument. Row r of the chunk lies at scores + r * pitch and belongs to slice r / chunk_rows;
 * `probabilities` has the same layout and is the same memory where a score is an element. Every row gets `keys`
 * probabilities, and zeros up to the next multiple of CUBLAS_ROW_ELEMENTS. */
typedef struct softmax_args {
  const void *scores; /* scaled */
  void *probabilities;
  int64_t pitch;      /* elements from row to row */
  int32_t rows;       /* of all slices */
  int32_t chunk_rows; /* of one slice */
  int32_t first_row;  /* of the chunk, within the sequence */
  int32_t keys;       /* that the chunk's last row sees, and the products work on */
} softmax_args;

#endif
