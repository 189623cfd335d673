"""An audit on the CPU: single forwards by the clock, with refills between them.

Forwards of a tenth of a second are too dear to be taken as often as short ones. So each of them serves: a sample is one
forward, and what comes before it is the forward of the sample before.
"""

import math
import random
from functools import partial
from itertools import pairwise
from time import perf_counter_ns

import torch

from autotuner.devices.cpu.timing import LONG_S, SAMPLE_S, CpuArm, CpuVariantArm, stay_awake
from autotuner.devices.cpu.witness import still_busy
from autotuner.devices.refills import Buffers, Refills
from autotuner.gate import recheck
from autotuner.gate.recheck import JudgeFresh
from autotuner.ops.tensors import on_threads, overwrite
from autotuner.race.arms import PlainArm
from autotuner.values.verdict import Fault


class CpuAuditArm:
    """Samples of an arm with refills between the forwards; the refills are not timed. A sample is its shortest forward:
    what disturbs the others makes them longer, and nothing makes an honest one shorter."""

    def __init__(self, arm: CpuArm, buffers: Buffers, judge: JudgeFresh, seconds: float) -> None:
        """`seconds`: of a forward that finds no answer of another one, about."""
        sets = arm.sets
        sets.restore(0)
        self._arm, self._judge, self._forward = arm, judge, partial(arm.forward, 0)
        self._forward()
        calls = buffers.most_calls(math.ceil(SAMPLE_S / seconds))
        self._refills = Refills(sets.problem, buffers, sets.plain, calls)

    def __call__(self, fresh: bool) -> float:
        arm, refills = self._arm, self._refills
        refills.load(fresh)
        stay_awake(arm.sets, arm.threads)
        taken = refills.around(partial(_timed, arm))
        arm.sets.restore(0)
        arm.sets.rest()
        return min(taken)

    def recheck(self) -> Fault | None:
        self(fresh=True)
        fault = self._refills.fault(self._forward, self._judge)
        self._arm.sets.restore(0)
        if fault is None and isinstance(self._arm, CpuVariantArm):
            sets, outputs, chosen = self._arm.sets, self._arm.outputs, random.choice(self._arm.sets.row[1:])
            in_a_row(self._arm)
            fault = self._judge(sets.inputs[chosen], outputs.tensors[chosen])
        return fault


def in_a_row(arm: CpuVariantArm) -> float:
    """Seconds of the shortest of forwards right after one another, as in a race, on inputs that no call has seen."""
    sets = arm.sets
    for index in sets.row:
        sets.restore(index, sets.op.tensors().fresh(sets.problem, sets.plain, random.getrandbits(60)))
    arm.outputs.poison(sets.row)
    stay_awake(sets, arm.threads)
    ended: list[int] = []
    with on_threads(arm.threads):
        for index in sets.row:
            arm.forward(index)
            ended.append(perf_counter_ns())
    sets.rest()
    return min(later - earlier for earlier, later in pairwise(ended)) / 1e9


class LongAuditArm:
    """The same of forwards that are long, one a sample. A fresh sample is refilled with inputs that no call has seen; a
    still one with what the buffers held after the last fresh forward; a plain one with nothing. So each but the fresh
    ones computes once more what the forward before it has computed."""

    def __init__(self, arm: CpuVariantArm, judge: JudgeFresh) -> None:
        self._arm, self._judge, self._buffers = arm, judge, _of_variant(arm)
        self._forward = partial(arm.forward, 0)
        arm.sets.restore(0)
        self._refills = Refills(arm.sets.problem, self._buffers, arm.sets.plain, 1)
        self._changes = -1
        """How often the inputs had been made anew, at the last forward."""
        self._was_fresh = False

    def __call__(self, fresh: bool) -> float:
        if not (fresh or self._was_fresh):  # so that what is there anyway is what a fresh forward left
            self(fresh=True)
        self._was_fresh = True
        arm, refills = self._arm, self._refills
        if fresh:
            refills.load(fresh=True)
            refills.put(0)
        else:
            overwrite(self._buffers.all, refills.still)
        stay_awake(arm.sets, arm.threads)
        seconds = self._timed()
        if fresh:
            refills.keep(0)
            overwrite(refills.still, self._buffers.all)
        return seconds

    def plain(self) -> float:
        """Seconds of a forward right after another one."""
        if self._changes != self._arm.sets.changes:  # a baseline has had the inputs meanwhile
            self(fresh=False)
        return self._timed()

    def _timed(self) -> float:
        seconds = _timed(self._arm)
        self._changes = self._arm.sets.changes
        self._arm.sets.rest()
        return seconds

    def recheck(self) -> Fault | None:
        """Judges the last fresh sample, which was timed: one more would tell no more."""
        return self._refills.fault(self._forward, self._judge)

    def harm(self) -> Fault | None:
        """After a recheck: what was written that must not be, or goes on."""
        sets, due = self._arm.sets, self._refills.fresh_inputs(0)
        found = recheck.harm(sets.problem, self._arm.damage(), due, self._buffers.inputs, still_busy())
        sets.restore(0)
        return found


class LongPlainArm:
    """The plain forwards of such an audit. The race has judged what the others of the buffers hold."""

    def __init__(self, audit: LongAuditArm) -> None:
        self._audit = audit

    def __call__(self) -> float:
        return self._audit.plain()

    def recheck(self) -> Fault | None:
        return self._audit.harm()


def of_variant(arm: CpuVariantArm, judge: JudgeFresh) -> tuple[PlainArm, CpuAuditArm | LongAuditArm]:
    """The audit of a variant's arm: its plain samples, and the others."""
    seconds = arm.seconds if arm.seconds >= LONG_S else max(arm.seconds, _seconds_anew(arm))
    if seconds < LONG_S:
        return arm, CpuAuditArm(arm, _of_variant(arm), judge, seconds)
    audit = LongAuditArm(arm, judge)
    return LongPlainArm(audit), audit


def _seconds_anew(arm: CpuVariantArm) -> float:
    """What a forward takes on other inputs and outputs than the one before, which may have left its answer."""
    arm.sets.renew([0])
    arm.outputs.poison([0])
    return _timed(arm)


def _timed(arm: CpuArm) -> float:
    """Seconds of one forward on the arm's threads, which are torch's perhaps: with fewer it takes longer."""
    with on_threads(arm.threads):
        started = perf_counter_ns()
        arm.forward(0)
        return (perf_counter_ns() - started) / 1e9


def _of_variant(arm: CpuVariantArm) -> Buffers:
    return Buffers(arm.sets.inputs[0], arm.outputs.tensors[0], (arm.workspace.bytes.view(torch.int32),))


def of_baseline(arm: CpuArm, like: CpuVariantArm) -> CpuAuditArm:
    """The same refills around a baseline, which say what they cost."""
    return CpuAuditArm(arm, _of_variant(like).beside, lambda inputs, outputs: None, arm.seconds)
