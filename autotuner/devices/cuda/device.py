"""The CUDA backend: variants on one NVIDIA GPU, gated in guarded memory and timed against torch's SDPA backends."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from functools import cached_property, lru_cache, partial
from itertools import product

import torch
from torch import Tensor

from autotuner.build.build import build, disassembly
from autotuner.build.loaded_variant import Extension
from autotuner.devices.backend import Passed
from autotuner.devices.ceilings import cuda_ceilings
from autotuner.devices.cuda.bench import HANG_S, PREDECESSOR, CudaBench
from autotuner.devices.cuda.clocks import ClockMonitor
from autotuner.devices.cuda.guarded_memory import Arena
from autotuner.devices.cuda.timing import InputSets, require_working_device
from autotuner.devices.cuda.track import CudaTrack
from autotuner.devices.instruments import Instruments
from autotuner.devices.settings import CudaSettings
from autotuner.gate.cases import Case, Matrix, served, tiles_of
from autotuner.gate.checks import Gate, not_loaded
from autotuner.gate.launching import Evidence
from autotuner.gate.recheck import Timed, recheck
from autotuner.gate.references import answers, reference_checks, versions
from autotuner.gate.sanitizer import sanitized, small_cases
from autotuner.gate.tolerance import Truth, compute_truth
from autotuner.measure.arms import Tracks
from autotuner.measure.calibrate import fastest, time_backends
from autotuner.ops.sdpa.attention import CUDA_BACKENDS
from autotuner.ops.sdpa.problem import Problem
from autotuner.values import config
from autotuner.values.gate_report import GateReport
from autotuner.values.outcome import Artifact, BackendTiming, Calibration, Say
from autotuner.values.terms import Terms
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict

CALIBRATION_ROUNDS = 15
TILE_SIZES = (16, 32, 64, 128)

LARGE_BYTES = 64 << 20
"""Truths above this size are computed anew: a float64 reference and its tolerances are quick on the device."""


class CudaBackend:
    """Backend for one GPU, the first that the process sees. It may die with the variant; what it remembers (truths,
    baselines) serves all variants that the process judges."""

    def __init__(self, settings: CudaSettings) -> None:
        """Runs the canary where the process has a device: a build worker sees none.

        Raises InfrastructureError when the device does not work.
        """
        self._settings = settings
        if not config.devices_hidden():
            require_working_device()
        torch.set_num_threads(1)  # what is small enough for the host is slower on threads that builds keep from running
        self._prepared: tuple[object, list[CudaTrack]] | None = None
        self._truths = lru_cache(maxsize=512)(self._compute)
        self._answers = lru_cache(maxsize=16)(self._sdpa_answers)

    @cached_property
    def _arena(self) -> Arena:
        return Arena(torch.device("cuda"))

    @cached_property
    def _monitor(self) -> ClockMonitor:
        return ClockMonitor(str(torch.cuda.get_device_properties(0).uuid))

    @cached_property
    def _instruments(self) -> Instruments:
        count = torch.cuda.get_device_properties(0).multi_processor_count
        return Instruments(self._settings.toolchain, count)

    # What is right ----------------------------------------------------------------------------------------------

    def _compute(self, case: Case, seed: int) -> Truth:
        return compute_truth(case, seed, "cuda")

    def _truth(self, case: Case, seed: int) -> Truth:
        small = 8 * case.problem.bytes <= LARGE_BYTES
        return self._truths(case, seed) if small else self._compute(case, seed)

    def _sdpa_answers(self, case: Case, seed: int) -> Mapping[str, Tensor]:
        found = answers(case, self._truth(case, seed)[:3], CUDA_BACKENDS)
        return {name: answer for name, answer in found if answer is not None}

    def _measured(self, terms: Terms, problem: Problem, seed_index: int) -> Truth:
        return self._truth(Case(name="measured", problem=problem), terms.seeds[seed_index])

    # calibrate and time -----------------------------------------------------------------------------------------

    def calibrate(self, terms: Terms, say: Say) -> Calibration:
        checks = reference_checks(terms.compiled_for, CUDA_BACKENDS, self._truth, terms.seeds[0], say)
        timings: list[BackendTiming] = []
        pinned: list[str] = []
        for track in self.tracks(terms):
            say(f"timing SDPA on {track.problem}")
            here = time_backends(track, CUDA_BACKENDS, CALIBRATION_ROUNDS)
            timings += here
            pinned.append(fastest(here))
        say("drawing the inputs of the gate")
        self._draw(terms)
        say("measuring what the device can do at most")
        return Calibration(
            baselines=tuple(pinned),
            timings=tuple(timings),
            references=checks,
            versions=versions(),
            ceilings=cuda_ceilings(terms.compiled_for.dtype),
        )

    def _draw(self, terms: Terms) -> None:
        """Remembers the truths of usual tiles, now that nothing else is to be done: of a shape the first one takes ten
        times as long as another, as the libraries load what they need for it."""
        _ = self._instruments  # they are built now, while no build of a variant is
        matrix = Matrix(terms.compiled_for)
        for block_m, block_n in product(TILE_SIZES, repeat=2):
            for case, seed in product((*matrix.quick(), *matrix.full((block_m, block_n))), terms.seeds):
                self._truth(case, seed)

    def tracks(self, terms: Terms) -> Tracks:
        """The tracks of the last terms are kept, with the baselines' and the incumbent's arms."""
        wanted = (terms.problems, terms.cache, terms.seeds)
        if self._prepared is None or self._prepared[0] != wanted:
            self._prepared = None  # frees the memory first
            self._prepared = wanted, [self._track(terms, problem) for problem in terms.problems]
        return self._prepared[1]

    def _track(self, terms: Terms, problem: Problem) -> CudaTrack:
        cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        sets = InputSets(problem, self._measured(terms, problem, 0), terms.cache, cache_bytes)

        def judge(timed: Timed) -> Fault | None:
            expected, fresh = self._measured(terms, problem, 0), self._measured(terms, problem, 1)
            return recheck(timed, expected, fresh, self._settings.kernel.document.gate.tolerance)

        return CudaTrack(problem, sets, judge, self._monitor)

    # build and check --------------------------------------------------------------------------------------------

    def build(self, variant: Variant, terms: Terms) -> Artifact | Fault:
        return build(self._settings.kernel, variant, terms.compiled_for, self._settings.toolchain)

    def check(self, artifact: Artifact, terms: Terms, say: Say, passed: Passed | None = None) -> GateReport:
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
        bench = CudaBench(extension, matrix.neighbours(PREDECESSOR), self._arena, self._instruments)
        evidence = Evidence(self._truth, partial(disassembly, artifact), self._answers)
        gate = Gate(artifact, claims, bench, terms, say, evidence)
        if passed is None:
            report = gate.run(extension.identity)
        else:
            report = gate.soak(passed.report, finalist=passed.level == "finalist")
        return report if report.fault is None else _settled(report, report.fault)


def _settled(report: GateReport, fault: Fault) -> GateReport:
    """The report on a variant that failed, once the device is idle: what it left running on a stream of its own would
    write into the next variant's memory. A device that does not come to rest makes it hung, and ends the process."""
    if fault.verdict in (Verdict.CRASHED, Verdict.HUNG):
        return report
    idle = threading.Thread(target=_wait, daemon=True)
    idle.start()
    idle.join(HANG_S)
    if not idle.is_alive():
        return report
    detail = f"{fault.code}: {fault.detail}; its work goes on after the launch has ended"
    return report.model_copy(update={"fault": fault.model_copy(update={"verdict": Verdict.HUNG, "detail": detail})})


def _wait() -> None:
    with contextlib.suppress(RuntimeError):  # a device error of a stream that was not looked at: the next launch says
        torch.cuda.synchronize()
