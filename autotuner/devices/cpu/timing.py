"""Timing on the CPU: the sides of a race, each a few forwards a sample over sets of guarded inputs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter, perf_counter_ns

import torch
from torch import Tensor

from autotuner.devices.cpu.guarded_memory import ALIGNMENT, PATTERN, Slab, guarded
from autotuner.devices.cpu.witness import Witness
from autotuner.devices.sets import FIRST, InputSets, Outputs, Results, Used, set_count
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.recheck import Timed
from autotuner.ops import op_of
from autotuner.ops.op import Baseline
from autotuner.ops.tensors import Symmetry, Tensors, on_one_thread
from autotuner.race.arms import Clocks
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault

WAKE_S = 0.002
"""Seconds of untimed forwards before a sample: threads that slept are first moved about by the scheduler."""

SAMPLE_S = 0.006
"""A sample is at least this long, to dwarf the clock's resolution and a call's overhead from Python."""

TRIED = 3
"""Forwards by which the number of calls in a sample is chosen."""

LONG_S = 10 * SAMPLE_S
"""Seconds of a forward of which one is enough for that: nothing holds up a short one for so long."""

SETTLE_S = 0.015
"""Pause before a sample of several threads: threads of the other arm spin for a few milliseconds before they sleep."""


MOST_SLABS = 18_000
"""Tensors of a process that lie in slabs of their own, at most: Linux gives a process 65,530 mappings
(vm.max_map_count), and a slab takes three."""

ARMS = 3
"""Variants that have outputs of their own for each input set, at most."""

REST_S = 0.03
"""Seconds after the last call until threads must have gone to sleep, and for which they are then watched."""

SECOND_LOOK = 10
"""Samples a side by which other threads are looked for once more."""

PROBES = 64
"""Elements of an output that are made NaN before the last call of a sample, and looked at as soon as it returns."""


class Slabs:
    """Copies of tensors, a set each and each set a group, every tensor in a slab of its own. They are written, so that
    no page fault is timed."""

    def __init__(self, count: int, like: Tensors) -> None:
        self._slabs: list[Slab] = []
        self.sets = [tuple(map(self._placed, like)) for _ in range(count)]
        self.groups = [tuple(tensor[None] for tensor in tensors) for tensors in self.sets]

    def _placed(self, tensor: Tensor) -> Tensor:
        slab, copy = guarded(tensor)
        self._slabs.append(slab)
        return copy

    def damage(self) -> str | None:
        """What was written before or just past a tensor, in words."""
        return next((text for slab in self._slabs if (text := slab.damaged())), None)


class CpuSets(InputSets):
    """Of a problem of some KiB there are only as many sets as the process may map, and some of each may still be in the
    cache."""

    def __init__(
        self, problem: Problem, inputs: Tensors, cache: str, cache_bytes: int, slabs: int = MOST_SLABS
    ) -> None:
        """`slabs`: that these sets may take."""
        most = slabs // (len(inputs) + ARMS * len(op_of(problem).outputs(problem)))
        count = min(most, set_count(problem, cache == "cold", cache_bytes))
        super().__init__(problem, inputs, Slabs(count, inputs), cache == "cold")
        self.baseline: Arm | None = None
        """The baseline's arm that was made last."""
        self._next = 0
        self._idle_since = 0.0
        """When the last sample ended, by perf_counter()."""

    def turn(self) -> int:
        """Index of the set to use now. All arms share it: what one arm has just used would be warm for another."""
        now, self._next = self._next, (self._next + 1) % len(self)
        return now

    @property
    def upcoming(self) -> int:
        """Index of the set whose turn comes next."""
        return self._next

    @property
    def idle_until(self) -> float:
        """When the threads of the last sample sleep, by perf_counter()."""
        return self._idle_since + SETTLE_S

    def rest(self) -> None:
        """A sample ends now."""
        self._idle_since = perf_counter()


def stay_awake(sets: CpuSets, threads: int) -> None:
    """Waits until the threads of the arm that was timed last sleep, without sleeping itself: a thread that has slept is
    often woken onto the CPU of the one that wakes the others, and samples then fall into two groups, one of them at the
    speed of a single CPU."""
    until = sets.idle_until if threads > 1 else 0.0
    while perf_counter() < until:
        pass


class ProbedOutputs(Outputs):
    """Some elements are made NaN before the last call of a sample, and looked at as soon as it returns."""

    def __init__(self, sets: CpuSets) -> None:
        poison = tuple(output.fill_(torch.nan) for output in sets.fresh_outputs())
        super().__init__(sets, Slabs(len(sets), poison))
        self._draw()

    def _draw(self) -> None:
        """Other elements to look at."""
        self._places = [tuple(torch.randint(size, (PROBES,)) for size in output.shape) for output in self.tensors[0]]

    def poison(self, groups: Iterable[int] = FIRST) -> None:
        """From now on other elements are looked at."""
        self._draw()
        super().poison(groups)

    def spoil(self, index: int) -> None:
        """Makes a few elements of these outputs NaN."""
        for output, places in zip(self.tensors[index], self._places, strict=True):
            output[places] = torch.nan

    def probe(self, index: int) -> list[Tensor]:
        """The same elements, as they are now."""
        return self._probed(self.tensors[index])

    def lacks(self, probed: Sequence[Tensor], index: int, plain: Tensors) -> bool:
        """Whether what was probed is not what it must be, where the plain inputs give `plain`: 0 and -0 are equal, NaN
        is like nothing."""
        due = self._probed(stacked[0] for stacked in self.due(index, plain))
        return not all(bool((one == two).all()) for one, two in zip(probed, due, strict=True))

    def _probed(self, outputs: Iterable[Tensor]) -> list[Tensor]:
        return [output[places] for output, places in zip(outputs, self._places, strict=True)]


class Beside:
    """What a baseline is given beside the inputs of each set. It is made outside the clock, for sets with other inputs
    than it was made for."""

    def __init__(self, baseline: Baseline, sets: CpuSets) -> None:
        self._baseline, self._sets = baseline, sets
        self.of: list[Tensors] = [()] * len(sets)
        self._made_for: dict[int, Symmetry | None] = {}

    def make(self) -> None:
        """For every set."""
        for index, symmetry in enumerate(self._sets.symmetries):
            if index not in self._made_for or self._made_for[index] is not symmetry:
                self.of[index] = self._baseline.beside(self._sets.problem, self._sets.inputs[index])
                self._made_for[index] = symmetry


class Arm:
    """One side of the race: forwards of one implementation over the input sets. Calling it takes a sample."""

    is_variant = False

    def __init__(
        self,
        forward: Callable[[int], object],
        sets: CpuSets,
        threads: int,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """`prepare`: is called before a sample."""
        self.forward, self.sets, self.threads, self._prepare = forward, sets, threads, prepare
        self.last = 0
        self._used: set[int] = set()
        """Sets that the sample under way has used."""
        self.witness = Witness(threads, leaves_work=self.is_variant)
        if not self.is_variant:
            sets.baseline = self
        self._prepare()
        self._run()
        self.seconds = min(self._seconds())
        """Of a forward, about."""
        self.calls = max(1, math.ceil(SAMPLE_S / self.seconds))

    def _seconds(self) -> Iterator[float]:
        """Of some forwards: the machine may hold one up, and a sample of few short ones says little."""
        for _ in range(TRIED):
            started = perf_counter()
            self._run()
            took = perf_counter() - started
            yield took
            if took > LONG_S:
                return

    def _run(self) -> None:
        self.last = self.sets.turn()
        self._used.add(self.last)
        self.forward(self.last)

    @property
    def used(self) -> Used:
        """The set of the last forward, which a replay has too."""
        return {self.last: slice(None)}

    def replay(self) -> None:
        """The last forward once more, untimed."""
        self.forward(self.last)

    def __call__(self) -> float:
        """Seconds of one forward: a busy pause, untimed forwards to wake the arm's threads, then `calls` timed ones."""
        with on_one_thread():
            self._prepare()
        stay_awake(self.sets, self.threads)
        woken = perf_counter() + WAKE_S
        self._run()
        while perf_counter() < woken:
            self._run()
        self.witness.begin()
        started = perf_counter_ns()
        for _ in range(self.calls - 1):
            self._run()
        paused = perf_counter_ns()
        self._before_last()
        resumed = perf_counter_ns()
        self._run()
        ended = perf_counter_ns()
        self.witness.end(ended - started)
        self.settle()
        return (ended - resumed + paused - started) / 1e9 / self.calls

    def _before_last(self) -> None:
        """Between the last forward of a sample and the one before it, outside the clock."""

    def settle(self) -> None:
        """After a sample: looks at what it left, and gives the sets it used other inputs."""
        self.sets.rest()
        with on_one_thread():
            self._look(dict.fromkeys(self._used, slice(None)))
        self._used.clear()

    def _look(self, used: Used) -> None:
        """Nothing of a baseline is looked at."""
        self.sets.renew(used)


class VariantArm(Arm):
    """The arm of a built variant, with guarded outputs and a guarded workspace of its own."""

    is_variant = True

    def __init__(
        self, variant: LoadedVariant, sets: CpuSets, threads: int, judge: Callable[[Timed], Fault | None]
    ) -> None:
        """`judge` is G7."""
        problem = sets.problem
        wanted = variant.workspace_bytes(problem)
        self.workspace = Slab(max(ALIGNMENT, math.ceil(wanted / ALIGNMENT) * ALIGNMENT))
        self.workspace.bytes.fill_(PATTERN)
        self.outputs = ProbedOutputs(sets)
        self._seen: str | None = None
        """Which buffer was not what it must be right after a sample, in words."""
        workspace = self.workspace.bytes.data_ptr()
        pairs = zip(sets.inputs, self.outputs.tensors, strict=True)
        calls = [variant.prepared(problem, *pair, workspace, wanted) for pair in pairs]

        def forward(index: int) -> None:
            calls[index](0)

        sets.restore()
        forward(0)
        plain = tuple(output.clone() for output in self.outputs.tensors[0])
        self.results = Results(self.outputs, sets, plain, self.workspace.damaged, judge)
        super().__init__(forward, sets, threads)
        self.settle()

    def clocks(self, seconds: float) -> Clocks | None:
        """Every sample was taken by two clocks. What they said, where they disagreed."""
        return next((arm.witness.clocks for arm in self._sides() if arm.witness.apart), None)

    def _sides(self) -> list[Arm]:
        """Of the race: the baseline, and this arm."""
        return [self] if self.sets.baseline is None else [self.sets.baseline, self]

    def _before_last(self) -> None:
        """So that what the last forward has not written when it returns is seen not to be there."""
        self.outputs.spoil(self.sets.upcoming)

    def _look(self, used: Used) -> None:
        """The last output must be there at once, and its inputs still be what they were."""
        probed = self.outputs.probe(self.last)
        if self.outputs.lacks(probed, self.last, self.results.plain):
            self._seen = "when the last call of a timed sample returned, its output was not there"
        if self._seen is None:
            self._seen = self.sets.changed(self.used)
        self.results.settle(used)

    def recheck(self) -> Fault | None:
        busy = _crowded(self._sides()) or still_busy()  # which may take more samples
        return self.results.recheck(self, busy, self._seen)


def _crowded(sides: Sequence[Arm]) -> str | None:
    """Who used more CPUs than there may be, in words. What the samples of the race say is believed when others of the
    same kind say it again: on a busy machine threads of an honest program wake late."""
    if not any(arm.witness.crowded for arm in sides):
        return None
    for arm in sides:
        arm.witness.forget()
    for _ in range(SECOND_LOOK):
        for arm in sides:
            arm()
    if not any(arm.witness.crowded for arm in sides):
        return None
    return "while forwards were timed, theirs or the baseline's, other threads of the process used CPUs too"


def still_busy() -> str | None:
    """What uses CPU time in this process while nothing is called, in words. A thread that waits for work by spinning
    has some time to go to sleep."""
    for _ in range(3):
        time.sleep(REST_S)
        started = time.process_time()
        time.sleep(REST_S)
        used = time.process_time() - started
        if used < REST_S / 2:
            return None
    return f"threads of the process used {100 * used / REST_S:.0f} % of a CPU although no call was under way"
