"""Timing on the CPU: the sides of a race, each a few forwards a sample over sets of guarded inputs."""

import ctypes
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter, perf_counter_ns
from typing import Any

import torch
from torch import Tensor

from autotuner.devices.cpu.guarded_memory import ALIGNMENT, PATTERN, Slab, Slabs
from autotuner.devices.cpu.tables import replaced
from autotuner.devices.cpu.witness import Witness, still_busy
from autotuner.devices.renewed import RenewedSets
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.checks import FLOATS_CHANGED
from autotuner.gate.recheck import JudgeTimed, Timed
from autotuner.ops import op_of
from autotuner.ops.op import Baseline
from autotuner.ops.tensors import Symmetry, Tensors, on_threads, poison
from autotuner.race.arms import Clocks
from autotuner.race.blocks import HELD_UP
from autotuner.values.problem import Problem
from autotuner.values.verdict import Fault

TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
WAKE_S = 0.002
"""Seconds of untimed forwards before a sample: threads that slept are first moved about by the scheduler."""

SAMPLE_S = 0.006
"""A sample is at least this long, to dwarf the clock's resolution and a call's overhead from Python."""

SHORT_S = 0.001
"""The same of a sample beside something that has CPUs in turns: one that fits into a turn is not held up."""

SLEEP_S = 0.004
"""Pause before such a sample: who has slept has its turn before who has not."""

SHORT_FOR = 16
"""Samples of a problem, of whichever arm, that are short from the last one on that was held up."""

AGAIN, AGAIN_S = 6, 0.3
"""Times that a sample which was held up is taken again, and seconds after which it is not: a long one always is."""

TRIED = 3
"""Forwards by which the number of calls in a sample is chosen."""

LONG_S = 10 * SAMPLE_S
"""Seconds of a forward of which one is enough for that: nothing holds up a short one for so long."""

SETTLE_S = 0.015
"""Pause before a sample of several threads: threads of the other arm spin for a few milliseconds before they sleep."""

MOST_SLABS = 18_000
"""Tensors of a process that lie in slabs of their own, at most: Linux gives a process 65,530 mappings
(vm.max_map_count), and a slab takes three."""

COLD = 2
"""Bytes of the input sets that are used in turn where each is to be cold, relative to the last-level cache: what comes
again after twice as much has left a cache that keeps what was used last. A server's cache has hundreds of MiB."""

ROW, ROW_BYTES = 4, 256 << 20
"""Sets beside those, and their bytes, at most but for two: for forwards in a row on inputs that no call has seen."""

ARMS = 3
"""Variants that have outputs of their own for each input set, at most."""

LOOKED_AT = 16
"""Input sets at most that are compared after a race; after each sample the last one was."""

SECOND_LOOK = 10
"""Samples a side by which other threads are looked for once more."""

PROBES = 64
"""Elements of an output that are made NaN before the last call of a sample, and looked at as soon as it returns."""
PROBED = 4
"""Other outputs of a sample of which the same elements are looked at then."""
NOT_THERE = "when the last call of a timed sample returned, its output was not there"


class CpuInputSets:
    """Copies of one problem's inputs at different addresses. `cold`: with their outputs they are together more than the
    last-level cache holds, so that a set has left the cache when its turn comes again; `warm`: one set. Of a problem of
    some KiB there are only as many as the process may map, and some of each set may still be in the cache.

    After every sample the sets that it used get other inputs.
    """

    def __init__(
        self, problem: Problem, inputs: Tensors, cache: str, cache_bytes: int, slabs: int = MOST_SLABS
    ) -> None:
        """`slabs`: that these sets may take."""
        self.problem, self.op, self.plain = problem, op_of(problem), inputs
        row = max(2, min(ROW, ROW_BYTES // problem.bytes))
        most = slabs // (len(inputs) + ARMS * len(self.op.outputs(problem))) - row
        count = min(most, math.ceil(COLD * cache_bytes / problem.bytes) + 1) if cache == "cold" else 1
        self._slabs = Slabs()
        self.inputs = [tuple(map(self._slabs.place, inputs)) for _ in range(count + row)]
        self.raced, self.row = range(count), range(count, count + row)
        draw, alone = random.Random(), ([tensor[None] for tensor in own] for own in self.inputs)
        self.each = [RenewedSets(problem, inputs, tuple(own), draw) for own in alone]
        """The sets, which get other inputs one by one."""
        self.changes = 0
        """How often the inputs of some set were made anew."""
        self.baseline: CpuArm | None = None
        """The baseline's arm that was made last."""
        self._next = 0
        self.short_for = 0
        """Samples that are still to be short."""
        self._idle_since = 0.0
        """When the last sample ended, by perf_counter()."""

    def turn(self) -> int:
        """Index of the set to use now. All arms share it: what one arm has just used would be warm for another."""
        now, self._next = self._next, (self._next + 1) % len(self.raced)
        return now

    @property
    def upcoming(self) -> int:
        """Index of the set whose turn comes next."""
        return self._next

    def renew(self, used: Iterable[int]) -> None:
        """Other inputs for these sets."""
        self.changes += 1
        for index in used:
            self.each[index].renew()

    def restore(self, index: int, others: Tensors = ()) -> None:
        """The plain inputs for this set, or others."""
        self.changes += 1
        self.each[index].restore(others)

    def outputs(self, index: int, plain: Tensors) -> Tensors:
        """What the inputs of this set give, where the plain ones give `plain`."""
        if self.each[index].symmetry is None:
            return plain
        found = tuple(torch.empty_like(tensor)[None] for tensor in plain)
        self.each[index].outputs(plain, found)
        return tuple(tensor[0] for tensor in found)

    @property
    def idle_until(self) -> float:
        """When the threads of the last sample sleep, by perf_counter()."""
        return self._idle_since + SETTLE_S

    def rest(self) -> None:
        """A sample ends now."""
        self._idle_since = perf_counter()

    def damage(self) -> str | None:
        """What was written around an input, in words."""
        return self._slabs.damaged()

    def changed(self, indices: Iterable[int]) -> str | None:
        """Which input of these sets is not what it must be, in words."""
        return next((said for index in indices if (said := self.each[index].changed())), None)


def stay_awake(sets: CpuInputSets, threads: int) -> None:
    """Waits until the threads of the arm that was timed last sleep, without sleeping itself: a thread that has slept is
    often woken onto the CPU of the one that wakes the others, and samples then fall into two groups, one of them at the
    speed of a single CPU."""
    until = sets.idle_until if threads > 1 else 0.0
    while perf_counter() < until:
        pass


def is_held_up(seconds: float, waited: float) -> bool:
    """Whether a sample's threads waited for a CPU for longer than is noise."""
    return waited > HELD_UP * seconds


class CpuOutputs:
    """The outputs of each input set, poisoned."""

    def __init__(self, sets: CpuInputSets) -> None:
        self._slabs = Slabs()
        self._like = sets.op.tensors().outputs(sets.problem, sets.inputs[0])
        poison = [output.fill_(float("nan")) for output in self._like]
        self.tensors = [tuple(map(self._slabs.place, poison)) for _ in sets.inputs]
        self._addresses = [[output.data_ptr() for output in outputs] for outputs in self.tensors]
        self._sizes = [output.element_size() for output in self._like]
        self._draw()

    def _draw(self) -> None:
        """Other elements to look at. Where they lie is found now: behind any operator of torch, and behind each access
        to memory, there may be code of a variant's that computes what it has left out."""
        self._places = [tuple(torch.randint(size, (PROBES,)) for size in output.shape) for output in self._like]
        pairs = zip(self._like, self._places, strict=True)
        self._offsets = [(torch.stack(at, 1) @ torch.tensor(output.stride())).tolist() for output, at in pairs]
        poison = (torch.full((PROBES,), math.nan, dtype=output.dtype) for output in self._like)
        self._nan = [each.view(torch.uint8).numpy() for each in poison]

    def damage(self) -> str | None:
        """What was written around an output, in words."""
        return self._slabs.damaged()

    def poison(self, used: Iterable[int]) -> None:
        """Makes these outputs NaN. From now on other elements are looked at."""
        self._draw()
        for index in used:
            poison(self.tensors[index])

    def spoil(self, index: int) -> bool:
        """Makes a few elements of these outputs NaN. False where the system cannot."""
        return _carried(self._nan, self._memory(index))

    def probe(self, index: int) -> list[bytearray] | None:
        """The same elements, as they are now; None where the system cannot read them."""
        found = [bytearray(PROBES * size) for size in self._sizes]
        return found if _carried(self._memory(index), found) else None

    def _memory(self, index: int) -> list[ctypes.Array[ctypes.c_char]]:
        parts = zip(self._addresses[index], self._sizes, self._offsets, strict=True)
        return [(ctypes.c_char * size).from_address(begin + size * at) for begin, size, some in parts for at in some]

    def are(self, found: list[bytearray] | None, outputs: Iterable[Tensor]) -> bool:
        """Whether what `probe` found are the same elements of other outputs."""
        due = [output[places] for output, places in zip(outputs, self._places, strict=True)]
        return found is not None and _equal(
            [torch.frombuffer(one, dtype=other.dtype) for one, other in zip(found, due, strict=True)], due
        )


def _carried(given: Sequence[Any], into: Sequence[Any]) -> bool:
    """Copies memory by the system's hand. False where it cannot: nobody may read or write there, and a variant's code
    would be called to compute now what it has left out."""
    out, back = os.pipe()
    try:
        return os.writev(back, given) == os.readv(out, into) == sum(memoryview(each).nbytes for each in given)
    except OSError:
        return False
    finally:
        os.close(out)
        os.close(back)


def _equal(some: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Whether all numbers are equal, 0 and -0 too, and none is NaN."""
    return all(bool((one == two).all()) for one, two in zip(some, other, strict=True))


class Beside:
    """What a baseline is given beside the inputs of each set. It is made outside the clock, for sets with other inputs
    than it was made for."""

    def __init__(self, baseline: Baseline, sets: CpuInputSets) -> None:
        self._baseline, self._sets = baseline, sets
        self.of: list[Tensors] = [()] * len(sets.inputs)
        self._made_for: dict[int, Symmetry | None] = {}

    def make(self) -> None:
        """For every set that is raced."""
        for index in self._sets.raced:  # no baseline runs on the others
            symmetry = self._sets.each[index].symmetry
            if index not in self._made_for or self._made_for[index] is not symmetry:
                self.of[index] = self._baseline.beside(self._sets.problem, self._sets.inputs[index])
                self._made_for[index] = symmetry


class CpuArm:
    """One side of the race: forwards of one implementation over the input sets. Calling it takes a sample."""

    is_variant = False
    waited, retaken = 0.0, False

    def __init__(
        self,
        forward: Callable[[int], object],
        sets: CpuInputSets,
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
        with on_threads(threads):
            self._run()
            self._takes(min(self._seconds()))

    def _seconds(self) -> Iterator[float]:
        """What some forwards take: the machine may hold one up, and a sample of few short ones says little."""
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

    def __call__(self) -> float:
        """Seconds of one forward. A sample that was held up is taken again, as a short one, and of all of these that
        one counts which was held up least: how long it took is not looked at."""
        sets, tries, late = self.sets, list[tuple[float, float]](), perf_counter() + AGAIN_S
        while not tries or (is_held_up(*tries[-1]) and len(tries) <= AGAIN and perf_counter() < late):
            tries.append(self._sample(is_short=sets.short_for > 0))
            if is_held_up(*tries[-1]):
                sets.short_for = SHORT_FOR
        sets.short_for, self.retaken = max(0, sets.short_for - 1), len(tries) > 1
        seconds, self.waited = min(tries, key=lambda each: each[1] / each[0])
        if not is_held_up(seconds, self.waited) and 2 * seconds < self.seconds:  # which was held up when it was found
            self._takes(seconds)
        return seconds

    def _takes(self, seconds: float) -> None:
        """What a forward takes, about."""
        self.seconds = seconds
        self.calls = max(1, math.ceil(SAMPLE_S / seconds))

    def _sample(self, is_short: bool) -> tuple[float, float]:
        """Seconds of one forward: a pause, untimed forwards to wake the arm's threads, then `calls` timed ones. And
        how many of these its threads waited for a CPU, at most. `is_short`: a sleep, and as few forwards as may be."""
        self._prepare()
        if is_short:
            time.sleep(max(SLEEP_S, self.sets.idle_until - perf_counter()))
        else:
            stay_awake(self.sets, self.threads)
        calls = min(self.calls, math.ceil(SHORT_S / self.seconds)) if is_short else self.calls
        with on_threads(self.threads):
            seconds = self._timed(calls, min(WAKE_S, SHORT_S / 4 if is_short else WAKE_S)) / calls
        self.settle()
        return seconds, self.witness.waited_ns / 1e9 / calls

    def _timed(self, calls: int, wake_s: float) -> float:
        """Seconds of so many forwards, after some untimed ones."""
        woken = perf_counter() + wake_s
        self._run()
        while perf_counter() < woken:
            self._run()
        self.witness.begin()
        started = perf_counter_ns()
        for _ in range(calls - 1):
            self._run()
        paused = perf_counter_ns()
        self._before_last()
        resumed = perf_counter_ns()
        self._run()
        ended = perf_counter_ns()
        self.witness.end(ended - started)
        return (ended - resumed + paused - started) / 1e9

    def _before_last(self) -> None:
        """Between the last forward of a sample and the one before it, outside the clock."""

    def settle(self) -> None:
        """After a sample: looks at what it left, and gives the sets it used other inputs."""
        self.sets.rest()
        self._look(self._used)
        self.sets.renew(self._used)
        self._used.clear()

    def _look(self, used: set[int]) -> None:
        """Nothing of a baseline is looked at."""


class CpuVariantArm(CpuArm):
    """The arm of a built variant, with guarded outputs and a guarded workspace of its own."""

    is_variant = True

    def __init__(self, variant: LoadedVariant, sets: CpuInputSets, threads: int, judge: JudgeTimed) -> None:
        problem, self._judge, self._variant = sets.problem, judge, variant
        wanted = variant.workspace_bytes(problem)
        self.workspace = Slab(max(ALIGNMENT, math.ceil(wanted / ALIGNMENT) * ALIGNMENT))
        self.workspace.bytes.fill_(PATTERN)
        self.outputs = CpuOutputs(sets)
        self._strays: str | None = None
        workspace = self.workspace.bytes.data_ptr() if wanted else 0
        pairs = zip(sets.inputs, self.outputs.tensors, strict=True)
        calls = [variant.prepared(problem, *pair, workspace, wanted) for pair in pairs]

        def forward(index: int) -> None:
            calls[index](0)

        sets.restore(0)
        forward(0)
        self.plain = tuple(output.clone() for output in self.outputs.tensors[0])
        """What it gives on the plain inputs."""
        super().__init__(forward, sets, threads)
        self.settle()

    def clocks(self, seconds: float) -> Clocks | None:
        """Every sample was taken by two clocks. What they said, where they disagreed."""
        return next((arm.witness.clocks for arm in self._sides() if arm.witness.apart), None)

    def _sides(self) -> list[CpuArm]:
        """The race's two: the baseline, and this arm."""
        return [self] if self.sets.baseline is None else [self.sets.baseline, self]

    def _before_last(self) -> None:
        """So that what the last forward has not written when it returns is seen not to be there."""
        if not self.outputs.spoil(self.sets.upcoming):
            self._strays = NOT_THERE

    def _look(self, used: set[int]) -> None:
        """Each output must be the one that the set's inputs make, some and the last one at once."""
        sets, outputs = self.sets, self.outputs
        some = {self.last, *random.sample([*used], min(PROBED, len(used)))}
        found = {index: outputs.probe(index) for index in some}
        if not all(outputs.are(each, sets.outputs(index, self.plain)) for index, each in found.items()):
            self._strays = NOT_THERE
        for index in used:
            if not _equal(outputs.tensors[index], sets.outputs(index, self.plain)):
                self._strays = "the output of a timed forward is not the one that its inputs make"
        if self._strays is None:
            self._strays = sets.changed([self.last])
        outputs.poison(used)

    def damage(self) -> str | None:
        """What was written around a buffer, or into another library's table of functions, in words."""
        damage = self.sets.damage() or self.outputs.damage() or self.workspace.damaged()
        if damage is None and (other := replaced(self._variant.library)) is not None:
            return f"{other} has the variant's code among the functions that it calls"
        if damage is None and any(signal.getitimer(timer)[0] for timer in TIMERS):
            return "a timer of the variant's interrupts whatever runs in its process"
        return damage

    def recheck(self) -> Fault | None:
        if self._variant.changes_floats():
            return FLOATS_CHANGED
        busy = _crowded(self._sides()) or still_busy()  # which may take more samples
        sets, outputs, last = self.sets, self.outputs, self.last
        some = random.sample(sets.raced, min(LOOKED_AT, len(sets.raced)))
        strays = self._strays or sets.changed(some)
        sets.restore(last)
        outputs.poison([last])
        self._repeat()
        if strays is None and not _equal(outputs.tensors[last], self.plain):
            strays = "two timed forwards on equal inputs gave different bits"
        return self._judge(Timed(sets.inputs[last], outputs.tensors[last], self.damage(), strays, self._repeat, busy))

    def _repeat(self) -> None:
        self.forward(self.last)


def _crowded(sides: Sequence[CpuArm]) -> str | None:
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
