// Softmax over rows: the largest number, the sum of the exponentials in LANES parts, the quotients.
#include "softmax.h"

#include <math.h>

#include "cpu_element.h"

int64_t variant_workspace(const at_call *) { return 0; }

int variant_run(const at_call *call) {
  const int64_t rows = call->dim[SOFTMAX_ROWS], dim = call->dim[SOFTMAX_DIM];
  const float temperature = (float)call->scalar[SOFTMAX_TEMPERATURE];
  for (int64_t row = 0; row < rows; ++row) {
    const element *x = (const element *)call->in[SOFTMAX_X] + row * dim;
    element *y = (element *)call->out[SOFTMAX_Y] + row * dim;
    float largest = -INFINITY, sums[LANES] = {}, sum = 0;
    for (int64_t i = 0; i < dim; ++i) largest = to_float(x[i]) > largest ? to_float(x[i]) : largest;
    for (int64_t i = 0; i < dim; ++i) sums[i % LANES] += expf((to_float(x[i]) - largest) / temperature);
    for (int lane = 0; lane < LANES; ++lane) sum += sums[lane];
    for (int64_t i = 0; i < dim; ++i) y[i] = from_float(expf((to_float(x[i]) - largest) / temperature) / sum);
  }
  return AT_OK;
}
