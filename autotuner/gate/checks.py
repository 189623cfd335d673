"""The checks G0 to G6, cheapest first; the first failure stops. Every check has a stable code (docs/gate.md)."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from autotuner.extension import Identity, is_sticky, status_text
from autotuner.gate.cases import Case, Matrix, tiles_of
from autotuner.gate.tolerance import Truth, Truths, judge
from autotuner.kernel import Effect
from autotuner.outcome import Artifact, CaseErrors, CaseResult, CheckResult, Fault, GateReport, Say, Verdict
from autotuner.problem import Problem
from autotuner.recipe import ABI_VERSION
from autotuner.terms import Terms

T = TypeVar("T")
Tensors = tuple[Tensor, Tensor, Tensor]
"""Q, K and V."""

REPEATS = 8
SUMS_FLOOR = 2.0**-19
"""How far two float32 sums of the same terms may differ by their order, relative to the sum."""

SOAK_LAUNCHES = 250
SOAK_FLOPS = 1 << 32
"""A tuned problem of so many operations at most is soaked as it is."""

OUTSIDE_DOMAIN = 1
"""The status AT_OUTSIDE_DOMAIN of kernels/abi/variant.h."""


class Bench(Protocol):
    """Where the gate runs an artifact: every tensor lies in guarded memory of its own."""

    def place(self, tensor: Tensor, shift: int = 0) -> Tensor:
        """A guarded copy whose address is `shift` bytes past a multiple of 64."""

    def launch(self, problem: Problem, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> int:
        """One forward with freshly poisoned workspace, to its end; the variant's status.

        Raises ValueError on unfit tensors, MemoryError when the variant asks for more workspace than there may be,
        TimeoutError when the launch does not end.
        """

    def disturb(self, turn: int) -> None:
        """Changes what precedes the next launch: its predecessor, the workspace's contents, where threads may run."""

    def damage(self) -> str | None:
        """Which guard band was written since the last call, in words; lets go of all placed tensors."""

    def traffic(self) -> contextlib.AbstractContextManager[None]:
        """Keeps the memory system busy while it is open."""


@runtime_checkable
class StreamBench(Bench, Protocol):
    """A bench on a device with streams."""

    def delayed(self, problem: Problem, tensors: Tensors) -> tuple[int, Tensor]:
        """The status, and the output as a stream sees it whose inputs arrive late: launched on a side stream behind a
        delay and the copy of the real inputs, and copied at once. Raises as `launch` does."""

    def replayed(self, problem: Problem, tensors: Tensors, later: Tensor) -> tuple[int, Tensor]:
        """The status and the output of a replay: captured with `tensors`, replayed with K replaced by `later` and O
        poisoned. Raises as `launch` does.

        Raises ValueError also when the launch cannot be captured.
        """


class Failed(Exception):
    """Raised inside a check, turned into the report's fault at its border."""

    def __init__(self, verdict: Verdict, code: str, detail: str, case: Case | None = None) -> None:
        super().__init__(detail)
        self.fault = Fault(verdict=verdict, code=code, detail=detail, case=case.name if case else None)


class Evidence(NamedTuple):
    """What the gate compares with."""

    truth: Truths
    disassembly: Callable[[], str | None]
    """The artifact's machine code as text; None where there is no disassembler."""


class Gate:
    """Judges one artifact. `run` returns the report; `say` hears the name of each step before it starts."""

    def __init__(
        self, artifact: Artifact, effects: list[Effect], bench: Bench, terms: Terms, say: Say, evidence: Evidence
    ) -> None:
        self._artifact, self._effects, self._bench = artifact, effects, bench
        self._terms, self._say, self._evidence = terms, say, evidence
        self._matrix = Matrix(terms.compiled_for, artifact.lengths)
        self._results: list[CaseResult] = []

    def run(self, identity: Callable[[], Identity]) -> GateReport:
        """G0 to G5. `identity` asks the loaded library what it is."""
        checks: dict[str, Callable[[], None]] = {
            "G0.identity": lambda: self._identity(identity),
            "G0.effect": self._effect,
            "G1.smoke": self._smoke,
            "G2.quick": self._quick,
            "G3.repeat": self._repeat,
            "G3.scale_v": self._scale_v,
            "G3.permute": self._permute,
            "G3.future": self._future,
            "G3.ones": self._ones,
            "G3.offset": self._offset,
            "G3.misaligned": self._misaligned,
            "G3.domain": self._domain,
            "G4.stream": self._stream,
            "G4.capture": self._capture,
            "G5.matrix": self._full,
        }
        empty = empty_report(self._artifact)
        unneeded = (
            *(() if empty.causal else ("G3.future",)),
            *(() if empty.fixed_lengths else ("G3.domain",)),
            *(() if empty.streams else ("G4.stream", "G4.capture")),
        )
        wanted = {code: check for code, check in checks.items() if code not in unneeded}
        return empty.extended(*self._in_order(wanted))

    def soak(self, report: GateReport) -> GateReport:
        """G6, appended to an earlier report: many launches under disturbance, all bitwise equal."""
        return report.extended(*self._in_order({"G6.soak": self._soak}))

    def _in_order(self, checks: dict[str, Callable[[], None]]) -> tuple[tuple[CheckResult, ...], Fault | None]:
        done: list[CheckResult] = []
        for code, check in checks.items():
            self._say(code)
            self._results = []
            started = time.monotonic()
            fault = None
            status = "pass"
            try:
                check()
            except Failed as failed:
                fault, status = failed.fault, "fail"
            except Unavailable:
                status = "unavailable"
            seconds = time.monotonic() - started
            done.append(
                CheckResult.model_validate(
                    {"code": code, "status": status, "seconds": seconds, "cases": tuple(self._results)}
                )
            )
            if fault is not None:
                return tuple(done), fault
        return tuple(done), None

    # G0 ---------------------------------------------------------------------------------------------------------

    def _identity(self, identity: Callable[[], Identity]) -> None:
        """The file is the one that was built, and the loaded library says it is that build, with those macros."""
        artifact = self._artifact
        with open(artifact.path, "rb") as library:
            if hashlib.sha256(library.read()).hexdigest() != artifact.library_sha256:
                raise Failed(Verdict.BUILD_FAILED, "G0.identity", f"{artifact.path} is not the library that was built")
        reported = identity()
        expected = Identity(ABI_VERSION, reported.call_size, artifact.digest, artifact.macros)
        for field, want, got in zip(Identity._fields, expected, reported, strict=True):
            if want != got:
                detail = f"the loaded library reports {field} {got}, requested was {want}"
                raise Failed(Verdict.BUILD_FAILED, "G0.identity", detail)

    def _effect(self) -> None:
        """The claims of kernel.toml hold in the machine code: the parameters took effect."""
        if not self._effects:
            return
        code = self._evidence.disassembly()
        if code is None:
            raise Unavailable
        broken = broken_effect(self._effects, code)
        if broken is not None:
            raise Failed(Verdict.BUILD_FAILED, "G0.effect", broken)

    # One launch -------------------------------------------------------------------------------------------------

    def _seed(self, index: int) -> int:
        return self._terms.seeds[index % len(self._terms.seeds)]

    def _launch(self, case: Case, tensors: Tensors, shift: int = 0) -> Tensor:
        """The output of one launch on poisoned memory; fails on a bad status, changed inputs or broken guards."""
        bench = self._bench
        q, k, v = placed = [bench.place(tensor, shift) for tensor in tensors]
        o = bench.place(torch.full_like(tensors[0], float("nan")), shift)
        self._require_ok(self._in_time(case, lambda: bench.launch(case.problem, q, k, v, o)), case)
        for name, before, after in zip("QKV", tensors, placed, strict=True):
            if not _same_bits(before, after):
                raise Failed(Verdict.CORRUPTING, "G1.inputs", f"{name} is not what it was before the launch", case)
        output = o.clone()
        damage = bench.damage()
        if damage is not None:
            raise Failed(Verdict.CORRUPTING, "G1.guard", damage, case)
        return output

    def _in_time(self, case: Case, launch: Callable[[], T]) -> T:
        """What the launch gives; fails when it does not end or wants more memory than there is."""
        try:
            return launch()
        except MemoryError as error:
            raise Failed(Verdict.OVER_LIMITS, "G1.workspace", str(error), case) from None
        except TimeoutError as error:
            raise Failed(Verdict.HUNG, "G1.deadline", str(error), case) from None

    def _require_ok(self, status: int, case: Case) -> None:
        if is_sticky(status):
            raise Failed(Verdict.CRASHED, "G1.device", f"the launch ended with {status_text(status)}", case)
        if status != 0:
            detail = f"the variant returned status {status} ({status_text(status)})"
            raise Failed(Verdict.LAUNCH_FAILED, "G1.status", detail, case)

    def _judge(self, level: str, case: Case, seed_index: int) -> None:
        """One case against its truth; the result is kept in the report."""
        self._say(f"{level} case {case.name}")
        expected = self._evidence.truth(case, self._seed(seed_index))
        errors = judge(self._launch(case, expected[:3]), expected)
        self._results.append(CaseResult(case=case.name, seed_index=seed_index % 4, errors=errors))
        if errors.failed_rule is not None:
            raise Failed(Verdict.INCORRECT, f"{level}.{errors.failed_rule}", _describe(errors), case)

    # G1, G2, G5 -------------------------------------------------------------------------------------------------

    def _smoke(self) -> None:
        """One launch: status, inputs, guards; every element of the poisoned output written; float environment kept."""
        case = self._matrix.case((1, 2, 65, 65))
        output = self._launch(case, self._tensors(case))
        if not torch.isfinite(output).all():
            count = int((~torch.isfinite(output)).sum())
            detail = f"{count} of {output.numel()} elements of the poisoned output are not finite after the launch"
            raise Failed(Verdict.INCORRECT, "G1.unwritten", detail, case)
        if not _float_environment_is_default():
            detail = "the launch left the rounding mode or the handling of subnormals changed"
            raise Failed(Verdict.CORRUPTING, "G3.float_env", detail, case)

    def _quick(self) -> None:
        for index, case in enumerate(self._matrix.quick()):
            self._judge("G2", case, index)

    def _full(self) -> None:
        """The whole matrix, two of the four seeds a case, and the tuned lengths with few heads."""
        tuned = [
            self._matrix.case((1, min(p.heads, 2), p.seq_q, p.seq_k), label="tuned ") for p in self._terms.problems
        ]
        cases = [*self._matrix.full(tiles_of(self._artifact)), *tuned]
        for index, case in enumerate(self._matrix.quick()):
            self._judge("G5", case, index + 1)
        for index, case in enumerate(cases):
            self._judge("G5", case, index)
            self._judge("G5", case, index + 2)

    # G3: exact invariants, no reference needed ------------------------------------------------------------------

    def _invariant_case(self) -> Case:
        return self._matrix.case((2, 3, 113, 203), label="invariant ")

    def _tensors(self, case: Case) -> tuple[Tensor, Tensor, Tensor]:
        expected: Truth = self._evidence.truth(case, self._seed(0))
        return expected.q, expected.k, expected.v

    def _require_equal(self, code: str, case: Case, got: Tensor, want: Tensor, detail: str) -> None:
        if not _same_bits(got, want):
            verdict = Verdict.NONDETERMINISTIC if code in ("G3.repeat", "G6.soak") else Verdict.INCORRECT
            raise Failed(verdict, code, f"{detail}; {_difference(got, want)}", case)

    def _repeat(self) -> None:
        """The same input gives the same bits whatever ran before, the workspace holds, or threads run on."""
        for case in (self._invariant_case(), self._matrix.case((1, 8, 257, 257), label="invariant ")):
            self._alike("G3.repeat", case, REPEATS)

    def _alike(self, code: str, case: Case, launches: int) -> None:
        tensors = self._tensors(case)
        first = self._launch(case, tensors)
        for turn in range(1, launches):
            self._say(f"{code} launch {turn + 1}")
            self._bench.disturb(turn)
            detail = f"launch {turn + 1} differs from the first on the same input"
            self._require_equal(code, case, self._launch(case, tensors), first, detail)

    def _scale_v(self) -> None:
        """4 V gives exactly 4 O: only an exponent changes, but for outputs so small that they lose digits."""
        case = self._invariant_case()
        q, k, v = self._tensors(case)
        got, want = self._launch(case, (q, k, 4 * v)), 4 * self._launch(case, (q, k, v))
        numbers = torch.finfo(v.dtype)
        subnormal = (want.abs() <= 4 * numbers.tiny) & ((got - want).abs() <= 4 * numbers.smallest_normal * numbers.eps)
        detail = "4 V does not give exactly 4 O"
        self._require_equal("G3.scale_v", case, torch.where(subnormal, want, got), want, detail)

    def _permute(self) -> None:
        case = self._invariant_case()
        tensors = self._tensors(case)
        order = torch.randperm(6, generator=torch.Generator().manual_seed(self._seed(1)))

        def permuted(tensor: Tensor) -> Tensor:
            return tensor.flatten(0, 1)[order].view(tensor.shape)

        got = self._launch(case, (permuted(tensors[0]), permuted(tensors[1]), permuted(tensors[2])))
        detail = "permuting the (batch, head) slices does not permute O"
        self._require_equal("G3.permute", case, got, permuted(self._launch(case, tensors)), detail)

    def _future(self) -> None:
        """Causal: keys and values at positions >= t do not reach rows < t. Large finite values, not NaN."""
        case = self._matrix.case((2, 3, 203, 203), label="invariant ")
        q, k, v = self._tensors(case)
        shortest = min(case.problem.seq_q, case.problem.seq_k)
        for t in {shortest // 2, max(1, shortest // 3 // 32 * 32)}:
            later_k, later_v = k.clone(), v.clone()
            later_k[:, :, t:] *= -40
            later_v[:, :, t:] *= 1000
            got, want = self._launch(case, (q, later_k, later_v)), self._launch(case, (q, k, v))
            detail = f"changing keys and values from position {t} on changes earlier rows"
            self._require_equal("G3.future", case, got[:, :, :t], want[:, :, :t], detail)

    def _ones(self) -> None:
        case = self._invariant_case()
        q, k, v = self._tensors(case)
        output = self._launch(case, (q, k, torch.ones_like(v))).double()
        worst = float((output - 1).abs().max())
        if not worst <= torch.finfo(v.dtype).eps + SUMS_FLOOR:
            detail = f"V = 1 gives O up to {worst:.3g} away from 1: the weights do not sum to 1"
            raise Failed(Verdict.INCORRECT, "G3.ones", detail, case)

    def _offset(self) -> None:
        case = self._invariant_case()
        tensors = self._tensors(case)
        want = self._launch(case, tensors)
        for shift in (16, 32):
            detail = f"tensors {shift} bytes past an aligned address give another result"
            self._require_equal("G3.offset", case, self._launch(case, tensors, shift), want, detail)

    def _misaligned(self) -> None:
        """Misaligned and non-contiguous tensors are refused before anything is launched."""
        case = self._invariant_case()
        q, k, v = self._tensors(case)
        o = torch.empty_like(q)
        place = self._bench.place
        turned = place(q).transpose(2, 3).contiguous().transpose(2, 3)
        for tensors in ((place(q, 4), place(k), place(v)), (turned, place(k), place(v))):
            try:
                self._in_time(case, partial(self._bench.launch, case.problem, *tensors, place(o)))
            except ValueError:
                continue
            raise Failed(Verdict.INCORRECT, "G3.misaligned", "a misaligned or strided input was not refused", case)
        self._bench.damage()

    def _domain(self) -> None:
        """Other lengths than the fixed ones are refused before anything is launched."""
        case = self._matrix.case((1, 2, 0, 0), label="domain ")
        for more_q, more_k in ((1, 0), (0, 1), (-1, 0)):
            update = {"seq_q": case.problem.seq_q + more_q, "seq_k": case.problem.seq_k + more_k}
            other = Case(name="outside the domain", problem=case.problem.model_copy(update=update))
            if other.problem.seq_q < 1:
                continue
            q, k, v = (self._bench.place(tensor) for tensor in self._tensors(other))
            o = self._bench.place(torch.full_like(q, float("nan")))
            launch = partial(self._bench.launch, other.problem, q, k, v, o)
            status = self._in_time(other, launch)
            if is_sticky(status):
                self._require_ok(status, other)
            written = not bool(torch.isnan(o).all())
            self._bench.damage()
            if status != OUTSIDE_DOMAIN or written:
                detail = f"{other.problem} is outside the variant's lengths, but was answered ({status_text(status)})"
                raise Failed(Verdict.INCORRECT, "G3.domain", detail, other)

    # G4: streams and capture ------------------------------------------------------------------------------------

    def _stream(self) -> None:
        """Work goes to the caller's stream and to no other: inputs that arrive late on it are waited for."""
        bench, case = self._bench, self._invariant_case()
        assert isinstance(bench, StreamBench)
        tensors = self._tensors(case)
        want = self._launch(case, tensors)
        detail = (
            "on a side stream whose inputs arrive late the output is another: the launch does not follow its stream"
        )
        status, got = self._in_time(case, lambda: bench.delayed(case.problem, tensors))
        self._require_ok(status, case)
        self._require_equal("G4.stream", case, got, want, detail)

    def _capture(self) -> None:
        """A launch can be captured into a graph, and a replay computes anew from what the inputs hold then."""
        bench, case = self._bench, self._invariant_case()
        assert isinstance(bench, StreamBench)
        q, k, v = self._tensors(case)
        later = -k
        want = self._launch(case, (q, later, v))
        try:
            status, got = self._in_time(case, lambda: bench.replayed(case.problem, (q, k, v), later))
        except ValueError as error:
            raise Failed(Verdict.LAUNCH_FAILED, "G4.capture", str(error), case) from None
        self._require_ok(status, case)
        detail = "the replay of a captured launch with new inputs gives another output than a launch"
        self._require_equal("G4.capture", case, got, want, detail)

    # G6 ---------------------------------------------------------------------------------------------------------

    def _soak(self) -> None:
        """A race that shows in 1 % of launches is seen with 92 % probability in 250 launches.

        Some races need a full device: where launches are quick, the tuned problems are soaked too.
        """
        with self._bench.traffic():
            self._alike("G6.soak", self._matrix.case((1, 4, 129, 129), label="soak "), SOAK_LAUNCHES)
            for problem in self._terms.problems if isinstance(self._bench, StreamBench) else ():
                if problem.flops <= SOAK_FLOPS:
                    self._alike("G6.soak", Case(name=f"soak {problem}", problem=problem), SOAK_LAUNCHES)


def empty_report(artifact: Artifact) -> GateReport:
    """A report on the artifact in which no check was done yet: it says which are required."""
    return GateReport(
        artifact=artifact.digest,
        causal=artifact.causal,
        streams=artifact.variant.backend == "cuda",
        fixed_lengths=artifact.lengths is not None,
        checks=(),
    )


def not_loaded(artifact: Artifact, error: ImportError) -> GateReport:
    """The report on a library that cannot be loaded."""
    failed = CheckResult(code="G0.identity", status="fail", seconds=0.0)
    fault = Fault(verdict=Verdict.BUILD_FAILED, code="G0.identity", detail=f"the library cannot be loaded: {error}")
    return empty_report(artifact).extended((failed,), fault)


def broken_effect(effects: Sequence[Effect], code: str) -> str | None:
    """The first claim that does not hold in the machine code, in words."""
    for effect in effects:
        if effect.contains is not None and not re.search(effect.contains, code):
            return f"the machine code lacks /{effect.contains}/: {effect.reason}"
        if effect.lacks is not None and re.search(effect.lacks, code):
            return f"the machine code contains /{effect.lacks}/: {effect.reason}"
    return None


class Unavailable(Exception):
    """A check could not run here for want of a tool; absence is no pass."""


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def _difference(got: Tensor, want: Tensor) -> str:
    """Where two outputs differ, in words."""
    different = (got.contiguous().view(-1, got.shape[-1]) != want.contiguous().view(-1, want.shape[-1])).any(-1)
    rows = different.nonzero().flatten()
    if not len(rows):
        return "they differ only in the sign of zero or in NaN"
    largest = float((got.double() - want.double()).abs().max())
    position = [int(i) for i in torch.unravel_index(rows[0], got.shape[:-1])]
    where = f"{len(rows)} of {len(different)} rows differ, first (batch, head, row) {tuple(position)}"
    return f"{where}, by up to {largest:.3g}"


def _describe(errors: CaseErrors) -> str:
    if errors.nonfinite:
        return f"{errors.nonfinite} elements are not finite; first bad row {errors.first_bad_row}"
    return (
        f"max error {errors.max_abs:.3g} (tolerance {errors.max_abs_tol:.3g}), "
        f"row {errors.row_rel:.3g} ({errors.row_rel_tol:.3g}), head {errors.head_rel:.3g} ({errors.head_rel_tol:.3g}); "
        f"worst at {errors.worst_index}: {errors.worst_value:.6g} instead of {errors.worst_reference:.6g}; "
        f"{errors.bad_rows:.1%} of rows out of tolerance, first {errors.first_bad_row}"
    )


def _float_environment_is_default() -> bool:
    """True when rounding is to nearest and subnormals are neither flushed nor treated as zero."""
    nearest = ctypes.CDLL(None).fegetround() == 0
    return nearest and sys.float_info.min * 0.5 != 0.0
