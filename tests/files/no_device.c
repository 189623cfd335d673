#include <stdio.h>
#include "autotuner_demo.h"
int main(void) {
  autotuner_demo_call call = {.batch = 1, .heads = 8, .heads_kv = 8, .seq_q = 512, .seq_k = 512, .head_dim = 64};
  puts(autotuner_demo_why(autotuner_demo(&call)));
  return 0;
}
