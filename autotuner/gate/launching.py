"""Launches under the gate's eyes, and what every check does with the outputs."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from torch import Tensor

from autotuner.forge.loaded_variant import Reported
from autotuner.gate.bench import ZEROS, Bench
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.check import Check, Failed
from autotuner.gate.diagnosis import of_lengths, of_type
from autotuner.gate.tolerance import Degenerate, Truth, Truths, broken_in, extent, its_own, judge, out_of_tolerance
from autotuner.ops import Op, op_of
from autotuner.ops.tensors import Tensors, all_same_bits, same_bits, together, whole
from autotuner.values.conditions import Conditions
from autotuner.values.gate_report import CaseErrors, CaseResult, Extent, ReportedIdentity
from autotuner.values.outcome import Artifact, Say
from autotuner.values.verdict import Verdict

T = TypeVar("T")
Far = tuple[int, int]
"""The number of a tensor, outputs after inputs, and the dimension along which it is far apart."""


class Evidence(NamedTuple):
    """What the gate compares with."""

    truth: Truths
    identity: Callable[[], Reported]
    """Asks the loaded library what it is."""
    disassembly: Callable[[], str | None]
    """The artifact's machine code as text; None where there is no disassembler."""
    baselines: Callable[[Case, int], Mapping[str, Tensors]]
    """What each of the op's baselines that takes the case answers, by its name."""
    changes_floats: Callable[[], bool]
    """Whether a launch has left the float environment changed."""
    unread: str | None = None
    """Why the artifact's host code could not be looked at before its library was loaded; what it may not do has ended
    the gate there."""


class Launching:
    """Launches of one artifact for the checks on it; what they found is collected for the report."""

    def __init__(
        self, artifact: Artifact, matrix: Matrix, bench: Bench, conditions: Conditions, evidence: Evidence, say: Say
    ) -> None:
        self.artifact, self.matrix, self.bench, self.conditions = artifact, matrix, bench, conditions
        self.claims = matrix.claims
        self.evidence, self.say = evidence, say
        self.op = op_of(conditions.compiled_for)
        self.tensors = self.op.tensors()
        self.tile = self.op.cases.tile(artifact.variant.parameters, artifact.resources)
        self.reported: ReportedIdentity | None = None
        self.check: Check
        """The one under way."""
        self.results: list[CaseResult] = []
        self.launches = 0

    def begin(self, check: Check) -> None:
        """The check begins; what the last one found is forgotten."""
        self.check, self.results, self.launches = check, [], 0

    def truth(self, case: Case, seed_index: int = 0) -> Truth:
        """The case's truth with one of the study's secret seeds."""
        return self.evidence.truth(case, self.seed(seed_index))

    def seed(self, index: int) -> int:
        """One of the study's secret seeds; they go round."""
        return self.conditions.seeds[index % len(self.conditions.seeds)]

    def inputs(self, case: Case, seed_index: int = 0) -> Tensors:
        """The inputs of the case with one of the secret seeds."""
        return self.truth(case, seed_index).inputs

    def outputs(self, case: Case, inputs: Tensors, holding: float = math.nan) -> Tensors:
        """Outputs beside the inputs, full of one number."""
        return tuple(output.fill_(holding) for output in self.tensors.outputs(case.problem, inputs))

    def launch(
        self, case: Case, inputs: Tensors, shift: int = 0, far: Far | None = None, holding: float = math.nan
    ) -> Tensors:
        """The outputs of one launch on poisoned memory, or outputs that hold another number; fails on a bad status,
        changed inputs or broken guards. Raises DeviceFullError where the device has no room for what is `far`."""

        def place(number: int, tensor: Tensor) -> Tensor:
            return self.bench.far(tensor, far[1]) if far and far[0] == number else self.bench.place(tensor, shift)

        bench, placed = self.bench, self._placed(inputs, place)
        drawn = enumerate(self.outputs(case, inputs, holding), len(inputs))
        outputs = tuple(place(number, output) for number, output in drawn)
        self.require_ok(self.in_time(case, lambda: bench.launch(case.problem, placed, outputs)), case)
        found = tuple(output.clone() for output in outputs)
        self.require_no_traces(case, inputs, placed)
        return found

    @staticmethod
    def _placed(inputs: Tensors, place: Callable[[int, Tensor], Tensor]) -> Tensors:
        """The inputs where they are placed: those that are one tensor stay one, and what overlaps does so there."""
        if not together(inputs):
            once = {id(tensor): place(number, tensor) for number, tensor in enumerate(inputs)}
            return tuple(once[id(tensor)] for tensor in inputs)
        places = [(tensor.untyped_storage().data_ptr(), tensor.dtype) for tensor in inputs]
        memory = {at: place(places.index(at), whole(inputs[places.index(at)])) for at in {*places}}
        pairs = ((memory[at], tensor) for at, tensor in zip(places, inputs, strict=True))
        return tuple(
            there.as_strided(tensor.shape, tensor.stride(), there.storage_offset() + tensor.storage_offset())
            for there, tensor in pairs
        )

    def repeat(self, case: Case, inputs: Tensors, right: Tensors, count: int, before: int) -> None:
        """`count` launches that must each give the bits `right`, after `before` others; fails as `launch` does."""
        bench = self.bench
        placed = tuple(bench.place(tensor) for tensor in inputs)
        outputs = tuple(bench.place(output) for output in self.outputs(case, inputs))
        found = self.in_time(case, lambda: bench.repeated(case.problem, placed, outputs, right, count))
        self.launches += found.launches - 1
        self.require_ok(found.status, case)
        if found.unlike is not None:
            number = before + found.unlike + 1
            raise Failed(f"launch {number} on {case.problem} differs from the first on the same input", case)
        self.require_no_traces(case, inputs, placed)

    def require_no_traces(self, case: Case, inputs: Tensors, placed: Tensors) -> None:
        """Fails on changed inputs or broken guards; lets go of the placed tensors."""
        traces = self.bench.traces(inputs, placed)
        for given, changed in zip(self.op.inputs(case.problem), traces.changed, strict=True):
            if changed:
                detail = f"{given.name} is not what it was before the launch"
                raise Failed(detail, case, "G1.inputs", Verdict.CORRUPTING)
        if traces.damage is not None:
            raise Failed(traces.damage, case, "G1.guard", Verdict.CORRUPTING)

    def in_time(self, case: Case, launch: Callable[[], T]) -> T:
        """What the launch gives; fails when it does not end or wants more memory than there is."""
        self.launches += 1
        try:
            return launch()
        except MemoryError as error:
            raise Failed(str(error), case, "G1.workspace", Verdict.OVER_LIMITS) from None
        except TimeoutError as error:
            raise Failed(str(error), case, "G1.deadline", Verdict.HUNG) from None

    def require_ok(self, status: int, case: Case) -> None:
        """Fails unless the launch ended well."""
        if status == 0:
            return
        said, system = self.bench.errors.text(status), self.bench.errors.system_fault(status)
        if system.sticky:
            raise Failed(f"the launch ended with {said}", case, "G1.device", Verdict.CRASHED, system)
        detail = f"the variant returned status {status} ({said})"
        raise Failed(detail, case, "G1.status", Verdict.LAUNCH_FAILED, system)

    def judge(self, level: str, case: Case, seed_index: int) -> None:
        """One case against its truth, if it has one; the result of each output is kept for the report."""
        self.say(f"{level} case {case.name}")
        try:
            expected = self.truth(case, seed_index)
        except Degenerate:  # as of few numbers, all of which an op makes 0
            return
        outputs = self.launch(case, expected.inputs)
        for number, right in enumerate(expected.outputs):
            output = outputs[number]
            errors = judge(output, right, self.claims.policy.tolerance)
            if errors.failed_rule is not None:
                expected = its_own(case, expected)
                right = expected.outputs[number]
                errors = judge(output, right, self.claims.policy.tolerance)
            bad = out_of_tolerance(output, right, errors, self.tile[0]) if errors.failed_rule else None
            place = seed_index % len(self.conditions.seeds)
            self.results.append(CaseResult(case=case.name, seed_index=place, errors=errors, extent=bad))
            if errors.failed_rule is not None:
                stale, hint = self.explained(case, expected, outputs, seed_index)
                code = f"{level}.{errors.failed_rule}"
                raise Failed(_describe(errors, self.op), case, code, stale=stale, hint=hint)

    def explained(self, case: Case, right: Truth, outputs: Tensors, seed_index: int = 0) -> tuple[bool, str | None]:
        """Whether wrong outputs depend on what memory held, and what other experiments show of their cause."""
        if self.depends_on_memory(case, right.inputs, outputs):
            return True, None
        try:
            found = of_type(outputs, right) or of_lengths(
                self.matrix, case, partial(self.is_right, seed_index=seed_index)
            )
        except (Failed, ValueError) as error:  # a launch that fails in another way, or a case of which is no truth
            _require_device(error)
            found = None
        return False, found

    def is_right(self, case: Case, seed_index: int = 0) -> bool:
        """Whether a launch that does not fail is within tolerance."""
        truth = self.truth(case, seed_index)
        return broken_in(case, self.launch(case, truth.inputs), truth, self.claims.policy.tolerance) is None

    def depends_on_memory(self, case: Case, inputs: Tensors, outputs: Tensors) -> bool:
        """Whether wrong outputs are other ones where memory held zeros before the launch."""
        self.bench.disturb(ZEROS)
        try:
            return not all_same_bits(self.launch(case, inputs), outputs)
        except Failed as failed:
            _require_device(failed)
            return False

    def require_same(self, case: Case, got: Tensors, want: Tensors, detail: str) -> None:
        """Fails unless all outputs are bitwise equal."""
        for number, (one, other) in enumerate(zip(got, want, strict=True)):
            self.require_equal(case, one, other, detail, number)

    def require_equal(self, case: Case, got: Tensor, want: Tensor, detail: str, number: int = 0) -> None:
        """Fails unless two tensors, of the shape of an output or parts of one, are bitwise equal."""
        if same_bits(got, want):
            return
        differs, size = got.contiguous() != want.contiguous(), (got.double() - want.double()).abs()
        where = self.extent(number, differs, size)
        raise Failed(f"{detail}; {_difference(where)}", case, differs=where)

    def extent(self, number: int, affected: Tensor, size: Tensor) -> Extent:
        """Where `affected` is true in an output, and how large `size` is there."""
        return extent(self.op.outputs(self.conditions.compiled_for)[number], affected, size, self.tile[0])


def _require_device(error: Exception) -> None:
    """Raises what has cost the process its device: nothing else can be found out there, and it says most."""
    if isinstance(error, Failed) and error.system is not None and error.system.sticky:
        raise error


def _difference(where: Extent) -> str:
    """How two outputs differ, in words."""
    if not where.rows:
        return "they differ only in the sign of zero or in NaN"
    size = f"by up to {where.largest:.3g}" if where.largest < float("inf") else "numbers that are not finite among them"
    return f"{where.rows} of {where.of_rows} rows differ, {size}"


def _describe(errors: CaseErrors, op: Op) -> str:
    first = "" if errors.first_bad_row is None else f", first {op.place(errors.first_bad_row)}"
    if errors.nonfinite:
        return f"{errors.nonfinite} elements are not finite{first}"
    return (
        f"max error {errors.max_abs:.3g} (tolerance {errors.max_abs_tol:.3g}), row {errors.row_rel:.3g}"
        f" ({errors.row_rel_tol:.3g}), slice {errors.slice_rel:.3g} ({errors.slice_rel_tol:.3g}); "
        f"worst at {op.place(errors.worst_index)}: {errors.worst_value:.6g} instead of {errors.worst_reference:.6g}; "
        f"{errors.bad_rows:.1%} of rows out of tolerance{first}"
    )
