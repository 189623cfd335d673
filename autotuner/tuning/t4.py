"""T4, the results format of autotuners: the trials of a study as a document of it, and what such a file says of points.

T4 is what Kernel Tuner writes, and what the AutoTuning Methodology's hub keeps spaces in. Times are in milliseconds. A
configuration has every parameter of the study; one that its implementation lacks is null.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import geometric_mean, median
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from autotuner.store import Store, StudyRecord, queries
from autotuner.store.records import JudgedTrial
from autotuner.values.errors import InputError
from autotuner.values.files import read_regular, why
from autotuner.values.outcome import Measurement, Outcome
from autotuner.values.validation import explanation
from autotuner.values.variant import Value
from autotuner.values.verdict import Verdict

SUFFIX = ".t4.json"
VERSION = "1.0.0"
RATIO = "log_ratio"
"""The measurement that is ln(t_variant / t_baseline)."""
LARGEST_BYTES = 1 << 30
"""Of a file that is read, at most."""
INVALIDITY = {
    **dict.fromkeys((Verdict.MEASURED, Verdict.DEDUPLICATED, Verdict.RACED_OUT), "correct"),
    **dict.fromkeys((Verdict.BUILD_TIMEOUT, Verdict.HUNG), "timeout"),
    Verdict.OVER_LIMITS: "constraints",
    Verdict.BUILD_FAILED: "compile",
    **dict.fromkeys((Verdict.LAUNCH_FAILED, Verdict.CRASHED), "runtime"),
    **dict.fromkeys(
        (Verdict.INCORRECT, Verdict.NONDETERMINISTIC, Verdict.CORRUPTING, Verdict.IMPOSSIBLE), "correctness"
    ),
}
"""How T4 calls the verdicts that judge a variant; it has no word for the others."""


# Written --------------------------------------------------------------------------------------------------------------


def document(store: Store, study: str) -> dict[str, Any]:
    """All trials of a study that say something of their variant. Raises StoreError."""
    listed = {each.number: each for each in queries.listed(store, study)}
    names = list(dict.fromkeys(name for each in listed.values() for name in each.parameters))
    found = [
        {
            "timestamp": listed[number].recorded_at.isoformat(),
            "configuration": {name: outcome.variant.point.get(name) for name in names},
            **_result(outcome),
        }
        for number, outcome in store.outcomes(study)
        if outcome.verdict in INVALIDITY
    ]
    record = queries.study(store, study)
    metadata = {
        "device": record.device.name,
        "timeunit": "milliseconds",
        "left_out": len(listed) - len(found),
        "study": record.model_dump(mode="json"),
    }
    return {"schema_version": VERSION, "metadata": metadata, "results": found}


def _result(outcome: Outcome) -> dict[str, Any]:
    seconds, invalidity = outcome.seconds, INVALIDITY[outcome.verdict]
    measured = outcome.measurement if outcome.verdict.has_latency else None
    blocks = zip(*(each.variant_us for each in measured.timings), strict=True) if measured is not None else ()
    checked = sum(seconds.get(stage, 0.0) for stage in ("check", "soak", "sanitize"))
    return {
        "objectives": ["time"],
        "times": {
            "compilation_time": 1e3 * seconds.get("build", 0.0),
            "validation": 1e3 * checked,
            "benchmark": 1e3 * seconds.get("measure", 0.0),
            "framework": 0,
            "search_algorithm": 0,
            "runtimes": [1e-3 * geometric_mean(block) for block in blocks],  # over several problems
        },
        "invalidity": invalidity,
        "correctness": 0 if invalidity == "correctness" else 1,
        "measurements": [
            {"name": name, "value": value, "unit": unit}
            for name, value, unit in (*_figures(measured), *_facts(outcome))
            if not isinstance(value, float) or math.isfinite(value)
        ],
    }


def _figures(measured: Measurement | None) -> Iterator[tuple[str, Any, str]]:
    if measured is None:
        return
    yield "time", 1e-3 * measured.variant_us, "ms"
    yield "baseline", 1e-3 * measured.baseline_us, "ms"
    yield RATIO, measured.objective, "ln(t / t_baseline)"
    yield f"{RATIO}_low", measured.log_ratio.low, "ln(t / t_baseline)"
    yield f"{RATIO}_high", measured.log_ratio.high, "ln(t / t_baseline)"
    for each in measured.timings:
        yield f"blocks of {each.problem}", [1e-3 * us for us in each.variant_us], "ms"
        yield f"blocks of {each.baseline} at {each.problem}", [1e-3 * us for us in each.baseline_us], "ms"


def _facts(outcome: Outcome) -> Iterator[tuple[str, Any, str]]:
    yield "verdict", outcome.verdict.value, ""
    if outcome.fault is not None:
        yield "fault", outcome.fault.code, ""
    if outcome.artifact is not None:
        yield from ((name, value, "") for name, value in outcome.artifact.resources.items())
    checks = outcome.gate.checks if outcome.gate is not None else ()
    errors = [case.errors.worst_ratio for check in checks for case in check.cases]
    if errors:
        yield "largest error", max(errors), "tolerances"


# Read -----------------------------------------------------------------------------------------------------------------


class _Open(BaseModel):
    """A part of a file that may have more than is asked for."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Measured(_Open):
    name: str
    value: JsonValue = None


class _Configuration(_Open):
    configuration: dict[str, JsonValue]
    invalidity: str
    measurements: tuple[_Measured, ...] = ()

    def number(self, name: str) -> float:
        """A measurement; NaN where there is none."""
        found = (each.value for each in self.measurements if each.name == name)
        return next((float(each) for each in found if isinstance(each, int | float)), math.nan)


class _File(_Open):
    metadata: dict[str, JsonValue] = {}
    results: Annotated[tuple[_Configuration, ...], Field(min_length=1)]


def read(path: Path) -> tuple[tuple[JudgedTrial, ...], StudyRecord | None]:
    """The results of a file, numbered as they come: where it has no ratios, they are over its median time. And the
    study that wrote it, None where no study of this program did. Raises InputError, one line."""
    try:
        found = _File.model_validate_json(read_regular(path, LARGEST_BYTES))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {why(error)}") from None
    except ValidationError as error:
        said = " ".join(explanation(error, _File).split())
        raise InputError(f"{path}: no T4 results: {said}; `autotuner export --format t4` writes some") from None
    logs = list(_logs(found.results))
    judged = tuple(
        JudgedTrial(number=number, point=point, objective=log, code=None if math.isfinite(log) else result.invalidity)
        for number, (result, log) in enumerate(zip(found.results, logs, strict=True))
        if "IMPL" in (point := _point(result.configuration))
    )
    if not judged:
        raise InputError(f"{path}: no configuration in it has an IMPL, as those of this program's spaces have")
    try:
        study = StudyRecord.model_validate_json(json.dumps(found.metadata.get("study")))
    except (ValidationError, InputError):
        study = None
    return judged, study


def _logs(results: Iterable[_Configuration]) -> Iterator[float]:
    """ln(t_variant / t_baseline) of each result; infinite for a reject."""
    right = [each for each in results if each.invalidity == "correct"]
    usual = median([us for each in right if (us := each.number("time")) > 0] or [1.0])
    for each in results:
        log, ms = each.number(RATIO), each.number("time")
        if each.invalidity != "correct" or not (math.isfinite(log) or ms > 0):
            yield math.inf
        else:
            yield log if math.isfinite(log) else math.log(ms / usual)


def _point(configuration: Mapping[str, JsonValue]) -> dict[str, Value]:
    """The parameters that the configuration has; true and false are 1 and 0."""
    plain = {name: int(value) if isinstance(value, bool) else value for name, value in configuration.items()}
    return {name: value for name, value in plain.items() if isinstance(value, int | str)}
