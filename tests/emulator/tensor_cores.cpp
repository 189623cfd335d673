// ldmatrix and mma with the fragment layouts of the PTX manual.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

#include <vector>

#include "scheduler.h"

namespace emulator {

namespace {

float widen_f16(uint16_t bits) { return __half2float(__half(__half_raw{bits})); }
float widen_byte(uint16_t bits) { return widen_e4m3((uint8_t)bits); }
float widen_bf16(uint16_t bits) { return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{bits})); }

using Widen = float (*)(uint16_t);

// Every 16-bit pattern as a float.
template <Widen WIDEN>
const float *table() {
  static const std::vector<float> values = [] {
    std::vector<float> made(1 << 16);
    for (size_t i = 0; i < made.size(); i++) made[i] = WIDEN((uint16_t)i);
    return made;
  }();
  return values.data();
}

struct Loaded {
  uint32_t words[4];  // this lane's row
  uint32_t r[4];
};

uint32_t element(const Operands &rows, int matrix, int row, int column) {
  const auto *loaded = (const Loaded *)rows[matrix * 8 + row];
  return loaded->words[column / 2] >> 16 * (column % 2) & 0xffff;
}

void distribute(const Operands &operands, bool transposed) {
  for (int lane = 0; lane < 32; lane++)
    for (int matrix = 0; matrix < 4; matrix++) {
      const int row = lane / 4, column = lane % 4 * 2;
      const uint32_t low = transposed ? element(operands, matrix, column, row) : element(operands, matrix, row, column);
      const uint32_t high =
          transposed ? element(operands, matrix, column + 1, row) : element(operands, matrix, row, column + 1);
      ((Loaded *)operands[lane])->r[matrix] = high << 16 | low;
    }
}

struct Product {
  float *c;
  const uint32_t *a;
  uint32_t b[2];
};

// A register has PER elements, of 16 bits or of 8.
template <Widen WIDEN, int PER = 2>
void multiply(const Operands &operands, uint32_t) {
  constexpr int DEPTH = 8 * PER, BITS = 32 / PER;
  const float *value = table<WIDEN>();
  float a[16][DEPTH], b[8][DEPTH], c[16][8];
  for (int lane = 0; lane < 32; lane++) {
    const auto *product = (const Product *)operands[lane];
    const int group = lane / 4, first = lane % 4 * PER, pair = lane % 4 * 2;
    const auto element = [&](uint32_t word, int i) { return value[word >> BITS * i & ((1u << BITS) - 1)]; };
    for (int i = 0; i < PER; i++) {
      for (int r = 0; r < 4; r++) a[group + r % 2 * 8][first + r / 2 * 4 * PER + i] = element(product->a[r], i);
      for (int r = 0; r < 2; r++) b[group][first + r * 4 * PER + i] = element(product->b[r], i);
    }
    for (int r = 0; r < 4; r++) c[group + r / 2 * 8][pair + r % 2] = product->c[r];
  }
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 8; n++) {
      float sum = 0;
      for (int k = 0; k < DEPTH; k++) sum += a[m][k] * b[n][k];
      c[m][n] += sum;
    }
  for (int lane = 0; lane < 32; lane++)
    for (int r = 0; r < 4; r++) ((Product *)operands[lane])->c[r] = c[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2];
}

template <Widen WIDEN, int PER = 2>
void mma(const char *name, float (&c)[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
  Product product = {c, a, {b0, b1}};
  meet(name, ~0u, &product, multiply<WIDEN, PER>);
}

}  // namespace

const float *element_values(bool bfloat16) { return bfloat16 ? table<widen_bf16>() : table<widen_f16>(); }

// A lane reads its row when it comes, not when the last has come: without a __syncwarp or a barrier before, what other
// lanes wrote need not be there.
void ldmatrix(uint32_t (&r)[4], const void *row, bool transposed) {
  check_shared("ldmatrix", row, 16, 16);
  Loaded loaded;
  memcpy(loaded.words, row, 16);
  if (transposed)
    meet("ldmatrix.trans", ~0u, &loaded, [](const Operands &operands, uint32_t) { distribute(operands, true); });
  else
    meet("ldmatrix", ~0u, &loaded, [](const Operands &operands, uint32_t) { distribute(operands, false); });
  memcpy(r, loaded.r, 16);
}

void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma<widen_f16>("mma.f16", c, a, b0, b1);
}

void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma<widen_bf16>("mma.bf16", c, a, b0, b1);
}

void mma_e4m3(float (&c)[4], const uint32_t *a, uint32_t b0, uint32_t b1) {
  mma<widen_byte, 4>("mma.e4m3", c, a, b0, b1);
}

}  // namespace emulator
