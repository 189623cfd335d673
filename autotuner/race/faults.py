"""What the codes of the faults assert that a race may end with, and what usually breaks it."""

from autotuner.values import codes
from autotuner.values.verdict import Meaning

MEANINGS = {
    "measure.launch": Meaning("the variant can be launched on the problem that is tuned"),
    "measure.capture": Meaning("its launches can be captured there, in one process or in another"),
    "measure.device": Meaning("the device reports no error while the variant is timed"),
    "measure.witness": Meaning(
        "beside the variant the baseline takes what it takes in a process that loads no variant",
        "work that goes on after the variant has returned, or a clock that it changes",
    ),
    "measure.unlike": Meaning(
        "in the finals the variant is not far faster than the search has shown",
        "an answer that is kept from earlier launches, in processes that are not those of the search",
    ),
    "measure.disturbed": Meaning(
        "nobody else is at work on the device where a verdict rests on time", "other work: the detail says whose"
    ),
    "measure.floor": Meaning(
        "a forward takes no less time than this device needs for its operations, and when cold its bytes",
        "work that is skipped while it is timed: an answer kept from an earlier forward",
    ),
    "measure.clocks": Meaning(
        "forwards take as long by one clock as by another",
        "work that is put off past the timed events, or runs where they do not see it; a clock that was changed",
    ),
    "measure.memory": Meaning(
        "a forward takes as long on new inputs, with poisoned outputs, as on those of the call before",
        "a result that is kept (a cache of answers, an early return where the output is there), or work that is done"
        " before the call or after it",
    ),
    "measure.overlap": Meaning(
        "a forward begins when the one before it has ended",
        "a first kernel that is launched with programmatic stream serialization",
    ),
    codes.INCUMBENT: Meaning(
        "the variant that it races against can be loaded and launched",
        "a build that was removed from the cache while the sweep ran",
    ),
    codes.FULL: Meaning(
        "the device has memory for what is judged",
        "another program that holds it, or a variant that takes more and more",
    ),
    "measure.throttled": Meaning(
        "the device's clocks are not held down, but for a few blocks, which are taken again",
        "heat, a power limit, or clocks that somebody set: the device's own tool says which",
    ),
}
