"""The gate: G0 to G6, cheapest first; the first failure stops. Every check has a stable code (docs/gate.md)."""

from __future__ import annotations

import ctypes
import hashlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from autotuner.build.build_inputs import ABI_VERSION
from autotuner.build.family import Claims, Effect
from autotuner.build.loaded_variant import Identity
from autotuner.gate import invariants, streams
from autotuner.gate.bench import Bench, StreamBench
from autotuner.gate.cases import Case, Matrix, tiles_of
from autotuner.gate.launching import Evidence, Failed, Launching, Unavailable, same_bits
from autotuner.gate.tolerance import extent
from autotuner.values.gate_report import CheckResult, GateReport, ReportedIdentity
from autotuner.values.outcome import Artifact, Say
from autotuner.values.terms import Terms
from autotuner.values.verdict import Fault, Verdict

SOAK_LAUNCHES = 250
FINALIST_LAUNCHES = 1000
SOAK_FLOPS = 1 << 32
"""A tuned problem of so many operations at most is soaked as it is."""

Check = Callable[[], str | None]
"""Raises Failed or Unavailable; may return a note for the report."""


class Gate:
    """Judges one artifact. `run` returns the report; `say` hears the name of each step before it starts."""

    def __init__(
        self, artifact: Artifact, claims: Claims, bench: Bench, terms: Terms, say: Say, evidence: Evidence
    ) -> None:
        self._artifact, self._claims, self._bench = artifact, claims, bench
        self._terms, self._say, self._evidence = terms, say, evidence
        self._matrix = Matrix(terms.compiled_for, artifact.lengths, claims)
        self._launching = Launching(bench, self._matrix, tiles_of(artifact), claims.policy, terms, evidence, say)
        self._reported: ReportedIdentity | None = None

    def run(self, identity: Callable[[], Identity]) -> GateReport:
        """G0 to G5. `identity` asks the loaded library what it is."""
        launching = self._launching
        checks: dict[str, Check] = {
            "G0.identity": lambda: self._identity(identity),
            "G0.effect": self._effect,
            "G1.smoke": self._smoke,
            "G2.quick": self._quick,
            "G2.sdpa": self._not_sdpa,
            "G3.repeat": lambda: invariants.repeat(launching),
            "G3.scale_v": lambda: invariants.scale_v(launching),
            "G3.permute": lambda: invariants.permute(launching),
            "G3.future": lambda: invariants.future(launching),
            "G3.ones": lambda: invariants.ones(launching),
            "G3.offset": lambda: invariants.offset(launching),
            "G3.misaligned": lambda: invariants.misaligned(launching),
            "G3.domain": lambda: invariants.domain(launching),
            "G4.stream": lambda: streams.stream(launching),
            "G4.capture": lambda: streams.capture(launching),
            "G5.matrix": self._full,
        }
        empty = empty_report(self._artifact, self._claims, self._terms)
        always = ("G0.effect",)
        wanted = {code: check for code, check in checks.items() if code in empty.required or code in always}
        results, fault = self._in_order(wanted)
        return empty.model_copy(update={"identity": self._reported}).extended(results, fault)

    def soak(self, report: GateReport, finalist: bool = False) -> GateReport:
        """G6, appended to an earlier report: many launches under disturbance, all bitwise equal."""
        launches = FINALIST_LAUNCHES if finalist else SOAK_LAUNCHES
        return report.extended(*self._in_order({"G6.soak": partial(self._soak, launches)}))

    def _in_order(self, checks: dict[str, Check]) -> tuple[tuple[CheckResult, ...], Fault | None]:
        done: list[CheckResult] = []
        for code, check in checks.items():
            self._say(code)
            result, fault = self._done(code, check)
            done.append(result)
            if fault is not None:
                return tuple(done), fault
        return tuple(done), None

    def _done(self, code: str, check: Check) -> tuple[CheckResult, Fault | None]:
        """One check, timed."""
        self._launching.begin()
        started = time.monotonic()
        fault, differs, stale, status = None, None, False, "pass"
        try:
            note = check()
        except Failed as failed:
            fault, differs, stale, status, note = failed.fault, failed.differs, failed.stale, "fail", None
        except Unavailable as missing:
            status, note = "unavailable", str(missing)
        document = {
            "code": code,
            "status": status,
            "seconds": time.monotonic() - started,
            "launches": self._launching.launches,
            "cases": tuple(self._launching.results),
            "differs": differs,
            "stale": stale,
            "note": note,
        }
        return CheckResult.model_validate(document), fault

    # G0 ---------------------------------------------------------------------------------------------------------

    def _identity(self, identity: Callable[[], Identity]) -> None:
        """The file is the one that was built, and the loaded library says it is that build, with those macros."""
        artifact = self._artifact
        with open(artifact.path, "rb") as library:
            if hashlib.sha256(library.read()).hexdigest() != artifact.library_sha256:
                raise Failed(Verdict.BUILD_FAILED, "G0.identity", f"{artifact.path} is not the library that was built")
        reported = identity()
        self._reported = ReportedIdentity(
            abi_version=reported.abi_version, build_id=reported.build_id, macros=reported.macros
        )
        expected = Identity(ABI_VERSION, reported.call_size, artifact.digest, artifact.macros)
        for field, want, got in zip(Identity._fields, expected, reported, strict=True):
            if want != got:
                detail = f"the loaded library reports {field} {got}, requested was {want}"
                raise Failed(Verdict.BUILD_FAILED, "G0.identity", detail)

    def _effect(self) -> None:
        """The claims of kernel.toml hold in the machine code: the parameters took effect."""
        if not self._claims.effects:
            return
        code = self._evidence.disassembly()
        if code is None:
            raise Unavailable("no disassembler was at hand when it was built")
        broken = broken_effect(self._claims.effects, code)
        if broken is not None:
            raise Failed(Verdict.BUILD_FAILED, "G0.effect", broken)

    # G1, G2, G5 -------------------------------------------------------------------------------------------------

    def _smoke(self) -> None:
        """One launch: status, inputs, guards; every element of the poisoned output written; float environment kept."""
        refused = next((p for p in self._terms.problems if not self._claims.serve(p)), None)
        if refused is not None:
            detail = f"{refused} is outside the domain that kernel.toml gives: {self._claims.domain}"
            raise Failed(Verdict.LAUNCH_FAILED, "G1.domain", detail)
        case = self._matrix.case((1, 2, 65, 65))
        tensors = self._launching.tensors(case)
        output = self._launching.launch(case, tensors)
        unwritten = ~torch.isfinite(output)
        if unwritten.any():
            count = int(unwritten.sum())
            detail = f"{count} of {output.numel()} elements of the poisoned output are not finite after the launch"
            where = extent(unwritten, output, self._launching.tiles[0])
            stale = self._launching.depends_on_memory(case, tensors, output)
            raise Failed(Verdict.INCORRECT, "G1.unwritten", detail, case, differs=where, stale=stale)
        if not _float_environment_is_default():
            detail = "the launch left the rounding mode or the handling of subnormals changed"
            raise Failed(Verdict.CORRUPTING, "G3.float_env", detail, case)

    def _quick(self) -> None:
        for index, case in enumerate(self._matrix.quick()):
            self._launching.judge("G2", case, index)

    def _not_sdpa(self) -> str | None:
        """The output is the variant's own: bitwise equality with a backend of torch's SDPA is no coincidence."""
        case = self._matrix.case((2, 3, 509, 509), label="Q3 ")
        output = self._launching.launch(case, self._launching.tensors(case))
        answers: dict[str, Tensor] = dict(self._evidence.sdpa(case, self._launching.seed(0)))
        same = next((name for name, answer in answers.items() if same_bits(output, answer)), None)
        if same is None:
            return None
        detail = f"the output is bitwise that of torch's SDPA backend {same}: it is hardly the variant's own"
        if self._claims.policy.equals_sdpa is not None:
            return detail
        raise Failed(Verdict.IMPOSSIBLE, "G2.sdpa", detail, case)

    def _full(self) -> None:
        """The whole matrix, two of the four seeds a case, and the tuned lengths with few heads."""
        tuned = [
            self._matrix.case((1, min(p.heads, 2), p.seq_q, p.seq_k), label="tuned ") for p in self._terms.problems
        ]
        for index, case in enumerate(self._matrix.quick()):
            self._launching.judge("G5", case, index + 1)
        for index, case in enumerate((*self._matrix.full(self._launching.tiles), *tuned)):
            self._launching.judge("G5", case, index)
            self._launching.judge("G5", case, index + 2)

    # G6 ---------------------------------------------------------------------------------------------------------

    def _soak(self, launches: int) -> None:
        """A race that shows in 1 % of launches is seen with 92 % probability in 250 launches, one that shows in 0.3 %
        with 95 % in 1000.

        Some races need a full device: where launches are quick, the tuned problems are soaked too.
        """
        soaked = partial(invariants.alike, self._launching, "G6.soak", launches=launches)
        with self._bench.traffic():
            soaked(self._matrix.case((1, 4, 129, 129), label="soak "))
            for problem in self._terms.problems if isinstance(self._bench, StreamBench) else ():
                if problem.flops <= SOAK_FLOPS:
                    soaked(Case(name=f"soak {problem}", problem=problem))


def empty_report(artifact: Artifact, claims: Claims, terms: Terms) -> GateReport:
    """A report on the artifact in which no check was done yet: it says which are required."""
    return GateReport(
        artifact=artifact.digest,
        causal=artifact.causal,
        streams=artifact.variant.backend == "cuda",
        bounded=Matrix(terms.compiled_for, artifact.lengths, claims).bounded,
        policy=claims.policy,
        checks=(),
    )


def not_loaded(artifact: Artifact, claims: Claims, terms: Terms, error: ImportError) -> GateReport:
    """The report on a library that cannot be loaded."""
    failed = CheckResult(code="G0.identity", status="fail", seconds=0.0)
    fault = Fault(verdict=Verdict.BUILD_FAILED, code="G0.identity", detail=f"the library cannot be loaded: {error}")
    return empty_report(artifact, claims, terms).extended((failed,), fault)


def broken_effect(effects: Sequence[Effect], code: str) -> str | None:
    """The first claim that does not hold in the machine code, in words."""
    for effect in effects:
        if effect.contains is not None and not re.search(effect.contains, code):
            return f"the machine code lacks /{effect.contains}/: {effect.reason}"
        if effect.lacks is not None and re.search(effect.lacks, code):
            return f"the machine code contains /{effect.lacks}/: {effect.reason}"
    return None


def _float_environment_is_default() -> bool:
    """True when rounding is to nearest and subnormals are neither flushed nor treated as zero."""
    nearest = ctypes.CDLL(None).fegetround() == 0
    return nearest and sys.float_info.min * 0.5 != 0.0
