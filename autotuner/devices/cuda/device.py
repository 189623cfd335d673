"""One NVIDIA GPU in the process that uses it: variants in guarded memory, timed beside torch's kernels."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache, partial

import torch

from autotuner.devices.bench import bandwidth, rate
from autotuner.devices.cuda.audit import CudaAuditArm, buffers_of
from autotuner.devices.cuda.bench import HANG_S, CudaBench
from autotuner.devices.cuda.facts import SHOWN_BY
from autotuner.devices.cuda.guarded_memory import Arena
from autotuner.devices.cuda.instruments import Instruments
from autotuner.devices.cuda.nvml import ClockMonitor
from autotuner.devices.cuda.sanitizer import CudaSanitizer
from autotuner.devices.cuda.timing import BaselineArm, CudaInputSets, CudaVariantArm, elapsed
from autotuner.devices.cuda.toolchain import CudaToolchain
from autotuner.forge.family import Family
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.gate.cases import Case, Matrix, measured
from autotuner.gate.recheck import JudgesOf
from autotuner.gate.tolerance import Truth, compute_truth
from autotuner.ops.tensors import DTYPES, full_is_no_refusal
from autotuner.race.arms import Audited, Track
from autotuner.values import config
from autotuner.values.conditions import Conditions
from autotuner.values.errors import FULL_PAUSES_S, DeviceFullError, InfrastructureError, first_line
from autotuner.values.outcome import Artifact, Ceilings, Say
from autotuner.values.problem import Problem

PRODUCT_SIZES = (4096, 8192)
COPY_BYTES = 1 << 30
"""Of the products and the copies that the ceilings are measured by."""

ROOM = 8
"""Another load of all arms is made where the device has room for its inputs that often."""

LARGE_BYTES, FEW, SHARE = 64 << 20, 4, 1 / 32
"""Of truths above this size the last FEW of the timed inputs are kept, if one has at most this share of the device's
memory: every race asks for two, and to draw their inputs alone takes the host some tenths of a second."""

SHARED = 1.5
"""How many times as long as in its shortest sample a forward takes in a row, from which on the device is shared.
Two programs that are busy share it in halves; what heat and clocks do is less."""
LOOK_S = 0.05
"""Between two looks at that, while it is not shared: a look takes 5 ms."""


class CudaTrack:
    """Keeps the arms of the baselines, and of the incumbent: candidate after candidate races against them."""

    gap = 5e-6
    """A kernel that follows another of its kind starts some microseconds sooner than behind one with other needs."""
    settles_s = 0.15
    """After a pause long forwards draw more power than clocks stand: for up to 0.09 s they are lower, by up to 15 %."""

    def __init__(self, sets: CudaInputSets, judges: JudgesOf, monitor: ClockMonitor) -> None:
        self.problem = sets.problem
        self._sets, self._judges, self._monitor = sets, judges, monitor
        self._baselines: dict[str, BaselineArm] = {}
        self._raced: BaselineArm | None = None
        """The baseline that was asked for last."""
        self._alone = -LOOK_S
        """When the device was last seen not to be shared."""
        self._again: tuple[str, CudaVariantArm] | None = None

    def another(self) -> CudaTrack | None:
        if ROOM * self._sets.bytes > torch.cuda.mem_get_info()[0]:
            return None
        return CudaTrack(self._sets.another(), self._judges, self._monitor)

    def baseline(self, name: str) -> BaselineArm:
        if name not in self._baselines:
            self._baselines[name] = BaselineArm(self._sets.op.baselines[name], self._sets)
        self._raced = self._baselines[name]
        return self._raced

    def variant(self, artifact: Artifact, again: bool = False) -> CudaVariantArm:
        if not again:
            return self._arm(artifact, LoadedVariant(artifact))
        if self._again is None or self._again[0] != artifact.digest:
            self._again = None  # frees the memory first
            self._again = artifact.digest, self._arm(artifact, LoadedVariant.second(artifact))
        return self._again[1]

    def _arm(self, artifact: Artifact, loaded: LoadedVariant) -> CudaVariantArm:
        return CudaVariantArm(loaded, self._sets, self._judges(artifact).timed)

    def audit(self, artifact: Artifact, baseline: str) -> Audited:
        variant, other = self.variant(artifact), self.baseline(baseline)
        buffers, judge = buffers_of(variant), self._judges(artifact).fresh
        audited = CudaAuditArm(variant, buffers, judge)
        return Audited(variant, audited, other, CudaAuditArm(other, buffers.beside, judge, audited))

    def throttled(self) -> str | None:
        return self._monitor.throttled()

    def shared(self) -> str | None:
        """A sample that is shorter than a turn on the device shows nothing of the other program, and a longer one takes
        whole turns more: so a baseline may look calm, and a slower variant does not."""
        if self._raced is None or time.monotonic() - self._alone < LOOK_S:
            return None
        longer = self._raced.stretched()
        if longer > SHARED:
            return f"another program has the GPU in turns: forwards in a row took {longer:.1f} times as long as one"
        self._alone = time.monotonic()
        return None


class CudaProcess:
    """One GPU, the first that the process sees. The process may die with the variant; what it remembers (truths,
    baselines) serves all variants that it judges."""

    torch_device = "cuda"
    streams = True
    calibration_rounds = 15

    def __init__(self, toolchain: CudaToolchain) -> None:
        """Runs the canary where the process has a device: a build worker sees none.

        Raises InfrastructureError when the device does not work.
        """
        self._toolchain = toolchain
        if not config.is_empty(SHOWN_BY):
            with ThreadPoolExecutor(1) as beside:  # built now, as nothing can be kept once variants run here
                built = beside.submit(lambda: self._instruments)
                require_working_device()
            built.result()
        torch.set_num_threads(1)  # what is small enough for the host is slower on threads that builds keep from running
        self._problems: tuple[Problem, ...] = ()
        self._compute = partial(compute_truth, device="cuda")
        self._truths, self._timed = lru_cache(maxsize=512)(self._compute), lru_cache(maxsize=FEW)(self._compute)

    @cached_property
    def _arena(self) -> Arena:
        return Arena()

    @cached_property
    def _monitor(self) -> ClockMonitor:
        return ClockMonitor(str(torch.cuda.get_device_properties(0).uuid))

    @cached_property
    def _instruments(self) -> Instruments:
        count = torch.cuda.get_device_properties(0).multi_processor_count
        return Instruments(self._toolchain, count)

    def prepare(self, conditions: Conditions) -> None:
        """A GPU has no threads to be given; what is timed is noted."""
        self._problems = conditions.problems

    def truth(self, case: Case, seed: int) -> Truth:
        if 8 * case.problem.bytes <= LARGE_BYTES:
            return self._truths(case, seed)
        most = SHARE * torch.cuda.get_device_properties(0).total_memory
        timed = measured(case.problem)
        is_kept = case.problem in self._problems and case.distribution == timed.distribution
        return self._timed(timed, seed) if is_kept and case.problem.bytes <= most else self._compute(case, seed)

    def bench(self, variant: LoadedVariant, matrix: Matrix) -> CudaBench:
        between = matrix.neighbours(matrix.op.cases.between_large)
        return CudaBench(variant, between, self._arena, self._instruments)

    def track(self, conditions: Conditions, problem: Problem, judges: JudgesOf) -> Track:
        cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        inputs = self.truth(measured(problem), conditions.seeds[0]).inputs
        sets = CudaInputSets(problem, inputs, conditions.cache, cache_bytes)
        return CudaTrack(sets, judges, self._monitor)

    def ceilings(self, conditions: Conditions) -> Ceilings:
        """Float32 products are those on tensor cores (TF32), as variants may use them."""
        dtype = DTYPES[conditions.compiled_for.dtype]
        allowed, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
        try:
            flops = max(rate(dtype, size, "cuda", elapsed) for size in PRODUCT_SIZES)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = allowed
        copied = bandwidth(min(COPY_BYTES, torch.cuda.mem_get_info()[0] // 8), "cuda", elapsed)
        torch.cuda.empty_cache()
        return Ceilings(flops=flops, bytes=copied)

    def draw(self, conditions: Conditions, say: Say) -> None:
        """Remembers the truths that a variant of the usual tile is asked for, while the first ones are built: of a
        shape the first one takes ten times as long as another, as the libraries load what they need for it."""
        say("drawing the inputs of the gate")
        matrix = Matrix(conditions.compiled_for, seeds=conditions.seeds)
        for case, place in matrix.asked(matrix.op.cases.tile({}, {}), conditions.problems):
            self.truth(case, conditions.seeds[place % len(conditions.seeds)])

    def sanitizer(self, family: Family) -> CudaSanitizer:
        return CudaSanitizer()

    def settle(self) -> bool:
        """Whether the device comes to rest: what a variant left running on a stream of its own would write into the
        next variant's memory."""
        idle = threading.Thread(target=_wait, daemon=True)
        idle.start()
        idle.join(HANG_S)
        return not idle.is_alive()


def _wait() -> None:
    with contextlib.suppress(RuntimeError):  # a device error of a stream that was not looked at: the next launch says
        torch.cuda.synchronize()


def require_working_device() -> None:
    """The canary: allocates, runs a known kernel and verifies it. Raises InfrastructureError when that fails, and after
    some waiting DeviceFullError where there is no memory even for this."""
    for pause in FULL_PAUSES_S:
        try:
            return _require_right_sum()
        except DeviceFullError:
            time.sleep(pause)
    return _require_right_sum()


def _require_right_sum() -> None:
    """One try."""
    try:
        if not torch.cuda.is_available():
            raise InfrastructureError("torch sees no CUDA device; is a driver installed, and torch built for CUDA?")
        count = 1 << 20
        with full_is_no_refusal():
            found = int(torch.arange(count, device="cuda", dtype=torch.int64).sum())
    except RuntimeError as error:
        raise InfrastructureError(f"the CUDA device does not work: {first_line(error)}") from None
    if found != count * (count - 1) // 2:
        raise InfrastructureError(f"the CUDA device computes wrongly: a known sum came out as {found}")
