/* Takes SIZE milliseconds, and refuses a call that begins within another. */
#include <atomic>
#include <chrono>
#include <thread>

#include "sdpa.h"

static std::atomic<int> within{0};

int64_t variant_workspace(const at_call *) { return 0; }
int variant_run(const at_call *) {
  const bool alone = !within++;
  std::this_thread::sleep_for(std::chrono::milliseconds(SIZE));
  within--;
  return alone ? AT_OK : AT_OUTSIDE_DOMAIN;
}
