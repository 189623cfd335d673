#include "hosts.h"

extern "C" int strcmp(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  return *a - *b;
}

extern "C" int variant_run(const at_call *call) { return launch(call, false); }
