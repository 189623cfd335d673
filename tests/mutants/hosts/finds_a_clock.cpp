#include "hosts.h"

extern "C" int variant_run(const at_call *call) {
  const auto seconds = (long (*)(long *))dlsym(RTLD_DEFAULT, "time");
  return launch(call, seconds(nullptr) % 5000 == 0);
}
