"""The CPU backend: C++ variants, gated in guarded memory and timed against torch's CPU SDPA."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from statistics import median

import torch
from torch import Tensor

from autotuner.attention import CPU_BACKENDS, inputs, sdpa
from autotuner.backends.guarded import ALIGNMENT, Slab, tensor_in
from autotuner.backends.settings import CpuSettings
from autotuner.build import build, disassembly
from autotuner.errors import OracleError
from autotuner.extension import Extension
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.checks import Evidence, Gate, not_loaded
from autotuner.gate.recheck import recheck
from autotuner.gate.tolerance import Truth, judge, truth
from autotuner.measure.blocks import measurement, run_blocks
from autotuner.measure.thermometer import undisturbed
from autotuner.outcome import (
    Artifact,
    BackendTiming,
    Calibration,
    Fault,
    GateReport,
    Measurement,
    ReferenceCheck,
    Say,
    Timing,
)
from autotuner.problem import Problem
from autotuner.terms import Terms
from autotuner.variant import Variant

WORKSPACE_FILLS = (0x7FFF7FFF, 0x7BFF7BFF, 0)
"""Words the workspace holds before a launch: a NaN, a large number, zero."""

MAX_WORKSPACE = 1 << 30
WAKE_S = 0.002
"""Untimed forwards before a sample go on for so long: threads that slept are first moved about by the scheduler."""

CALIBRATION_ROUNDS = 9
DRIFT = 0.15
"""By how much the baseline may differ from the session's calibration before a measurement is taken again."""

SAMPLE_S = 0.006
"""A sample is at least this long, to dwarf the clock's resolution and a call's overhead from Python."""

SETTLE_S = 0.015
"""Pause before a sample of several threads: threads of the other arm spin for a few milliseconds before they sleep."""


def _stay_awake(seconds: float) -> None:
    """Waits without sleeping: a thread that has slept is often woken onto the CPU of the one that wakes the others, and
    samples then fall into two groups, one of them at the speed of a single CPU."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class CpuBench:
    """Runs an extension on guarded memory, for the gate."""

    def __init__(self, extension: Extension, compiled_for: Problem) -> None:
        self._extension, self._compiled_for = extension, compiled_for
        self._slabs: list[Slab] = []
        self._fill = WORKSPACE_FILLS[0]
        self._cpus = sorted(os.sched_getaffinity(0))

    def place(self, tensor: Tensor, shift: int = 0) -> Tensor:
        slab = Slab(tensor.numel() * tensor.element_size(), shift)
        self._slabs.append(slab)
        placed = tensor_in(slab, tensor)
        placed.copy_(tensor)
        return placed

    def launch(self, problem: Problem, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> int:
        for tensor in (q, k, v, o):
            if not tensor.is_contiguous():
                raise ValueError("tensors must be contiguous")
        wanted = self._extension.workspace_bytes(problem)
        if not 0 <= wanted <= MAX_WORKSPACE:
            raise MemoryError(f"the variant asks for {wanted} bytes of workspace; at most {MAX_WORKSPACE} are given")
        size = max(ALIGNMENT, math.ceil(wanted / ALIGNMENT) * ALIGNMENT)
        workspace = Slab(size)
        self._slabs.append(workspace)
        workspace.bytes.view(torch.int32).fill_(self._fill)
        addresses = (q.data_ptr(), k.data_ptr(), v.data_ptr())
        return self._extension.run(problem, addresses, o.data_ptr(), workspace.bytes.data_ptr(), wanted)

    def disturb(self, turn: int) -> None:
        self._fill = WORKSPACE_FILLS[turn % len(WORKSPACE_FILLS)]
        if hasattr(os, "sched_setaffinity"):  # every third turn all threads share one CPU
            os.sched_setaffinity(0, self._cpus[:1] if turn % 3 == 2 else self._cpus)
        problem, tensors = self._predecessor
        if turn % 2:  # the same library on other, larger inputs leaves its own scratch full
            q, k, v = (self.place(tensor) for tensor in tensors)
            self.launch(problem, q, k, v, self.place(tensors[0]))
        else:
            sdpa(problem, "math")(*tensors)

    @cached_property
    def _predecessor(self) -> tuple[Problem, tuple[Tensor, Tensor, Tensor]]:
        problem = self._compiled_for.model_copy(update={"batch": 1, "heads": 3, "seq_q": 70, "seq_k": 91})
        return problem, inputs(problem, "large", seed=0)

    @contextlib.contextmanager
    def traffic(self) -> Iterator[None]:
        """A thread that copies memory all the while, so that launches meet a busy memory system."""
        size = 8 << 20
        source, target = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
        stop = threading.Event()

        def copy() -> None:
            while not stop.wait(0.0005):
                ctypes.memmove(target, source, size)

        thread = threading.Thread(target=copy, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def damage(self) -> str | None:
        found = [text for slab in self._slabs if (text := slab.damaged())]
        self._slabs.clear()
        return found[0] if found else None


class InputSets:
    """Copies of one problem's tensors at different addresses. `cold`: together more than the last-level cache holds,
    so that a set has left the cache when its turn comes again; `warm`: one set."""

    def __init__(self, problem: Problem, expected: Truth, cache: str, cache_bytes: int) -> None:
        count = math.ceil(5 * cache_bytes / problem.bytes) + 1 if cache == "cold" else 1
        self.inputs = [tuple(x.clone() for x in expected[:3]) for _ in range(count)]
        self.outputs = [torch.empty_like(expected.q).fill_(0) for _ in range(count)]  # no page fault is timed
        self._next = 0

    def turn(self) -> int:
        """Index of the set to use now."""
        now, self._next = self._next, (self._next + 1) % len(self.inputs)
        return now


class Arm:
    """One side of the race: forwards of one implementation over the input sets. Calling it takes a sample."""

    def __init__(self, forward: Callable[[int], object], sets: InputSets, threads: int) -> None:
        self._forward, self._sets, self._threads = forward, sets, threads
        self.last = 0
        self._run()
        started = time.perf_counter()
        self._run()
        self.calls = max(1, math.ceil(SAMPLE_S / (time.perf_counter() - started)))

    def _run(self) -> None:
        self.last = self._sets.turn()
        self._forward(self.last)

    def __call__(self) -> float:
        """Seconds of one forward: a busy pause, untimed forwards to wake the arm's threads, then `calls` timed ones."""
        if self._threads > 1:
            _stay_awake(SETTLE_S)
        woken = time.perf_counter() + WAKE_S
        self._run()
        while time.perf_counter() < woken:
            self._run()
        started = time.perf_counter_ns()
        for _ in range(self.calls):
            self._run()
        return (time.perf_counter_ns() - started) / 1e9 / self.calls


class VariantArm(Arm):
    """The arm of a built variant, with a workspace of its own."""

    def __init__(self, extension: Extension, problem: Problem, sets: InputSets, threads: int) -> None:
        wanted = extension.workspace_bytes(problem)
        self._workspace = torch.empty(wanted + ALIGNMENT, dtype=torch.uint8)
        workspace = -(-self._workspace.data_ptr() // ALIGNMENT) * ALIGNMENT
        addresses = [(q.data_ptr(), k.data_ptr(), v.data_ptr()) for q, k, v in sets.inputs]
        outputs = [o.data_ptr() for o in sets.outputs]

        def forward(index: int) -> None:
            extension.run(problem, addresses[index], outputs[index], workspace, wanted)

        super().__init__(forward, sets, threads)

    def recheck(self, expected: Truth, fresh: Truth) -> Fault | None:
        """G7 on the set of the last timed forward."""
        inputs, output = self._sets.inputs[self.last], self._sets.outputs[self.last]
        return recheck(inputs, output, expected, fresh, self._repeat)

    def _repeat(self) -> None:
        self._forward(self.last)


class CpuBackend:
    """Backend for the machine's own CPU. Every method runs in a process that may die with the variant."""

    def __init__(self, settings: CpuSettings) -> None:
        self._settings = settings

    def _prepare(self, threads: int) -> None:
        """Pins this process to as many CPUs as the terms allow and gives torch as many threads."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        torch.set_num_threads(threads)

    # calibrate --------------------------------------------------------------------------------------------------

    def calibrate(self, terms: Terms, say: Say) -> Calibration:
        self._prepare(terms.threads)
        checks = self._references(terms, say)
        timings: list[BackendTiming] = []
        pinned: list[str] = []
        for problem in terms.problems:
            say(f"timing SDPA on {problem}")
            here = self._time_sdpa(terms, problem)
            timings += here
            pinned.append(min(here, key=lambda timing: timing.median_us).backend)
        return Calibration(baselines=tuple(pinned), timings=tuple(timings), references=checks)

    def _time_sdpa(self, terms: Terms, problem: Problem) -> list[BackendTiming]:
        """Every SDPA backend on the problem, interleaved: what disturbs one disturbs the other."""
        sets = self._input_sets(terms, problem)
        arms = {name: self._sdpa_arm(problem, name, sets, terms.threads) for name in CPU_BACKENDS}
        samples: dict[str, list[float]] = {name: [] for name in CPU_BACKENDS}
        for _ in range(CALIBRATION_ROUNDS):
            for name, arm in arms.items():
                samples[name].append(arm())
        return [
            BackendTiming(backend=name, problem=problem, median_us=1e6 * median(taken))
            for name, taken in samples.items()
        ]

    def _references(self, terms: Terms, say: Say) -> tuple[ReferenceCheck, ...]:
        """Every SDPA backend against the float64 reference. Raises OracleError when one breaks the tolerance."""
        checks: list[ReferenceCheck] = []
        for case in Matrix(terms.compiled_for).quick():
            say(f"reference case {case.name}")
            expected = truth(case, terms.seeds[0])
            for backend in CPU_BACKENDS:
                errors = judge(sdpa(case.problem, backend)(*expected[:3]), expected)
                checks.append(ReferenceCheck(backend=backend, case=case.name, errors=errors))
                if errors.failed_rule is not None:
                    raise OracleError(
                        f"torch {torch.__version__} SDPA backend {backend} breaks {errors.failed_rule} on {case.name}: "
                        f"{errors.worst_ratio:.2f} times the tolerance; the case or this installation is broken"
                    )
        return tuple(checks)

    # build and check --------------------------------------------------------------------------------------------

    def build(self, variant: Variant, terms: Terms) -> Artifact | Fault:
        return build(self._settings.kernel, variant, terms.compiled_for, self._settings.toolchain)

    def check(self, artifact: Artifact, terms: Terms, say: Say, soaked: GateReport | None = None) -> GateReport:
        self._prepare(terms.threads)
        try:
            extension = Extension(artifact)
        except ImportError as error:
            return not_loaded(artifact, error)
        effects = self._settings.kernel.effects(artifact.variant, terms.compiled_for)
        evidence = Evidence(truth, partial(disassembly, artifact))
        gate = Gate(artifact, effects, CpuBench(extension, terms.compiled_for), terms, say, evidence)
        return gate.run(extension.identity) if soaked is None else gate.soak(soaked)

    # measure ----------------------------------------------------------------------------------------------------

    def measure(
        self, artifact: Artifact, terms: Terms, say: Say, best: float | None = None, rival: Artifact | None = None
    ) -> Measurement | Fault:
        self._prepare(terms.threads)
        extension = Extension(artifact)
        timings: list[Timing] = []
        censored = False
        for index, problem in enumerate(terms.problems):
            say(f"measuring {problem}")
            sets = self._input_sets(terms, problem)
            variant = VariantArm(extension, problem, sets, terms.threads)
            if rival is None:
                name = terms.baselines[index]
                baseline: Arm = self._sdpa_arm(problem, name, sets, terms.threads)
            else:
                name, baseline = rival.name, VariantArm(Extension.second(rival), problem, sets, terms.threads)
            take = partial(run_blocks, variant, baseline, terms.seeds[0], terms.min_blocks, terms.max_blocks, best)
            calm = terms.baseline_us[index] if rival is None and terms.baseline_us else None
            blocks = undisturbed(take, calm, DRIFT)
            if isinstance(blocks, Fault):
                return blocks
            fault = variant.recheck(self._truth(terms, problem, 0), self._truth(terms, problem, 1))
            if fault is not None:
                return fault
            timings.append(blocks.timing(problem, name, (variant.calls, baseline.calls)))
            censored = censored or blocks.censored
        return measurement(timings, terms.cache, censored)

    def _truth(self, terms: Terms, problem: Problem, seed_index: int) -> Truth:
        return truth(Case(name="measured", problem=problem), terms.seeds[seed_index])

    def _input_sets(self, terms: Terms, problem: Problem) -> InputSets:
        return InputSets(problem, self._truth(terms, problem, 0), terms.cache, self._settings.cache_bytes)

    def _sdpa_arm(self, problem: Problem, backend: str, sets: InputSets, threads: int) -> Arm:
        pinned = sdpa(problem, backend)
        return Arm(lambda index: pinned(*sets.inputs[index]), sets, threads)
