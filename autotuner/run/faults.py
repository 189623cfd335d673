"""What the codes of the faults assert that a process may end with, and what usually breaks it."""

from autotuner.values import codes
from autotuner.values.verdict import Fault, Meaning, Verdict

MEANINGS = {
    "process.signal": Meaning("the process that runs the variant is not killed by a signal"),
    "process.exit": Meaning("the process that runs the variant does not exit by itself"),
    "process.deadline": Meaning(
        "the variant finishes within its deadline", "an endless loop, or a barrier that not every thread reaches"
    ),
    "process.exception": Meaning(
        "judging the variant raises nothing in its process, twice in a row",
        "a variant that uses up memory or open files, or changes Python or torch in its process",
    ),
    "process.driver": Meaning(
        "the driver goes on while the variant is judged",
        "a variant that sends signals to other processes, or one that takes the machine down",
    ),
    "process.server": Meaning(
        "the process that starts all others goes on while the variant is judged, twice in a row",
        "a variant that sends signals to other processes",
    ),
    "process.garbage": Meaning(
        "what the process that runs the variant sends back is an answer to its job",
        "a variant that writes into open files which it did not open",
    ),
}

BY_OTHERS = {codes.DEVICE_LEAK, codes.REST, "measure.clocks", "measure.floor", "measure.memory", "measure.witness"}
BY_OTHERS |= {codes.CAPTURE, "measure.capture"}  # a graph that our own process gives back meanwhile ends a capture


def may_be_others(fault: Fault) -> bool:
    """Whether something else may bring it about, as all that rests on time: it is a fault of the variant where a
    second look, alone on a calm machine and in a fresh process, finds one again."""
    return fault.code in BY_OTHERS or fault.verdict in (Verdict.HUNG, Verdict.BUILD_TIMEOUT)


SIGNALS = {
    4: "an instruction that this processor does not have (built for another architecture)",
    6: "an assertion or the C++ runtime aborted: an uncaught exception, or damaged heap memory",
    7: "an access that the memory system refuses: a misaligned or unbacked address",
    8: "an integer division by zero",
    9: "killed from outside: out of memory, or by a person",
    11: "usually a read or write past a tensor's end, or before it: on the CPU nothing is mapped around a tensor; or a"
    " write to an input, which can be read alone at some launches",
}
"""What usually makes a process end by a signal, by the signal's number."""
