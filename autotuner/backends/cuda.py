"""The CUDA backend: variants on one NVIDIA GPU, gated in guarded memory and timed against torch's SDPA backends."""

from __future__ import annotations

import warnings
from functools import cached_property, lru_cache, partial
from statistics import median

import torch

from autotuner import config
from autotuner.attention import CUDA_BACKENDS, sdpa
from autotuner.backends.arena import Arena
from autotuner.backends.cuda_arms import Arm, InputSets, LaunchError, VariantArm, make_arm, require_working_device
from autotuner.backends.cuda_bench import CudaBench
from autotuner.backends.instruments import Instruments
from autotuner.backends.settings import CudaSettings
from autotuner.build import build, disassembly
from autotuner.errors import InfrastructureError, OracleError
from autotuner.extension import Extension
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.checks import Evidence, Gate, not_loaded
from autotuner.gate.tolerance import Truth, compute_truth, judge
from autotuner.measure.blocks import Blocks, measurement, run_blocks
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
    Verdict,
)
from autotuner.problem import Problem
from autotuner.terms import Terms
from autotuner.variant import Variant

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
        # torch says at length why a backend does not take a problem; that it does not is all we ask.
        warnings.filterwarnings("ignore", category=UserWarning, module="autotuner.attention")
        if not config.devices_hidden():
            require_working_device()
        self._sets: dict[tuple[Problem, str], InputSets] = {}
        self._baselines: dict[tuple[Problem, str, str], Arm] = {}
        self._truths = lru_cache(maxsize=512)(self._compute)

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

    def _measured(self, terms: Terms, problem: Problem, seed_index: int) -> Truth:
        return self._truth(Case(name="measured", problem=problem), terms.seeds[seed_index])

    # calibrate --------------------------------------------------------------------------------------------------

    def calibrate(self, terms: Terms, say: Say) -> Calibration:
        checks = self._references(terms, say)
        timings: list[BackendTiming] = []
        pinned: list[str] = []
        for problem in terms.problems:
            say(f"timing SDPA on {problem}")
            here = self._time_sdpa(terms, problem)
            timings += here
            pinned.append(min(here, key=lambda timing: timing.median_us).backend)
        return Calibration(baselines=tuple(pinned), timings=tuple(timings), references=checks)

    def _references(self, terms: Terms, say: Say) -> tuple[ReferenceCheck, ...]:
        """Every SDPA backend that takes a case against the float64 reference.

        Raises OracleError when one breaks the tolerance.
        """
        checks: list[ReferenceCheck] = []
        for case in Matrix(terms.compiled_for).quick():
            say(f"reference case {case.name}")
            expected = self._truth(case, terms.seeds[0])
            for backend in CUDA_BACKENDS:
                try:
                    output = sdpa(case.problem, backend)(*expected[:3])
                except RuntimeError:  # this backend does not take the case
                    continue
                errors = judge(output, expected)
                checks.append(ReferenceCheck(backend=backend, case=case.name, errors=errors))
                if errors.failed_rule is not None:
                    raise OracleError(
                        f"torch {torch.__version__} SDPA backend {backend} breaks {errors.failed_rule} on {case.name}: "
                        f"{errors.worst_ratio:.2f} times the tolerance; the case or this installation is broken"
                    )
        return tuple(checks)

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

    def check(self, artifact: Artifact, terms: Terms, say: Say, soaked: GateReport | None = None) -> GateReport:
        try:
            extension = Extension(artifact)
        except ImportError as error:
            return not_loaded(artifact, error)
        effects = self._settings.kernel.effects(artifact.variant, terms.compiled_for)
        bench = CudaBench(extension, terms.compiled_for, self._arena, self._instruments)
        evidence = Evidence(self._truth, partial(disassembly, artifact))
        gate = Gate(artifact, effects, bench, terms, say, evidence)
        return gate.run(extension.identity) if soaked is None else gate.soak(soaked)

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
                fault = variant.recheck(self._measured(terms, problem, 0), self._measured(terms, problem, 1))
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
