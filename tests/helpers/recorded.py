"""Outcomes of every kind, made up, for tests of the store and of what reads it."""

import math
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from autotuner.gate.check import Subject
from autotuner.gate.gate import required
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.race.confirm import confirm
from autotuner.store import Finalist, FinalsResult, Lineup, Proof, Store, StudyRecord
from autotuner.values.gate_report import CaseErrors, CaseResult, CheckResult, GateReport
from autotuner.values.outcome import Artifact, Calibration, Device, Heat, Measurement, Outcome, Stop, Timing
from autotuner.values.ratio import LogRatio
from autotuner.values.variant import Variant, digest_of
from autotuner.values.verdict import Fault, Verdict

PROBLEM = SdpaProblem(batch=1, heads=8, seq_q=512, seq_k=512, head_dim=64, dtype="float32")
REQUIRED = required(Subject(PROBLEM, streams=False, bounded=False))
CALIBRATION = Calibration(baselines=("flash",), timings=(), references=())


def variant(tile: int) -> Variant:
    return Variant(family="sdpa", backend="cpu", impl="scalar", parameters={"BLOCK_M": tile})


def artifact(tile: int, program: str | None = None) -> Artifact:
    digest = digest_of(["artifact", tile])
    return Artifact(
        variant=variant(tile),
        digest=digest,
        name=f"sdpa_scalar_{digest[:12]}",
        path=f"/nowhere/{tile}.so",
        library_sha256=digest_of(["library", tile]),
        program_hash=program or digest_of(["program", tile]),
        macros={"DTYPE": "float32", "HEAD_DIM": "64", "CAUSAL": "0"},
        compiler="g++ 13",
        flags=("-O3",),
        architecture="x86-64-v4",
        resources={},
        build_seconds=1.0,
    )


def passed_gate(tile: int) -> GateReport:
    checks = tuple(CheckResult(code=code, status="pass", seconds=0.1) for code in REQUIRED)
    return GateReport(artifact=artifact(tile).digest, required=REQUIRED, checks=checks)


def measurement(microseconds: float, baseline: float = 100.0, *, censored: bool = False) -> Measurement:
    log = math.log(microseconds / baseline)
    timing = Timing(
        problem=PROBLEM,
        baseline="flash",
        variant_us=(microseconds * 0.99, microseconds, microseconds * 1.01),
        baseline_us=(baseline * 1.01, baseline, baseline * 0.99),
        log_ratio=LogRatio(low=log - 0.02, mid=log, high=log + 0.02),
        calls=(10, 10),
    )
    stopped = Stop.HOPELESS if censored else Stop.PRECISE
    return Measurement(timings=(timing,), objective=log, cache="cold", stopped=stopped)


def raced(found: Measurement, against: int, gain: float, stopped: Stop) -> Measurement:
    """The measurement with an incumbent in its blocks, the artifact of that tile; `gain` is ln(t_variant / t_it)."""
    timings = tuple(
        timing.model_copy(update={"incumbent_us": tuple(us * math.exp(-gain) for us in timing.variant_us)})
        for timing in found.timings
    )
    interval = LogRatio(low=gain - 0.01, mid=gain, high=gain + 0.01)
    changes = {"timings": timings, "stopped": stopped, "incumbent": artifact(against).digest, "gain": interval}
    return found.model_copy(update=changes)


def measured(tile: int, microseconds: float, program: str | None = None) -> Outcome:
    return Outcome(
        variant=variant(tile),
        verdict=Verdict.MEASURED,
        artifact=artifact(tile, program),
        gate=passed_gate(tile),
        measurement=measurement(microseconds),
        seconds={"build": 1.5, "check": 2.0, "measure": 0.5},
    )


def raced_out(tile: int, microseconds: float) -> Outcome:
    changes = {"verdict": Verdict.RACED_OUT, "measurement": measurement(microseconds, censored=True)}
    return measured(tile, microseconds).model_copy(update=changes)


def deduplicated(tile: int, original: Outcome) -> Outcome:
    return Outcome(
        variant=variant(tile),
        verdict=Verdict.DEDUPLICATED,
        artifact=artifact(tile, original.artifact.program_hash),
        measurement=original.measurement,
        original=original.artifact.digest,
    )


def rejected(tile: int, verdict: Verdict = Verdict.INCORRECT, code: str = "G2.T1") -> Outcome:
    fault = Fault(verdict=verdict, code=code, detail="max error 0.5", case="Q3 2x3x509x509 randn")
    return Outcome(variant=variant(tile), verdict=verdict, artifact=artifact(tile), fault=fault)


def with_error(outcome: Outcome, max_abs: float, tolerance: float = 1.0) -> Outcome:
    """The outcome with one compared output in its gate, of that largest error."""
    case = CaseResult(case="Q1 2x2x200x200 big_v", seed_index=0, errors=case_errors(max_abs, tolerance))
    check = CheckResult(code="G5.T1", status="pass", seconds=1.0, cases=(case,))
    return outcome.model_copy(update={"gate": outcome.gate.extended((check,), None)})


def case_errors(max_abs: float, tolerance: float = 1.0) -> CaseErrors:
    """Errors of an output that is off by so much in one element."""
    return CaseErrors(
        nonfinite=0,
        max_abs=max_abs,
        max_abs_tol=tolerance,
        row_rel=0.0,
        row_rel_tol=1.0,
        slice_rel=0.0,
        slice_rel_tol=1.0,
        bias=0.0,
        worst_index=(0, 0, 0, 0),
        worst_value=0.0,
        worst_reference=0.0,
        first_bad_row=None,
        bad_rows=0.0,
    )


def with_resources(outcome: Outcome, **resources: int) -> Outcome:
    built = outcome.artifact.model_copy(update={"resources": resources})
    return outcome.model_copy(update={"artifact": built})


# Finals -----------------------------------------------------------------------------------------------------------


def heat(micros: Mapping[int, float], process: int = 0, baseline: float = 100.0, blocks: int = 40) -> Heat:
    """A race of tiles that take `micros`, with a little noise that differs between processes."""
    draw = random.Random(process)

    def around(us: float) -> tuple[float, ...]:
        return tuple(us * math.exp(draw.gauss(0.0, 0.002)) for _ in range(blocks))

    return Heat(
        entrants=tuple(artifact(tile).digest for tile in micros),
        baselines=("flash",),
        us=tuple((around(us),) for us in micros.values()),
        baseline_us=(around(baseline),),
    )


def lineup(
    numbers: Mapping[int, int],
    estimates: Mapping[int, float],
    tie: float = 0.005,
    slower_than: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
) -> Lineup:
    """Finalists: trial numbers and the microseconds that the search found, by tile. `slower_than`: of some trials those
    that races of the search have shown to be faster."""
    finalists = tuple(
        Finalist(
            number=number,
            variant=variant(tile),
            digest=artifact(tile).digest,
            searched=artifact(tile).digest,
            estimate=math.log(estimates[tile] / 100.0),
            slower_than=slower_than.get(number, ()),
        )
        for tile, number in numbers.items()
    )
    return Lineup(finalists=finalists, baselines=("flash",), tie=tie, aa_races=3)


def hold_finals(
    store: Store,
    micros: Mapping[int, float],
    numbers: Mapping[int, int],
    heats: Sequence[Heat] | None = None,
    slower_than: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
    proof: tuple[CheckResult, ...] = (),
    proven: Sequence[int] = (),
) -> int:
    """Records finals of tiles that take `micros` there; their number. `proof`: what was found of
    the proven tiles, or of the first where none is named."""
    found = heats or [heat(micros, process) for process in range(5)]
    line = lineup(numbers, dict(micros), slower_than=slower_than)
    line = line.model_copy(update={"baselines": found[0].baselines})
    finals = store.start_finals("scalar-abc", line, {"torch": "2.11"})
    for each in found:
        store.record_heat("scalar-abc", "finals", each, finals_id=finals)
    of = {numbers[tile] for tile in proven} or ({line.finalists[0].number} if proof else set())
    proofs = tuple(
        Proof(number=each.number, digest=each.digest, checks=proof) for each in line.finalists if each.number in of
    )
    store.finish_finals(finals, FinalsResult(**dict(confirm(found, line.tie, line.objective)), proofs=proofs))
    return finals


def study_record(name: str = "scalar-abc", space_digest: str = "d" * 64) -> StudyRecord:
    return StudyRecord(
        name=name,
        space_name="scalar",
        space_digest=space_digest,
        space_document='{"name": "scalar"}',
        problems=(PROBLEM,),
        device=Device(backend="cpu", name="A CPU", facts={"CORES": 2, "AVX512": True}, environment={"torch": "2.11"}),
        cache="cold",
        sampler="evolution",
        seed=2**40,
    )


def record_all(store: Store, session: int, outcomes: list[Outcome]) -> None:
    for number, outcome in enumerate(outcomes):
        store.record("scalar-abc", session, number, outcome)
