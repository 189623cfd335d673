"""The CPU backend: C++ variants, gated in guarded memory and timed against torch's CPU SDPA."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from statistics import median

import torch
from torch import Tensor

from autotuner.attention import CPU_BACKENDS, sdpa
from autotuner.backends import Passed
from autotuner.backends.cpu_arms import Arm, InputSets, VariantArm
from autotuner.backends.cpu_bench import PREDECESSOR, CpuBench
from autotuner.backends.settings import CpuSettings
from autotuner.build import build, disassembly
from autotuner.extension import Extension
from autotuner.gate.cases import Case, Matrix, served, tiles_of
from autotuner.gate.checks import Gate, not_loaded
from autotuner.gate.launching import Evidence
from autotuner.gate.recheck import recheck
from autotuner.gate.references import answers, reference_checks, versions
from autotuner.gate.sanitizer import sanitized, small_cases
from autotuner.gate.tolerance import Truth, truth
from autotuner.measure.blocks import measurement, run_blocks
from autotuner.measure.thermometer import undisturbed
from autotuner.outcome import Artifact, BackendTiming, Calibration, Measurement, Say, Timing
from autotuner.problem import Problem
from autotuner.report import GateReport
from autotuner.terms import Terms
from autotuner.variant import Variant
from autotuner.verdict import Fault

CALIBRATION_ROUNDS = 9
DRIFT = 0.15
"""By how much the baseline may differ from the session's calibration before a measurement is taken again."""


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
        checks = reference_checks(terms.compiled_for, CPU_BACKENDS, truth, terms.seeds[0], say)
        timings: list[BackendTiming] = []
        pinned: list[str] = []
        for problem in terms.problems:
            say(f"timing SDPA on {problem}")
            here = self._time_sdpa(terms, problem)
            timings += here
            pinned.append(min(here, key=lambda timing: timing.median_us).backend)
        return Calibration(baselines=tuple(pinned), timings=tuple(timings), references=checks, versions=versions())

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

    # build and check --------------------------------------------------------------------------------------------

    def build(self, variant: Variant, terms: Terms) -> Artifact | Fault:
        return build(self._settings.kernel, variant, terms.compiled_for, self._settings.toolchain)

    def check(self, artifact: Artifact, terms: Terms, say: Say, passed: Passed | None = None) -> GateReport:
        self._prepare(terms.threads)
        claims = self._settings.kernel.claims(artifact.variant, terms.compiled_for)
        if passed is not None and passed.level == "sanitize":
            cases = served(small_cases(terms.compiled_for, artifact.lengths, tiles_of(artifact)), claims)
            found = sanitized(self._settings.kernel, artifact, self._settings.toolchain, cases, say)
            return passed.report.extended(*found)
        try:
            extension = Extension(artifact)
        except ImportError as error:
            return not_loaded(artifact, claims, terms, error)
        matrix = Matrix(terms.compiled_for, artifact.lengths, claims)
        evidence = Evidence(truth, partial(disassembly, artifact), _sdpa_answers)
        gate = Gate(artifact, claims, CpuBench(extension, matrix.neighbours(PREDECESSOR)), terms, say, evidence)
        return gate.run(extension.identity) if passed is None else gate.soak(passed.report)

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
            say(f"G7.recheck {problem}")
            expected, fresh = self._truth(terms, problem, 0), self._truth(terms, problem, 1)
            fault = recheck(variant.timed(), expected, fresh, self._settings.kernel.document.gate.tolerance)
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


def _sdpa_answers(case: Case, seed: int) -> Mapping[str, Tensor]:
    found = answers(case, truth(case, seed)[:3], CPU_BACKENDS)
    return {name: answer for name, answer in found if answer is not None}
