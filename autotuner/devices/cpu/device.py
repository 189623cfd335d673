"""The CPU backend: C++ variants, gated in guarded memory and timed against torch's CPU SDPA."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from autotuner.build.build import build, disassembly
from autotuner.build.loaded_variant import Extension
from autotuner.devices.backend import Passed
from autotuner.devices.ceilings import cpu_ceilings
from autotuner.devices.cpu.bench import PREDECESSOR, CpuBench
from autotuner.devices.cpu.timing import CpuTrack, InputSets
from autotuner.devices.instruments import PeakInstrument
from autotuner.devices.settings import CpuSettings
from autotuner.gate.cases import Case, Matrix, served, tiles_of
from autotuner.gate.checks import Gate, not_loaded
from autotuner.gate.launching import Evidence
from autotuner.gate.recheck import Timed, recheck
from autotuner.gate.references import answers, reference_checks, versions
from autotuner.gate.sanitizer import sanitized, small_cases
from autotuner.gate.tolerance import truth
from autotuner.measure.arms import Tracks
from autotuner.measure.calibrate import fastest, time_backends
from autotuner.ops.sdpa.attention import CPU_BACKENDS
from autotuner.ops.sdpa.problem import Problem
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, BackendTiming, Calibration, Say
from autotuner.values.terms import Terms
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault

CALIBRATION_ROUNDS = 9


class CpuBackend:
    """Backend for the machine's own CPU. Every method runs in a process that may die with the variant."""

    def __init__(self, settings: CpuSettings) -> None:
        self._settings = settings

    def _prepare(self, threads: int) -> None:
        """Pins this process to as many CPUs as the terms allow and gives torch as many threads."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        torch.set_num_threads(threads)

    # calibrate and time -----------------------------------------------------------------------------------------

    def calibrate(self, terms: Terms, say: Say) -> Calibration:
        self._prepare(terms.threads)
        checks = reference_checks(terms.compiled_for, CPU_BACKENDS, truth, terms.seeds[0], say)
        timings: list[BackendTiming] = []
        pinned: list[str] = []
        for track in self.tracks(terms):
            say(f"timing SDPA on {track.problem}")
            here = time_backends(track, CPU_BACKENDS, CALIBRATION_ROUNDS)
            timings += here
            pinned.append(fastest(here))
        say("measuring what the device can do at most")
        peak = PeakInstrument(self._settings.toolchain)
        return Calibration(
            baselines=tuple(pinned),
            timings=tuple(timings),
            references=checks,
            versions=versions(),
            ceilings=cpu_ceilings(terms.compiled_for.dtype, peak),
        )

    def tracks(self, terms: Terms) -> Tracks:
        self._prepare(terms.threads)
        return [self._track(terms, problem) for problem in terms.problems]

    def _track(self, terms: Terms, problem: Problem) -> CpuTrack:
        expected, fresh = (truth(Case(name="measured", problem=problem), seed) for seed in terms.seeds[:2])
        sets = InputSets(problem, expected, terms.cache, self._settings.cache_bytes)

        def judge(timed: Timed) -> Fault | None:
            return recheck(timed, expected, fresh, self._settings.kernel.document.gate.tolerance)

        return CpuTrack(sets, terms.threads, judge)

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
        if passed is None:
            return gate.run(extension.identity)
        return gate.soak(passed.report, finalist=passed.level == "finalist")


def _sdpa_answers(case: Case, seed: int) -> Mapping[str, Tensor]:
    found = answers(case, truth(case, seed)[:3], CPU_BACKENDS)
    return {name: answer for name, answer in found if answer is not None}
