"""One launch under the gate's eyes, and what every check does with the outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from autotuner.build.loaded_variant import status_text, system_fault
from autotuner.gate.bench import ZEROS, Bench, Tensors
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.tolerance import Truth, Truths, extent, judge, out_of_tolerance
from autotuner.values.gate_policy import GatePolicy
from autotuner.values.gate_report import CaseErrors, CaseResult, Extent
from autotuner.values.outcome import Say
from autotuner.values.terms import Terms
from autotuner.values.verdict import Fault, SystemFault, Verdict

T = TypeVar("T")


class Failed(Exception):
    """Raised inside a check, turned into the report's fault at its border."""

    def __init__(
        self,
        verdict: Verdict,
        code: str,
        detail: str,
        case: Case | None = None,
        system: SystemFault | None = None,
        differs: Extent | None = None,
        stale: bool = False,
    ) -> None:
        super().__init__(detail)
        name = case.name if case else None
        self.fault = Fault(verdict=verdict, code=code, detail=detail, case=name, system=system)
        self.differs, self.stale = differs, stale


class Unavailable(Exception):
    """A check could not run here for want of a tool, which the message names; absence is no pass."""


class Evidence(NamedTuple):
    """What the gate compares with."""

    truth: Truths
    disassembly: Callable[[], str | None]
    """The artifact's machine code as text; None where there is no disassembler."""
    sdpa: Callable[[Case, int], Mapping[str, Tensor]]
    """What each of torch's SDPA backends that takes the case answers, by its name."""


class Launching:
    """Launches for the checks on one artifact; what they found is collected for the report."""

    def __init__(
        self,
        bench: Bench,
        matrix: Matrix,
        tiles: tuple[int, int],
        policy: GatePolicy,
        terms: Terms,
        evidence: Evidence,
        say: Say,
    ) -> None:
        self.bench, self.matrix, self.tiles, self.evidence, self.say = bench, matrix, tiles, evidence, say
        self._policy, self._seeds = policy, terms.seeds
        self.results: list[CaseResult] = []
        self.launches = 0

    def begin(self) -> None:
        """Forgets what the last check found."""
        self.results, self.launches = [], 0

    def truth(self, case: Case, seed_index: int = 0) -> Truth:
        """The case's truth with one of the study's secret seeds."""
        return self.evidence.truth(case, self.seed(seed_index))

    def seed(self, index: int) -> int:
        """One of the study's secret seeds; they go round."""
        return self._seeds[index % len(self._seeds)]

    def tensors(self, case: Case) -> Tensors:
        """Q, K and V of the case."""
        return self.truth(case)[:3]

    def launch(self, case: Case, tensors: Tensors, shift: int = 0) -> Tensor:
        """The output of one launch on poisoned memory; fails on a bad status, changed inputs or broken guards."""
        bench = self.bench
        q, k, v = placed = [bench.place(tensor, shift) for tensor in tensors]
        o = bench.place(torch.full_like(tensors[0], float("nan")), shift)
        self.require_ok(self.in_time(case, lambda: bench.launch(case.problem, q, k, v, o)), case)
        output = o.clone()
        traces = bench.traces(tensors, placed)
        for name, changed in zip("QKV", traces.changed, strict=True):
            if changed:
                raise Failed(Verdict.CORRUPTING, "G1.inputs", f"{name} is not what it was before the launch", case)
        if traces.damage is not None:
            raise Failed(Verdict.CORRUPTING, "G1.guard", traces.damage, case)
        return output

    def in_time(self, case: Case, launch: Callable[[], T]) -> T:
        """What the launch gives; fails when it does not end or wants more memory than there is."""
        self.launches += 1
        try:
            return launch()
        except MemoryError as error:
            raise Failed(Verdict.OVER_LIMITS, "G1.workspace", str(error), case) from None
        except TimeoutError as error:
            raise Failed(Verdict.HUNG, "G1.deadline", str(error), case) from None

    def require_ok(self, status: int, case: Case) -> None:
        """Fails unless the launch ended well."""
        if status == 0:
            return
        system = system_fault(status)
        if system.sticky:
            detail = f"the launch ended with {status_text(status)}"
            raise Failed(Verdict.CRASHED, "G1.device", detail, case, system)
        detail = f"the variant returned status {status} ({status_text(status)})"
        raise Failed(Verdict.LAUNCH_FAILED, "G1.status", detail, case, system)

    def judge(self, level: str, case: Case, seed_index: int) -> None:
        """One case against its truth; the result is kept for the report."""
        self.say(f"{level} case {case.name}")
        expected = self.truth(case, seed_index)
        output = self.launch(case, expected[:3])
        errors = judge(output, expected, self._policy.tolerance)
        bad = out_of_tolerance(output, expected, errors, self.tiles[0]) if errors.failed_rule else None
        self.results.append(CaseResult(case=case.name, seed_index=seed_index % 4, errors=errors, extent=bad))
        if errors.failed_rule is not None:
            stale = self.depends_on_memory(case, expected[:3], output)
            raise Failed(Verdict.INCORRECT, f"{level}.{errors.failed_rule}", _describe(errors), case, stale=stale)

    def depends_on_memory(self, case: Case, tensors: Tensors, output: Tensor) -> bool:
        """Whether a wrong output is another one where memory held zeros before the launch."""
        self.bench.disturb(ZEROS)
        try:
            return not same_bits(self.launch(case, tensors), output)
        except Failed:
            return False

    def require_equal(self, code: str, case: Case, got: Tensor, want: Tensor, detail: str) -> None:
        """Fails unless two outputs are bitwise equal."""
        if same_bits(got, want):
            return
        verdict = Verdict.NONDETERMINISTIC if code in ("G3.repeat", "G6.soak") else Verdict.INCORRECT
        where = extent(got.contiguous() != want.contiguous(), (got.double() - want.double()).abs(), self.tiles[0])
        raise Failed(verdict, code, f"{detail}; {_difference(where)}", case, differs=where)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """True when the tensors hold the same bits."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def _difference(where: Extent) -> str:
    """How two outputs differ, in words."""
    if not where.rows:
        return "they differ only in the sign of zero or in NaN"
    size = f"by up to {where.largest:.3g}" if where.largest < float("inf") else "numbers that are not finite among them"
    return f"{where.rows} of {where.of_rows} rows differ, {size}"


def _describe(errors: CaseErrors) -> str:
    if errors.nonfinite:
        return f"{errors.nonfinite} elements are not finite; first bad row {errors.first_bad_row}"
    return (
        f"max error {errors.max_abs:.3g} (tolerance {errors.max_abs_tol:.3g}), "
        f"row {errors.row_rel:.3g} ({errors.row_rel_tol:.3g}), head {errors.head_rel:.3g} ({errors.head_rel_tol:.3g}); "
        f"worst at {errors.worst_index}: {errors.worst_value:.6g} instead of {errors.worst_reference:.6g}; "
        f"{errors.bad_rows:.1%} of rows out of tolerance, first {errors.first_bad_row}"
    )
