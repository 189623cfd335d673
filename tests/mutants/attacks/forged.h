/* Messages to the driver under the key of the process. */
#ifndef AUTOTUNER_TESTS_FORGED_H
#define AUTOTUNER_TESTS_FORGED_H

#include "../../kernels/conduct/forged_reply.h"

static void forge(const char *json) {
  static unsigned char frame[HEAD + KEY + 4096];
  static const bool found = find_key(frame + HEAD);
  if (!found) abort();
  const size_t size = strlen(json), whole = HEAD + KEY + size;
  memcpy(frame + HEAD + KEY, json, size);
  for (size_t i = 0; i < HEAD; ++i) frame[i] = static_cast<unsigned char>((KEY + size) >> (24 - 8 * i));
  for (int fd = 3; fd < 64; ++fd)
    if (write(fd, frame, whole) < 0) continue;
}
[[maybe_unused]] static void forge_step(int number, const char *step) {
  char json[256];
  snprintf(json, sizeof json, "{\"number\": %d, \"step\": \"%s\"}", number, step);
  forge(json);
}
[[maybe_unused]] static void forge_error(int number) {
  char json[256];
  snprintf(json, sizeof json,
           "{\"number\": %d, \"raised\": {\"kind\": \"InputError\", \"text\": \"the space is not valid\"}}", number);
  forge(json);
}
/* Of a race that was never held, with a ratio that would win. */
[[maybe_unused]] static void forge_latency(int number) {
  char json[2048];
  snprintf(json, sizeof json,
           "{\"number\": %d, \"result\": {\"kind\": \"outcome\", \"variant\": {\"family\": \"attacks\", \"backend\": \"cpu\","
           " \"impl\": \"stated\", \"parameters\": {\"ATTACK\": \"forges_a_latency\"}}, \"verdict\": \"measured\"}}",
           number);
  forge(json);
}

#endif
