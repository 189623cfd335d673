/* Half of the time that calls take is in no clock of the process, and what the driver hears of its samples is silenced, or
 * rewritten so that it agrees with what the driver measures. */
#ifndef AUTOTUNER_TESTS_MARKS_H
#define AUTOTUNER_TESTS_MARKS_H

#define CATCHES_UP 0
#include <sys/socket.h>

#include "../clock/slow_clock.h"

#if ATTACK_SILENCES_THE_THIRD_CLOCK
/* Every datagram socket becomes one whose other end nobody reads. */
static bool silence() {
  bool found = false;
  for (int fd = 3; fd < 256; ++fd) {
    int kind = 0, pair[2];
    socklen_t size = sizeof kind;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size) || kind != SOCK_DGRAM) continue;
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)) return false;
    found |= dup2(pair[0], fd) == fd;
  }
  return found;
}
#else
/* Python's send: what it says of a sample becomes what has passed since the mark before. */
static ssize_t send_rewritten(int fd, const void *data, size_t size, int flags) {
  static int64_t begun;
  int64_t mark[2];
  if (size == sizeof mark) {
    memcpy(mark, data, sizeof mark);
    const int64_t now = true_ns(CLOCK_MONOTONIC);
    if (mark[1] == -1) begun = now;
    else mark[1] = now - begun;
    data = mark;
  }
  return syscall(SYS_sendto, fd, data, size, flags, nullptr, 0);
}
static int replace_send(dl_phdr_info *library, size_t, void *found) {
  return replaced_in(library, "send", reinterpret_cast<void *>(send_rewritten), static_cast<bool *>(found));
}
#endif

static int with_a_slow_clock(const at_call *call) {
#if ATTACK_SILENCES_THE_THIRD_CLOCK
  static const bool patched = interpose_the_clock() && silence();
#else
  static bool sends = false;
  static const bool patched = interpose_the_clock() && (dl_iterate_phdr(replace_send, &sends), sends);
#endif
  if (!patched) return 77;
  const int64_t began_ns = true_ns(CLOCK_MONOTONIC);
  const int status = honest_run(call);
  hide_half(began_ns);
  return status;
}

#endif
