"""The CUDA backend: variants on one NVIDIA GPU, gated in guarded memory and timed against torch's SDPA backends."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from functools import cached_property, lru_cache, partial
from statistics import median

import torch
from torch import Tensor

from autotuner import config
from autotuner.attention import CUDA_BACKENDS, sdpa
from autotuner.backends import Passed
from autotuner.backends.arena import Arena
from autotuner.backends.cuda_arms import Arm, InputSets, LaunchError, VariantArm, make_arm, require_working_device
from autotuner.backends.cuda_bench import HANG_S, PREDECESSOR, CudaBench
from autotuner.backends.instruments import Instruments
from autotuner.backends.settings import CudaSettings
from autotuner.build import build, disassembly
from autotuner.errors import InfrastructureError
from autotuner.extension import Extension
from autotuner.gate.cases import Case, Matrix, served, tiles_of
from autotuner.gate.checks import Gate, not_loaded
from autotuner.gate.launching import Evidence
from autotuner.gate.recheck import recheck
from autotuner.gate.references import answers, reference_checks, versions
from autotuner.gate.sanitizer import sanitized, small_cases
from autotuner.gate.tolerance import Truth, compute_truth
from autotuner.measure.blocks import Blocks, measurement, run_blocks
from autotuner.measure.thermometer import undisturbed
from autotuner.outcome import Artifact, BackendTiming, Calibration, Measurement, Say, Timing
from autotuner.problem import Problem
from autotuner.report import GateReport
from autotuner.terms import Terms
from autotuner.variant import Variant
from autotuner.verdict import Fault, Verdict

CALIBRATION_ROUNDS = 15
DRIFT = 0.1
"""By how much the baseline may differ from the session's calibration before a measurement is taken again.

Beside a variant that heats the device SDPA takes several per cent longer than beside other SDPA backends: that is the
race's own doing, and the ratio is taken there."""

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
        self._sets: dict[tuple[Problem, str], InputSets] = {}
        self._baselines: dict[tuple[Problem, str, str], Arm] = {}
        self._truths = lru_cache(maxsize=512)(self._compute)
        self._answers = lru_cache(maxsize=16)(self._sdpa_answers)

    @cached_property
    def _arena(self) -> Arena:
        return Arena(torch.device("cuda"))

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

    # calibrate --------------------------------------------------------------------------------------------------

    def calibrate(self, terms: Terms, say: Say) -> Calibration:
        checks = reference_checks(terms.compiled_for, CUDA_BACKENDS, self._truth, terms.seeds[0], say)
        timings: list[BackendTiming] = []
        pinned: list[str] = []
        for problem in terms.problems:
            say(f"timing SDPA on {problem}")
            here = self._time_sdpa(terms, problem)
            timings += here
            pinned.append(min(here, key=lambda timing: timing.median_us).backend)
        return Calibration(baselines=tuple(pinned), timings=tuple(timings), references=checks, versions=versions())

    def _time_sdpa(self, terms: Terms, problem: Problem) -> list[BackendTiming]:
        """Every SDPA backend that takes the problem, interleaved: what disturbs one disturbs the others."""
        arms: dict[str, Arm] = {}
        for name in CUDA_BACKENDS:
            try:
                arms[name] = self._baseline(terms, problem, name)
            except RuntimeError:  # this backend does not take the problem
                continue
        if not arms:
            raise InfrastructureError(f"no SDPA backend of torch {torch.__version__} takes {problem}")
        samples: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(CALIBRATION_ROUNDS):
            for name, arm in arms.items():
                samples[name].append(arm())
        return [
            BackendTiming(backend=name, problem=problem, median_us=1e6 * median(taken))
            for name, taken in samples.items()
        ]

    def _input_sets(self, terms: Terms, problem: Problem) -> InputSets:
        key = (problem, terms.cache)
        if key not in self._sets:
            cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
            self._sets[key] = InputSets(problem, self._measured(terms, problem, 0), terms.cache, cache_bytes)
        return self._sets[key]

    def _baseline(self, terms: Terms, problem: Problem, backend: str) -> Arm:
        """The pinned SDPA backend on the problem. Raises RuntimeError when it does not take it."""
        key = (problem, backend, terms.cache)
        if key not in self._baselines:
            sets, pinned = self._input_sets(terms, problem), sdpa(problem, backend)

            def forward(index: int) -> None:
                pinned(*sets.inputs[index])

            self._baselines[key] = make_arm(forward, sets)
        return self._baselines[key]

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
        report = gate.run(extension.identity) if passed is None else gate.soak(passed.report)
        return report if report.fault is None else _settled(report, report.fault)

    # measure ----------------------------------------------------------------------------------------------------

    def measure(
        self, artifact: Artifact, terms: Terms, say: Say, best: float | None = None, rival: Artifact | None = None
    ) -> Measurement | Fault:
        extension = Extension(artifact)
        timings: list[Timing] = []
        censored = False
        for index, problem in enumerate(terms.problems):
            say(f"measuring {problem}")
            try:
                variant = VariantArm(extension, self._input_sets(terms, problem))
                opponent = self._opponent(terms, index, rival)
                blocks = self._blocks(terms, index, variant, opponent[1], best, alone=rival is None)
                if isinstance(blocks, Fault):
                    return blocks
                say(f"G7.recheck {problem}")
                expected, fresh = self._measured(terms, problem, 0), self._measured(terms, problem, 1)
                fault = recheck(variant.timed(), expected, fresh, self._settings.kernel.document.gate.tolerance)
            except torch.AcceleratorError as error:  # a device error: the process is of no more use
                return Fault(verdict=Verdict.CRASHED, code="measure.device", detail=_first_line(error))
            except LaunchError as error:
                return Fault(verdict=Verdict.LAUNCH_FAILED, code="measure.launch", detail=_first_line(error))
            if fault is not None:
                return fault
            timings.append(blocks.timing(problem, opponent[0], (variant.calls, opponent[1].calls)))
            censored = censored or blocks.censored
        return measurement(timings, terms.cache, censored)

    def _blocks(
        self, terms: Terms, index: int, variant: Arm, opponent: Arm, best: float | None, alone: bool
    ) -> Blocks | Fault:
        """The race; `alone`: against the baseline of the problem, which is the thermometer too."""
        take = partial(run_blocks, variant, opponent, terms.seeds[0], terms.min_blocks, terms.max_blocks, best)
        return undisturbed(take, terms.baseline_us[index] if alone and terms.baseline_us else None, DRIFT)

    def _opponent(self, terms: Terms, index: int, rival: Artifact | None) -> tuple[str, Arm]:
        """The other side of the race and its name."""
        problem = terms.problems[index]
        if rival is None:
            return terms.baselines[index], self._baseline(terms, problem, terms.baselines[index])
        return rival.name, VariantArm(Extension.second(rival), self._input_sets(terms, problem))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


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
