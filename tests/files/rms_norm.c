#include <math.h>
#include <stdio.h>
#include "autotuner_demo.h"
int main(void) {
  enum { ROWS = 6, WIDTH = 256 };
  static float x[ROWS * WIDTH] __attribute__((aligned(64))), w[WIDTH] __attribute__((aligned(64)));
  static float y[ROWS * WIDTH] __attribute__((aligned(64)));
  for (int i = 0; i < ROWS * WIDTH; i++) x[i] = (float)(i % 13) - 6;
  for (int i = 0; i < WIDTH; i++) w[i] = (float)(i % 5);
  autotuner_demo_call call = {.input = x, .weight = w, .out = y, .tokens = ROWS, .hidden_size = WIDTH, .eps = 1e-5};
  if (autotuner_demo(&call)) return puts(autotuner_demo_why(autotuner_demo(&call))), 1;
  for (int row = 0; row < ROWS; row++) {
    double sum = 0;
    for (int i = 0; i < WIDTH; i++) sum += (double)x[row * WIDTH + i] * x[row * WIDTH + i];
    for (int i = 0; i < WIDTH; i++) {
      const double due = x[row * WIDTH + i] / sqrt(sum / WIDTH + 1e-5) * w[i];
      if (!(fabs(due - y[row * WIDTH + i]) < 1e-4)) return puts("off"), 1;
    }
  }
  call.eps = 1e-6;
  puts(autotuner_demo_why(autotuner_demo(&call)));
  return 0;
}
