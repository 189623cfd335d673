// rmsnorm on the CPU with vectors and threads. A thread takes blocks of ROWS rows: it sums their squares, and then goes
// through them once more, from the cache, and multiplies.
//   VEC_WIDTH             floats of a vector
//   UNROLL                vectors of sums of a row
//   ROWS                  rows that share one reading of W
//   OVERLAP               1: the squares of the next block are summed in the loop that multiplies this one
//   PREFETCH              cache lines ahead that are asked for, up to the second level, while squares are summed; 0: left to
//                         the machine
//   STREAM                1: Y goes past the caches, where its rows are aligned to vectors
//   THREADS, SYNC_POLICY  how many threads, and how they meet: cpu_pool.h
#include "cpu_rows.h"

#include "cpu_vector.h"

static_assert(UNROLL == 1 || UNROLL == 2 || UNROLL == 4 || UNROLL == 8, "sums are halved until one is left");

#if DTYPE == AT_FLOAT32
typedef vec stored;
AT_INLINE vec load_elements(const element *p) { return load(p); }
AT_INLINE void store_elements(element *p, vec x) { store(p, x); }
#elif DTYPE == AT_BFLOAT16
typedef hvec stored;
AT_INLINE vec load_elements(const element *p) { return load_bfloat16(p); }
AT_INLINE void store_elements(element *p, vec x) { store_bfloat16(p, x); }
#else
#ifndef __F16C__
#error "float16 needs the conversions of F16C"
#endif
typedef hvec stored;
AT_INLINE vec load_elements(const element *p) { return load_float16(p); }
AT_INLINE void store_elements(element *p, vec x) { store_float16(p, x); }
#endif

static constexpr int STEP = UNROLL * VEC_WIDTH;
static constexpr int LINE = 64 / sizeof(element);  // elements

AT_INLINE void stream_elements(element *p, vec x) {
#if STREAM
  element rounded[VEC_WIDTH];
  store_elements(rounded, x);
  __asm__("vmovntps %1, %0" : "=m"(*(stored *)p) : "v"(*(const stored *)rounded));
#else
  store_elements(p, x);
#endif
}

// The last, incomplete vector of a row; what is not there is zero.
AT_INLINE vec load_tail(const element *p, int64_t count) {
  element padded[VEC_WIDTH] = {};
  __builtin_memcpy(padded, p, count * sizeof(element));
  return load_elements(padded);
}

AT_INLINE void store_tail(element *p, vec x, int64_t count) {
  element padded[VEC_WIDTH];
  store_elements(padded, x);
  __builtin_memcpy(p, padded, count * sizeof(element));
}

// Rounded once, whichever loop it stands in: left to itself the compiler fuses the product and the sum in some loops and
// not in others, and a row's sum would depend on its place.
AT_INLINE void add_square(vec &sum, vec value) {
#ifdef __FMA__
  __asm__("vfmadd231ps %1, %1, %0" : "+v"(sum) : "v"(value));
#else
  sum += value * value;
#endif
}

// The sums of the squares of a row, UNROLL vectors of them. The order depends on the column alone, not on which loop adds.
struct Sums {
  vec part[UNROLL];

  void clear() {
    for (int i = 0; i < UNROLL; ++i) part[i] = vec{};
  }
  void add_step(const element *x) {
    AT_UNROLL(8)
    for (int i = 0; i < UNROLL; ++i) {
      // To the second level: the first one holds W and the rows that are multiplied.
      if (PREFETCH > 0 && i * VEC_WIDTH % LINE == 0) __builtin_prefetch(x + i * VEC_WIDTH + PREFETCH * LINE, 0, 2);
      const vec value = load_elements(x + i * VEC_WIDTH);
      add_square(part[i], value);
    }
  }
  void add_rest(const element *x, int64_t column, int64_t columns) {
    for (int i = 0; column < columns; ++i, column += VEC_WIDTH) {
      const int64_t left = columns - column;
      const vec value = left >= VEC_WIDTH ? load_elements(x + column) : load_tail(x + column, left);
      add_square(part[i], value);
    }
  }
  float total() {
    for (int half = UNROLL / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) part[i] += part[i + half];
    float sums[VEC_WIDTH];
    store(sums, part[0]);
    for (int half = VEC_WIDTH / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    return sums[0];
  }
};

template <int COUNT>
AT_INLINE void finish(const Rows &rows, Sums (&sums)[COUNT], const element *x, int64_t column, float (&factors)[COUNT]) {
  for (int r = 0; r < COUNT; ++r) {
    sums[r].add_rest(x + r * rows.hidden_size, column, rows.hidden_size);
    factors[r] = rows.factor(sums[r].total());
  }
}

// What each of COUNT rows is multiplied by.
template <int COUNT>
static void sum_rows(const Rows &rows, const element *x, float (&factors)[COUNT]) {
  Sums sums[COUNT];
  int64_t column = 0;
  for (int r = 0; r < COUNT; ++r) {
    sums[r].clear();
    for (column = 0; column + STEP <= rows.hidden_size; column += STEP)
      sums[r].add_step(x + r * rows.hidden_size + column);
  }
  finish(rows, sums, x, column, factors);
}

// Multiplies COUNT rows. With NEXT it also sums the squares of as many rows behind them, and gives their factors.
template <int COUNT, bool NEXT, bool STREAMED>
static void multiply_rows(const Rows &rows, int64_t row, float (&factors)[COUNT]) {
  const int64_t columns = rows.hidden_size;
  const element *x = rows.x + row * columns, *next = x + COUNT * columns;
  element *y = rows.y + row * columns;
  Sums sums[NEXT ? COUNT : 1];
  for (Sums &each : sums) each.clear();
  int64_t column = 0;
  for (; column + STEP <= columns; column += STEP) {
    if (NEXT)
      AT_UNROLL(8)
      for (int r = 0; r < COUNT; ++r) sums[r].add_step(next + r * columns + column);
    AT_UNROLL(8)
    for (int i = 0; i < UNROLL; ++i) {
      const int64_t at = column + i * VEC_WIDTH;
      const vec w = load_elements(rows.w + at);
      AT_UNROLL(8)
      for (int r = 0; r < COUNT; ++r) {
        const vec value = load_elements(x + r * columns + at) * splat(factors[r]) * w;
        if (STREAMED)
          stream_elements(y + r * columns + at, value);
        else
          store_elements(y + r * columns + at, value);
      }
    }
  }
  const int64_t whole = column;
  for (; column < columns; column += VEC_WIDTH) {
    const int64_t left = columns - column < VEC_WIDTH ? columns - column : VEC_WIDTH;
    const vec w = load_tail(rows.w + column, left);
    for (int r = 0; r < COUNT; ++r) {
      const vec value = load_tail(x + r * columns + column, left) * splat(factors[r]) * w;
      store_tail(y + r * columns + column, value, left);
    }
  }
  if constexpr (NEXT) finish(rows, sums, next, whole, factors);
}

template <int COUNT, bool NEXT>
AT_INLINE void multiply(const Rows &rows, int64_t row, float (&factors)[COUNT]) {
  constexpr uint64_t bytes = VEC_WIDTH * sizeof(element);
  const bool aligned = (uint64_t)rows.y % bytes == 0 && (uint64_t)rows.hidden_size * sizeof(element) % bytes == 0;
  if (STREAM && aligned)
    multiply_rows<COUNT, NEXT, true>(rows, row, factors);
  else
    multiply_rows<COUNT, NEXT, false>(rows, row, factors);
}

static void run_thread(void *context, int thread) {
  const Rows &rows = *(const Rows *)context;
  int64_t row = rows.first(thread, ROWS);
  const int64_t end = rows.first(thread + 1, ROWS);
  float factors[ROWS];
  bool known = false;
  for (; row + ROWS <= end; row += ROWS) {
    if (!known) sum_rows(rows, rows.x + row * rows.hidden_size, factors);
    known = OVERLAP && row + 2 * ROWS <= end;
    if (known)
      multiply<ROWS, OVERLAP>(rows, row, factors);
    else
      multiply<ROWS, false>(rows, row, factors);
  }
  for (; row < end; ++row) {
    float factor[1];
    sum_rows(rows, rows.x + row * rows.hidden_size, factor);
    multiply<1, false>(rows, row, factor);
  }
#if STREAM
  __asm__ volatile("sfence" ::: "memory");  // before another thread is told that Y is written
#endif
}

extern "C" int64_t variant_workspace(const at_call *) { return 0; }

extern "C" int variant_run(const at_call *call) {
  Rows rows(call);
  return pool_run(run_thread, &rows);
}
