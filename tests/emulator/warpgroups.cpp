// Products of warpgroups and bulk stores. A product reads its operands, and writes its result, at any moment between its
// issue and its wait, as the seed has it: what is changed or read too early shows as a difference.
//
// Each warp computes its own 16 rows; that the four of a warpgroup issue the same products is not looked at.
#include <cuda_fp8.h>
#include <string.h>

#include "scheduler.h"
#include "tensor_map.h"

namespace emulator {

namespace {

constexpr int WARP_ROWS = 16, DEPTH = 16, BYTE_DEPTH = 32, PANEL_COLUMNS = 64, ROW_BYTES = 128, GROUP_ROWS = 8;

// The fields of a matrix descriptor, in bytes.
struct Matrix {
  uint32_t start, panel, group;
  int row_bytes;  // and of its swizzle

  explicit Matrix(uint64_t descriptor)
      : start((uint32_t)(descriptor & 0x3fff) << 4),
        panel((uint32_t)(descriptor >> 16 & 0x3fff) << 4),
        group((uint32_t)(descriptor >> 32 & 0x3fff) << 4),
        row_bytes(256 >> (descriptor >> 62)) {
    if (descriptor >> 62 == 0) fail("wgmma: a matrix without a swizzle");
  }

  // Element `column` of a row of 64, in the panel of that number.
  uint16_t element(int row, int panel_number, int column) const {
    const uint32_t line = start + (uint32_t)panel_number * panel + (uint32_t)(row / GROUP_ROWS) * group;
    if (row_bytes != ROW_BYTES) fail("wgmma: a matrix without the 128-byte swizzle");
    const uint32_t offset = swizzled(line + (uint32_t)(row % GROUP_ROWS * ROW_BYTES + column * 2), ROW_BYTES);
    if (offset + 2 > (uint32_t)dynamic_used()) fail("wgmma: byte %u of shared memory, which has %d", offset, dynamic_used());
    uint16_t bits;
    memcpy(&bits, dynamic_base() + offset, 2);
    return bits;
  }

  // Byte `column` of a row, as e4m3.
  float byte(int row, int column) const {
    const uint32_t line = start + (uint32_t)(row / GROUP_ROWS) * group;
    const uint32_t offset = swizzled(line + (uint32_t)(row % GROUP_ROWS * row_bytes + column), row_bytes);
    if (offset >= (uint32_t)dynamic_used()) fail("wgmma: byte %u of shared memory, which has %d", offset, dynamic_used());
    return widen_e4m3(dynamic_base()[offset]);
  }
};

// One warp's part of a product; the operands of its lanes.
struct Part {
  Product lane[32];
  int warp;  // of the warpgroup

  float a[WARP_ROWS][DEPTH];

  void read_left(const float *value) {
    const Product &first = lane[0];
    if (!first.a) {
      const Matrix matrix(first.a_descriptor);
      for (int row = 0; row < WARP_ROWS; row++)
        for (int k = 0; k < DEPTH; k++) a[row][k] = value[matrix.element(warp * WARP_ROWS + row, 0, k)];
      return;
    }
    for (int i = 0; i < 32; i++)
      for (int r = 0; r < 4; r++)
        for (int half = 0; half < 2; half++)
          a[i / 4 + r % 2 * 8][i % 4 * 2 + r / 2 * 8 + half] = value[lane[i].a[r] >> 16 * half & 0xffff];
  }

  // Bytes; how few bits a sum keeps does not show here.
  void run_bytes() {
    const Product &first = lane[0];
    const Matrix right(first.b);
    float left[WARP_ROWS][BYTE_DEPTH], b[BYTE_DEPTH];
    for (int row = 0; row < WARP_ROWS; row++)
      for (int k = 0; k < BYTE_DEPTH; k++) {
        const uint32_t word = first.a ? lane[row % 8 * 4 + k % 16 / 4].a[row / 8 + k / 16 * 2] : 0;
        left[row][k] = first.a ? widen_e4m3((uint8_t)(word >> k % 4 * 8))
                               : Matrix(first.a_descriptor).byte(warp * WARP_ROWS + row, k);
      }
    for (int column = 0; column < first.columns; column++) {
      for (int k = 0; k < BYTE_DEPTH; k++) b[k] = right.byte(column, k);
      for (int row = 0; row < WARP_ROWS; row++) {
        float sum = 0;
        for (int k = 0; k < BYTE_DEPTH; k++) sum += left[row][k] * b[k];
        float &d = lane[row % 8 * 4 + column % 8 / 2].d[column / 8 * 4 + row / 8 * 2 + column % 2];
        d = first.add ? d + sum : sum;
      }
    }
  }

  void run() {
    const Product &first = lane[0];
    if (first.fp8) return run_bytes();
    const float *value = element_values(first.bfloat16);
    const Matrix right(first.b);
    read_left(value);
    for (int column = 0; column < first.columns; column++) {
      float b[DEPTH];
      for (int k = 0; k < DEPTH; k++)
        b[k] = value[first.along ? right.element(k, column / PANEL_COLUMNS, column % PANEL_COLUMNS)
                                 : right.element(column, 0, k)];
      for (int row = 0; row < WARP_ROWS; row++) {
        float sum = 0;
        for (int k = 0; k < DEPTH; k++) sum += a[row][k] * b[k];
        float &d = lane[row % 8 * 4 + column % 8 / 2].d[column / 8 * 4 + row / 8 * 2 + column % 2];
        d = first.add ? d + sum : sum;
      }
    }
  }
};

void run_all(std::vector<std::function<void()>> &waiting) {
  for (auto &product : waiting) product();
  waiting.clear();
}

// All that is issued, in order.
void run_pending(Warp &warp) {
  for (auto &group : warp.groups) run_all(group);
  run_all(warp.open);
}

}  // namespace

float widen_e4m3(uint8_t bits) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3))); }

uint8_t round_to_e4m3(float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); }

uint64_t matrix_descriptor(const void *matrix, uint32_t panel_bytes, int row_bytes) {
  check_shared("matrix_descriptor", matrix, 1, 16);
  const uint64_t kind = row_bytes == 128 ? 1 : row_bytes == 64 ? 2 : 3;
  const auto offset = (uint64_t)((const unsigned char *)matrix - dynamic_base());
  return (offset & 0x3ffff) >> 4 | (uint64_t)(panel_bytes >> 4) << 16 |
         (uint64_t)(8 * row_bytes >> 4) << 32 | kind << 62;
}

void wgmma(const Product &product) {
  Product mine = product;
  meet("wgmma", ~0u, &mine, [](const Operands &operands, uint32_t) {
    Part part = {};
    for (int i = 0; i < 32; i++) part.lane[i] = *(const Product *)operands[i];
    part.warp = (int)(running->at.thread.x / 32 % 4);
    for (const Product &other : part.lane)
      if (other.b != part.lane[0].b || other.columns != part.lane[0].columns || other.add != part.lane[0].add)
        fail("wgmma: the lanes of a warp issue different products");
    Warp &warp = *running->warp;
    warp.open.push_back([part]() mutable { part.run(); });
    if (landing == Landing::AT_ISSUE || (landing == Landing::RANDOM && random_below(2))) run_pending(warp);
  });
}

void wgmma_commit() {
  meet("wgmma_commit", ~0u, nullptr, [](const Operands &, uint32_t) {
    Warp &warp = *running->warp;
    warp.groups.push_back(std::move(warp.open));
    warp.open.clear();
  });
}

void wgmma_wait(int pending_groups) {
  int wanted = pending_groups;
  meet("wgmma_wait", ~0u, &wanted, [](const Operands &operands, uint32_t) {
    auto &groups = running->warp->groups;
    while ((int)groups.size() > *(const int *)operands[0]) {
      run_all(groups.front());
      groups.pop_front();
    }
  });
}

// Stores ---------------------------------------------------------------------------------------------------------------

namespace {

struct Stored {
  unsigned char *row;  // that this lane gives the address of
  uint32_t words[4];
};

void scatter(const Operands &operands, uint32_t) {
  for (int matrix = 0; matrix < 4; matrix++)
    for (int row = 0; row < GROUP_ROWS; row++)
      for (int pair = 0; pair < 4; pair++)
        memcpy(((Stored *)operands[matrix * 8 + row])->row + pair * 4,
               &((Stored *)operands[row * 4 + pair])->words[matrix], 4);
}

struct Box {
  TensorMap map;
  const unsigned char *shared;
  int x, y, z, w;
};

void write_back(const Box &box) {
  const TensorMap &map = box.map;
  for (int row = 0; row < map.rows; row++)
    for (int column = 0; column < PANEL_COLUMNS; column++) {
      const int64_t x = box.x + column, y = box.y + row;
      if (x >= map.head_dim || y >= map.seq || box.z >= map.slices) continue;
      auto *target = (uint16_t *)const_cast<unsigned char *>(map.base) + map.place(y, box.z, box.w) + x;
      check_global("tma_store", target, 2);
      memcpy(target, box.shared + row * ROW_BYTES + (column / 8 ^ row % 8) * 16 + column % 8 * 2, 2);
    }
}

}  // namespace

void stmatrix(void *row, const uint32_t (&words)[4]) {
  check_shared("stmatrix", row, 16, 16);
  Stored mine = {(unsigned char *)row, {words[0], words[1], words[2], words[3]}};
  meet("stmatrix", ~0u, &mine, scatter);
}

void tma_store(const void *map, const void *shared, int x, int y, int z, int w) {
  Box box = {{}, (const unsigned char *)shared, x, y, z, w};
  memcpy(&box.map, map, sizeof box.map);
  if (box.map.magic != TENSOR_MAP_MAGIC) fail("tma_store: not a tensor map");
  if ((w >= 0) != (box.map.batches > 0)) fail("tma_store: the map has another number of dimensions");
  if (w >= box.map.batches && w >= 0) fail("tma_store: batch %d of %d", w, (int)box.map.batches);
  check_shared("tma_store", shared, (size_t)(box.map.rows * ROW_BYTES), 1024);
  if (landing == Landing::AT_ISSUE || (landing == Landing::RANDOM && random_below(2)))
    write_back(box);
  else
    running->open_stores.push_back([box] { write_back(box); });
}

void tma_store_commit() {
  for (auto &store : running->open_stores) running->stores.push_back(std::move(store));
  running->open_stores.clear();
}

void tma_store_wait() { run_all(running->stores); }

}  // namespace emulator
