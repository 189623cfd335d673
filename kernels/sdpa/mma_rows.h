// Where a row of the work lies in the tensors, and which keys it sees.
//
// A slice is one head of Q; with PACK_GQA it is one head of K and V, and its rows are those of all heads of Q that look at
// it: row r is query r / group of head r % group of the group, so that the rows of few queries fill a tile.
#ifndef MMA_ROWS_H
#define MMA_ROWS_H

#include "abi/sdpa_cuda.h"

#include "bias.h"
#include "cuda_element.h"

// What an implementation leaves out has one value.
#ifndef PACK_GQA
#define PACK_GQA 0
#endif
#ifndef L2_FETCH
#define L2_FETCH 256
#endif
#ifndef MULTICAST
#define MULTICAST 1
#endif
#ifndef TILE_ROWS
#define TILE_ROWS 16
#endif
#ifndef FIXED
#define FIXED 0
#endif
#ifndef SYNC_POLICY
#define SYNC_POLICY 0
#endif

#if GROUPED && PACK_GQA
#define PACKED 1
#else
#define PACKED 0
#endif
#define STRIDED (LAYOUT != AT_BHSD)
// Rows may see no key at all.
#define MAY_BE_BLIND (KEY_LENGTHS || WINDOWED || HAS_NUMBERS || CORNER == AT_BOTTOM_RIGHT)
// Rows see different keys.
#define HIDES (CAUSAL || WINDOWED)
// Batches and heads are told apart.
#define NAMES_HEADS (STRIDED || GROUPED || MORE_INPUTS || KEY_LENGTHS)

#if FIXED
#define AT_SEQ_Q(args) SEQ_Q
#define AT_SEQ_K(args) SEQ_K
#else
#define AT_SEQ_Q(args) (args).seq_q
#define AT_SEQ_K(args) (args).seq_k
#endif

AT_DEVICE int least(int a, int b) { return a < b ? a : b; }

struct Slice {
  int number;          // of a slice: batch * heads + head, or batch * heads_kv + head of K and V
  int batch, head;     // with NAMES_HEADS; the first head of Q
  int head_kv, group;  // the head of K and V, and the rows of one query
  int seq_q, seq_k;
  int rows;    // of Q
  int length;  // keys that there are
  int offset;  // the place of query i among these is i + offset
#if WINDOWED
  int left, right;  // keys to either side of it that it sees
#endif
#if SOFTCAPPED
  float before_cap;  // what scores are multiplied by
#endif
#if HAS_BIAS
  const void *bias;
  sdpa_strides bias_stride;
  float scale_log2;
#endif

  __device__ __forceinline__ int query(int row) const { return PACKED ? row / group : row; }
  __device__ __forceinline__ int head_of(int row) const { return PACKED ? head + row % group : head; }

  // How many keys any row before this one sees.
  __device__ __forceinline__ int end_before(int row) const {
    if (!HIDES) return length;
    int end = (PACKED ? query(row - 1) + 1 : row) + offset;
#if WINDOWED
    end += right;
#endif
    return least(length, CORNER == AT_BOTTOM_RIGHT && end < 0 ? 0 : end);
  }

  // How many the row sees.
  __device__ __forceinline__ int end_of(int row) const { return end_before(row + 1); }

  // The first that the row sees, or some key after all that there are.
  __device__ __forceinline__ int begin_of([[maybe_unused]] int row) const {
#if WINDOWED
    const int begin = query(row) + offset - left;
    return begin < 0 ? 0 : begin;
#else
    return 0;
#endif
  }

  // The first element of a row of Q or O.
  __device__ __forceinline__ int64_t place(int row, [[maybe_unused]] const sdpa_strides &stride) const {
#if STRIDED
    return batch * stride.batch + head_of(row) * stride.head + query(row) * stride.row;
#elif PACKED
    return (((int64_t)number * group + row % group) * seq_q + query(row)) * HEAD_DIM;
#else
    return ((int64_t)number * seq_q + row) * HEAD_DIM;
#endif
  }

#if HAS_BIAS
  // Of a row, or of the last one where there are fewer.
  __device__ __forceinline__ RowBias bias_of(int row) const {
    const int last = least(row, rows - 1);
    return row_bias(bias, bias_stride, batch, head_of(last), query(last), query(last) + offset, seq_k, scale_log2);
  }
#endif

  // The place of its log-sum-exp.
  __device__ __forceinline__ int64_t lse_place(int row) const {
    return PACKED ? ((int64_t)number * group + row % group) * seq_q + query(row) : (int64_t)number * seq_q + row;
  }

  // The number of the head of K and V in dense tensors.
  __device__ __forceinline__ int kv_number([[maybe_unused]] const sdpa_args &args) const {
    return GROUPED && !PACKED ? batch * args.heads_kv + head_kv : number;
  }
};

#if FP8_CACHE
// What a number of Q, K or V of the slice is to be multiplied by.
AT_DEVICE float descale(const sdpa_args &args, int tensor, const Slice &s) {
  return __ldg((const float *)args.more[tensor] + s.kv_number(args));
}

// Not 0, since some scores are -infinity.
AT_DEVICE float scale_log2(const sdpa_args &args, const Slice &s) {
  return max_nan(args.scale_log2 * descale(args, SDPA_Q, s) * descale(args, SDPA_K, s), 1e-30f);
}
#else
AT_DEVICE float scale_log2(const sdpa_args &args, const Slice &) { return args.scale_log2; }
#endif

// Rows of all slices, for locate(): the slice's number is not known yet.
AT_DEVICE Slice sizes_of(const sdpa_args &args) {
  Slice s;
  s.seq_q = AT_SEQ_Q(args);
  s.seq_k = AT_SEQ_K(args);
  s.group = GROUPED ? args.heads / args.heads_kv : 1;
  s.rows = PACKED ? s.seq_q * s.group : s.seq_q;
  return s;
}

AT_DEVICE int slices_of(const sdpa_args &args) { return args.batch * (PACKED ? args.heads_kv : args.heads); }

AT_DEVICE void name_slice(Slice &s, const sdpa_args &args, int number) {
  s.number = number;
#if NAMES_HEADS
  const int heads = PACKED ? args.heads_kv : args.heads;
  s.batch = number / heads;
  s.head = PACKED ? number % heads * s.group : number % heads;
  s.head_kv = PACKED ? number % heads : s.head / s.group;
#endif
#if KEY_LENGTHS
  const int length = args.key_lengths[s.batch];
  s.length = length < 0 ? 0 : least(length, s.seq_k);
#else
  s.length = s.seq_k;
#endif
  s.offset = CORNER == AT_BOTTOM_RIGHT ? s.length - s.seq_q : 0;
#if HAS_BIAS
  s.bias = args.more[SDPA_BIAS - SDPA_MORE];
  s.bias_stride = args.bias_stride;
  s.scale_log2 = args.scale_log2;
#endif
#if SOFTCAPPED
  s.before_cap = args.scale;
#endif
#if WINDOWED
  s.left = args.window_left;
  s.right = args.window_right;
#endif
}

#endif
