// nvcuda::wmma on the host, for 16x16x16 products. Which lane holds which element is scrambled, and differently for
// every kind of fragment, so that code which assumes a layout fails.
#ifndef EMULATED_MMA_H
#define EMULATED_MMA_H

#include "emulated_cuda.h"

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

namespace detail {

constexpr int SIDE = 16, LANES = 32, PER_LANE = SIDE * SIDE / LANES;

template <class Use, class T, class Layout>
struct Kind {
  static constexpr bool INPUT = !__is_same(Use, accumulator);
  static constexpr int SALT =
      (__is_same(Use, matrix_a) ? 1 : __is_same(Use, matrix_b) ? 2 : 3) + (__is_same(T, float) ? 8 : 0) +
      (__is_same(T, __half) ? 16 : 0) + (__is_same(Layout, col_major) ? 32 : 0);
  static constexpr int COUNT = INPUT ? 2 * PER_LANE : PER_LANE;  // inputs are held twice, as by real devices

  // The place, row * 16 + column, of element i of a lane: odd factors permute the 256 places.
  static constexpr int place(int lane, int i) {
    return ((lane * PER_LANE + i % PER_LANE) * (2 * SALT + 37) + 11 * SALT) % (SIDE * SIDE);
  }
};

inline float widen(float x) { return x; }
inline float widen(__half x) { return __half2float(x); }
inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
inline void narrow(float &to, float x) { to = x; }
inline void narrow(__half &to, float x) { to = __float2half_rn(x); }

}  // namespace detail

template <class Use, int M, int N, int K, class T, class Layout = void>
class fragment {
  static_assert(M == 16 && N == 16 && K == 16, "the emulator has 16x16x16 only");

 public:
  using kind = detail::Kind<Use, T, Layout>;
  using element_type = T;
  static constexpr int num_elements = kind::COUNT;
  T x[num_elements];
};

namespace detail {

// Checks what the documentation demands of the memory operand, and that the warp agrees on it.
struct Access {
  const void *memory;
  unsigned stride;
};

inline void check_access(const char *name, const void *memory, unsigned stride, unsigned element_bytes) {
  if ((uintptr_t)memory % 32) emulator::fail("%s: the address is no multiple of 32", name);
  if (stride * element_bytes % 16) emulator::fail("%s: the stride of %u is no multiple of 16 bytes", name, stride);
  Access access = {memory, stride};
  emulator::meet(name, ~0u, &access, [](const emulator::Operands &operands, uint32_t) {
    const auto *first = (const Access *)operands[0];
    for (int i = 1; i < 32; i++) {
      const auto *other = (const Access *)operands[i];
      if (other->memory != first->memory || other->stride != first->stride)
        emulator::fail("the lanes of a warp load or store different matrices");
    }
  });
}

template <class Fragment>
size_t offset_of(int i, unsigned stride, bool by_rows) {
  const int place = Fragment::kind::place(emulator::lane(), i), row = place / SIDE, column = place % SIDE;
  return by_rows ? (size_t)row * stride + (size_t)column : (size_t)column * stride + (size_t)row;
}

template <class Fragment, class T>
void load(Fragment &to, const T *memory, unsigned stride, bool by_rows) {
  for (int i = 0; i < to.num_elements; i++) to.x[i] = memory[offset_of<Fragment>(i, stride, by_rows)];
  check_access("load_matrix_sync", memory, stride, sizeof(T));
}

template <class Fragment>
void gather(float (&matrix)[SIDE][SIDE], const Fragment &from, int lane) {
  for (int i = 0; i < Fragment::num_elements; i++) {
    const int place = Fragment::kind::place(lane, i);
    matrix[place / SIDE][place % SIDE] = widen(from.x[i]);
    if (i >= PER_LANE && memcmp(&from.x[i], &from.x[i - PER_LANE], sizeof from.x[i]))
      emulator::fail("the two copies of an input element differ");
  }
}

template <class D, class A, class B, class C>
struct Product {
  D *d;
  const A *a;
  const B *b;
  const C *c;
};

template <class D, class A, class B, class C>
void multiply(const emulator::Operands &operands, uint32_t) {
  float a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
  for (int lane = 0; lane < LANES; lane++) {
    const auto *product = (const Product<D, A, B, C> *)operands[lane];
    gather(a, *product->a, lane);
    gather(b, *product->b, lane);
    gather(c, *product->c, lane);
  }
  for (int m = 0; m < SIDE; m++)
    for (int n = 0; n < SIDE; n++) {
      float sum = 0;
      for (int k = 0; k < SIDE; k++) sum += a[m][k] * b[k][n];
      c[m][n] += sum;
    }
  for (int lane = 0; lane < LANES; lane++)
    for (int i = 0; i < D::num_elements; i++) {
      const int place = D::kind::place(lane, i);
      narrow(((const Product<D, A, B, C> *)operands[lane])->d->x[i], c[place / SIDE][place % SIDE]);
    }
}

}  // namespace detail

template <class Use, int M, int N, int K, class T, class Layout, class Value>
void fill_fragment(fragment<Use, M, N, K, T, Layout> &to, const Value &value) {
  for (T &x : to.x) x = value;
}

// A lane reads and writes when it comes: what other lanes wrote needs a __syncwarp or a barrier before.
template <class Use, int M, int N, int K, class T, class Layout>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout> &to, const T *memory, unsigned stride) {
  detail::load(to, memory, stride, __is_same(Layout, row_major));
}

template <int M, int N, int K, class T>
void load_matrix_sync(fragment<accumulator, M, N, K, T> &to, const T *memory, unsigned stride, layout_t layout) {
  detail::load(to, memory, stride, layout == mem_row_major);
}

template <int M, int N, int K, class T>
void store_matrix_sync(T *memory, const fragment<accumulator, M, N, K, T> &from, unsigned stride, layout_t layout) {
  using Fragment = fragment<accumulator, M, N, K, T>;
  for (int i = 0; i < from.num_elements; i++)
    memory[detail::offset_of<Fragment>(i, stride, layout == mem_row_major)] = from.x[i];
  detail::check_access("store_matrix_sync", memory, stride, sizeof(T));
}

template <int M, int N, int K, class T, class LayoutA, class LayoutB, class TD, class TC>
void mma_sync(fragment<accumulator, M, N, K, TD> &d, const fragment<matrix_a, M, N, K, T, LayoutA> &a,
              const fragment<matrix_b, M, N, K, T, LayoutB> &b, const fragment<accumulator, M, N, K, TC> &c) {
  using D = fragment<accumulator, M, N, K, TD>;
  using A = fragment<matrix_a, M, N, K, T, LayoutA>;
  using B = fragment<matrix_b, M, N, K, T, LayoutB>;
  using C = fragment<accumulator, M, N, K, TC>;
  detail::Product<D, A, B, C> product = {&d, &a, &b, &c};
  emulator::meet("mma_sync", ~0u, &product, detail::multiply<D, A, B, C>);
}

}  // namespace wmma
}  // namespace nvcuda

#endif
