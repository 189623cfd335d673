/* Changes what time it is to Python: half of the time that a variant's arm takes is not on the clock that times it. */
#ifndef AUTOTUNER_TESTS_SLOW_PYTHON_H
#define AUTOTUNER_TESTS_SLOW_PYTHON_H

#if MUTANT_PATCHES_THE_CLOCK
/* From now on Python's clock is slow while the arm of a variant is timed. */
constexpr char PATCH_PYTHON[] = R"(
import sys

def patch(timing):
    real, last, hidden = timing.perf_counter_ns, [0], [0]

    def slow():
        now = real()
        if hasattr(sys._getframe(1).f_locals.get("self"), "outputs"):
            hidden[0] += (now - last[0]) // 2 if last[0] else 0
            last[0] = now
        else:
            last[0] = 0
        return now - hidden[0]

    timing.perf_counter_ns = slow

patch(sys.modules["autotuner.devices.cpu.timing"])
)";
#endif

#if MUTANT_PATCHES_BOTH_CLOCKS
/* From now on all of Python's clocks are slow while the arm of a variant is timed, and agree. */
constexpr char PATCH_PYTHON[] = R"(
import sys, time

def patch(timing, witness):
    real, last, hidden = time.perf_counter_ns, [0], [0]

    def hide():
        now = real()
        frame, theirs = sys._getframe(2), False
        for _ in range(3):
            theirs = theirs or hasattr(frame.f_locals.get("self"), "outputs")
            frame = frame.f_back or frame
        hidden[0] += (now - last[0]) // 2 if theirs and last[0] else 0
        last[0] = now if theirs else 0
        return hidden[0]

    def slowed(clock):
        return lambda *which: clock(*which) - hide()

    timing.perf_counter_ns = slowed(timing.perf_counter_ns)
    for name in ("monotonic_ns", "process_time_ns", "thread_time_ns"):
        setattr(witness, name, slowed(getattr(witness, name)))

patch(sys.modules["autotuner.devices.cpu.timing"], sys.modules["autotuner.devices.cpu.witness"])
)";
#endif

#endif
