"""Recorded spaces: every valid configuration of a kernel with its time and what judging it cost. docs/method/replay.md.

`read` takes Kernel Tuner's caches, results in the T4 format, and the landscapes of this project; `t4_of` converts.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, field_validator, model_validator

from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.spaces.branch import Branch
from autotuner.spaces.space import BranchPoints, Space, SpaceFile
from autotuner.tuning.t4 import INVALIDITY, VERSION
from autotuner.values.errors import InputError
from autotuner.values.model import Model
from autotuner.values.outcome import Device, Outcome
from autotuner.values.variant import Value
from autotuner.values.verdict import Verdict

FORMAT = "autotuner landscape 1"
RECORDED = "recorded"
"""The one implementation of a space whose file knows nothing of implementations."""

PROBLEM = SdpaProblem(batch=1, heads=1, seq_q=1, seq_k=1, head_dim=1, dtype="float32")
"""Stands for what was computed there, of which nothing is asked."""

NO_TIME_MS = 1e20
"""Kernel Tuner's older caches have this in place of a time."""

WORDS = {
    "InvalidConfig": Verdict.OVER_LIMITS,
    "CompilationFailedConfig": Verdict.BUILD_FAILED,
    "RuntimeFailedConfig": Verdict.LAUNCH_FAILED,
    "constraints": Verdict.OVER_LIMITS,
    "compile": Verdict.BUILD_FAILED,
    "runtime": Verdict.LAUNCH_FAILED,
    "correctness": Verdict.INCORRECT,
    "timeout": Verdict.HUNG,
}
"""What the files call a failure: caches first, then T4. Any other word is a launch that failed."""

MS = {"nanoseconds": 1e-6, "microseconds": 1e-3, "milliseconds": 1.0, "seconds": 1e3}
MS |= {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}

PARTS = (("build",), ("check", "soak", "sanitize"), ("measure",))
"""The stages of Outcome.seconds that are compiling, verifying and benchmarking."""


class Entry(NamedTuple):
    """A configuration as a file has it."""

    configuration: dict[str, Any]
    ms: float
    """NaN where it failed."""
    fault: Verdict | None
    seconds: tuple[float, float, float]
    """What compiling, verifying and benchmarking it took."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """A space of N points, all of them measured; what belongs to the points is in the order of `space`.

    `ms` (N,): milliseconds, NaN where the configuration failed; then `faults` says how. `seconds` (N, 3): what
    compiling, verifying and benchmarking took. `configurations`: as the file has them, constants too.
    """

    name: str
    device: str
    space: Space
    ms: NDArray[np.float64]
    faults: tuple[Verdict | None, ...]
    seconds: NDArray[np.float64]
    configurations: tuple[dict[str, Any], ...]

    @property
    def cost(self) -> NDArray[np.float64]:
        """Seconds (N,) that an evaluation takes, without the sampler's own."""
        return np.asarray(self.seconds.sum(axis=1))


def read(path: Path) -> Recorded:
    """A recorded space from a file, gzipped or not. Raises InputError, one line, when it is none."""
    document = _document(path)
    name = path.name.split(".json")[0]
    try:
        if document.get("format") == FORMAT:
            return _of_landscape(name, Landscape.model_validate(document))
        if "cache" in document:
            return _of_entries(name, str(document.get("device_name", "")), list(_cache_entries(document)))
        if "results" in document:
            device = document.get("metadata", {}).get("device", "")
            return _of_entries(name, device, list(_t4_entries(document)))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (KeyError, TypeError, AttributeError, ValidationError) as error:
        raise InputError(f"{path}: not as docs/method/replay.md says: {type(error).__name__}: {error}") from None
    raise InputError(f"{path}: neither a Kernel Tuner cache, nor T4 results, nor {FORMAT!r}")


def _document(path: Path) -> dict[str, Any]:
    try:
        return _parsed(path.read_bytes())
    except (OSError, EOFError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: not a JSON document, gzipped or not: {error}") from None


def _parsed(content: bytes) -> dict[str, Any]:
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    text = content.decode()
    try:
        found = json.loads(text)
    except json.JSONDecodeError:  # a cache is left open while its tuning lasts: after the last entry comes no bracket
        found = json.loads(text.rstrip().rstrip(",") + "}}")
    return found if isinstance(found, dict) else {}


# Kernel Tuner's caches ----------------------------------------------------------------------------------------------


def _cache_entries(document: Mapping[str, Any]) -> Iterator[Entry]:
    names = list(document["tune_params"])
    for record in document["cache"].values():
        time = record.get("time")
        parts = (record.get(key) for key in ("compile_time", "verification_time", "benchmark_time"))
        seconds = tuple(1e-3 * _positive(part) for part in parts)
        word = str(record.get("__error__", time))
        yield _entry({name: record[name] for name in names}, time, word, seconds)


def _entry(configuration: dict[str, Any], time: object, word: str, seconds: Sequence[float]) -> Entry:
    ms = time if isinstance(time, int | float) and not isinstance(time, bool) else math.nan
    compiling, verifying, benchmarking = seconds
    ok = ms < NO_TIME_MS  # no NaN is
    fault = None if ok else WORDS.get(word, Verdict.LAUNCH_FAILED)
    return Entry(configuration, float(ms) if ok else math.nan, fault, (compiling, verifying, benchmarking))


def _positive(part: object) -> float:
    """What a stage took; some files have nothing, a word or a negative number where it did not run."""
    return float(part) if isinstance(part, int | float) and part > 0 else 0.0


# T4 -----------------------------------------------------------------------------------------------------------------


def _t4_entries(document: Mapping[str, Any]) -> Iterator[Entry]:
    unit = MS[document.get("metadata", {}).get("timeunit", "milliseconds")]
    results = document["results"]
    names = list(dict.fromkeys(name for result in results for name in result["configuration"]))
    for result in results:
        seconds = tuple(1e-3 * unit * part for part in _t4_parts(result["times"]))
        configuration = {name: result["configuration"].get(name) for name in names}
        ms = _t4_ms(result, unit) if result["invalidity"] == "correct" else None
        yield _entry(configuration, ms, result["invalidity"], seconds)


def _t4_ms(result: Mapping[str, Any], unit: float) -> float | None:
    """The measurement called "time", in its own unit or else in that of the document."""
    for each in result.get("measurements", ()):
        if each["name"] == "time" and isinstance(each["value"], int | float):
            return float(each["value"]) * (MS[each["unit"]] if each.get("unit") else unit)
    return None


def _t4_parts(times: Mapping[str, Any]) -> tuple[float, float, float]:
    """Compiling, verifying, benchmarking. Kernel Tuner has other names for two of them than the schema."""
    compiling = _positive(times.get("compilation_time", times.get("compilation")))
    benchmarking = _positive(times.get("benchmark", sum(map(_positive, times.get("runtimes", ())))))
    return compiling, _positive(times.get("validation")), benchmarking


def t4_of(recorded: Recorded) -> dict[str, Any]:
    """The space as T4 results; what a configuration lacks is null there."""
    names = list(dict.fromkeys(name for each in recorded.configurations for name in each))
    results = [
        {
            "configuration": {name: configuration.get(name) for name in names},
            "objectives": ["time"],
            "times": dict(zip(("compilation_time", "validation", "benchmark"), (1e3 * parts).tolist(), strict=True))
            | {"framework": 0, "search_algorithm": 0, "runtimes": []},
            "invalidity": "correct" if fault is None else INVALIDITY[fault],
            "correctness": 0 if fault is not None and INVALIDITY[fault] == "correctness" else 1,
            "measurements": [{"name": "time", "value": ms, "unit": "ms"}] if fault is None else [],
        }
        for configuration, ms, fault, parts in zip(
            recorded.configurations, recorded.ms.tolist(), recorded.faults, recorded.seconds, strict=True
        )
    ]
    metadata = {"device": recorded.device, "timeunit": "milliseconds", "autotuner": "autotuner"}
    return {"schema_version": VERSION, "metadata": metadata, "results": results}


def write_json(document: object, path: Path) -> None:
    """Writes JSON, gzipped if the name ends so; the same document gives the same bytes."""
    text = json.dumps(document, indent=1).encode() + b"\n"
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


# A space from entries -----------------------------------------------------------------------------------------------


def _of_entries(name: str, device: str, entries: list[Entry]) -> Recorded:
    """The space that the configurations span. What has one value everywhere is no parameter."""
    if not any(entry.fault is None for entry in entries):
        raise InputError("no configuration has a time")
    columns = {key: _encoded([entry.configuration[key] for entry in entries]) for key in entries[0].configuration}
    varying = {key: column for key, column in columns.items() if len(column[0]) > 1}
    names = _identifiers(varying)
    values = {names[key]: column[0] for key, column in varying.items()}
    rows = np.array([column[1] for column in varying.values()], dtype=np.int16).reshape(len(values), len(entries)).T
    if math.prod(map(len, values.values())) >= 2**63:
        raise InputError("the product of the numbers of values exceeds 64 bits")
    order = np.lexsort(rows.T[::-1]) if values else np.arange(len(entries))
    rows = np.asfortranarray(rows[order])
    if len(rows) > 1 and (rows[1:] == rows[:-1]).all(axis=1).any():
        raise InputError("a configuration is there twice")
    rows.flags.writeable = False
    return _recorded(name, device, _space(name, values, rows), [entries[place] for place in order])


def _space(name: str, values: dict[str, tuple[Value, ...]], rows: NDArray[np.int16]) -> Space:
    """With its first point as the default one: a file names none."""
    default = {parameter: each[place] for (parameter, each), place in zip(values.items(), rows[0], strict=True)}
    branch = Branch(impl=RECORDED, parameters=values, default=default)
    file = SpaceFile(
        path=f"{name}.toml",
        title=f"recorded: {name}",
        family=RECORDED,
        backend="cuda",
        problems=(PROBLEM,),
        branches=(branch,),
    )
    points = BranchPoints(branch, {}, file.problems, rows, raw_count=len(rows), applied=(), removed=())
    return Space(file, facts={}, branches=(points,))


def _recorded(name: str, device: str, space: Space, entries: Sequence[Entry]) -> Recorded:
    return Recorded(
        name=name,
        device=device,
        space=space,
        ms=np.array([entry.ms for entry in entries]),
        faults=tuple(entry.fault for entry in entries),
        seconds=np.array([entry.seconds for entry in entries]),
        configurations=tuple(entry.configuration for entry in entries),
    )


def _encoded(column: Sequence[Any]) -> tuple[tuple[Value, ...], NDArray[np.int16]]:
    """The values of a parameter, in order, and the place (m,) among them of each entry's.

    Integers and booleans are themselves and go up. Of other numbers, and of numbers with gaps, only the order counts:
    they are numbered from 1, a gap (null) first. All else are categories, by name where a space file could have it.
    """
    plain = [_plain(value) for value in column]
    kinds = {type(value) for value in plain}
    if kinds <= {int, float, type(None)} and kinds != {type(None)}:
        distinct: list[Any] = sorted(set(plain), key=lambda value: -math.inf if value is None else value)
        values: tuple[Value, ...] = tuple(distinct) if kinds == {int} else tuple(range(1, len(distinct) + 1))
    else:
        plain = [value if isinstance(value, str) else json.dumps(value, sort_keys=True) for value in plain]
        distinct = sorted(set(plain))
        named = all(re.fullmatch(r"[A-Za-z0-9_.+-]{1,64}", value) for value in distinct)
        values = tuple(distinct) if named else tuple(f"v{place}" for place in range(len(distinct)))
    if len(distinct) >= 2**15:
        raise InputError("a parameter has 32,768 values or more")
    place_of = {value: place for place, value in enumerate(distinct)}
    return values, np.array([place_of[value] for value in plain], dtype=np.int16)


def _plain(value: Any) -> Any:
    """Booleans as 0 and 1, whole numbers as integers."""
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer() and abs(value) < 2**53):
        return int(value)
    return float(value) if isinstance(value, int) and abs(value) >= 2**63 else value


def _identifiers(names: Iterable[str]) -> dict[str, str]:
    """The names that a space file can have for these: capitals, and none that the problem or the space itself uses."""
    taken = {"IMPL", *PROBLEM.facts()}
    found: dict[str, str] = {}
    for name in names:
        made = re.sub(r"[^A-Z0-9_]", "_", name.upper())
        made = made if re.match(r"[A-Z]", made) else f"P_{made}"
        while made in taken:
            made += "_"
        taken.add(made)
        found[name] = made
    return found


# Our own ------------------------------------------------------------------------------------------------------------


class LandscapePoint(Model):
    """A point, what became of it, and the wall seconds of each stage."""

    point: dict[str, Value]
    verdict: Verdict
    us: float | None = Field(description="microseconds; None where the variant has no latency")
    half_width: float | None = Field(
        default=None,
        description="of the 95 % interval of ln(t_variant / t_baseline), of several problems the widest; None without a"
        " latency, and after too few blocks",
    )
    seconds: dict[str, float]

    @model_validator(mode="after")
    def _check(self) -> LandscapePoint:
        if not self.verdict.judges or self.verdict.has_latency != (self.us is not None):
            raise ValueError(f"{self.verdict} with {self.us} us: expected a judged point, a latency only if measured")
        return self

    @classmethod
    def of(cls, outcome: Outcome, baseline_us: float) -> LandscapePoint:
        """`baseline_us` is one for the whole landscape: ratios are comparable between blocks, microseconds are not."""
        seconds = {stage: _rounded(each) for stage, each in outcome.seconds.items()}
        us = half_width = None
        if outcome.verdict.has_latency and outcome.measurement is not None:
            us = _rounded(baseline_us * math.exp(outcome.objective))
            width = max(timing.log_ratio.high - timing.log_ratio.low for timing in outcome.measurement.timings)
            half_width = _rounded(width / 2) if math.isfinite(width) else None
        point = outcome.variant.point
        return cls(point=point, verdict=outcome.verdict, us=us, half_width=half_width, seconds=seconds)


def _rounded(number: float) -> float:
    """To six significant digits, which no measurement here has."""
    return float(f"{number:.6g}")


class Landscape(Model):
    """All valid points of a space on one device, judged. One document of JSON."""

    format: Literal["autotuner landscape 1"] = "autotuner landscape 1"
    command: str
    when: str
    space: SpaceFile
    device: Device
    compiler: str = Field(default="", description="what built the variants")
    baseline_us: float | None = Field(
        default=None, description="of SDPA, microseconds: the median over the points; None where it is not known"
    )
    tie: float | None = Field(
        default=None, description="relative: how far two loads of one binary differ, by the A/A races of the sweep"
    )
    points: tuple[LandscapePoint, ...]

    @field_validator("space", mode="before")
    @classmethod
    def _of_one_branch(cls, space: Any) -> Any:
        """A space as it was kept when a file had one table of parameters: those kept so have one implementation."""
        if not isinstance(space, dict) or "branches" in space:
            return space
        parts = ("parameters", "amounts", "constraints", "derived", "expected_latency", "default")
        document = {name: value for name, value in space.items() if name not in parts}
        (impl,) = space["parameters"]["IMPL"]["values"]
        branch = {name: space[name] for name in parts if name in space}
        lists = {name: each["values"] for name, each in space["parameters"].items() if name != "IMPL"}
        default = {name: value for name, value in space["default"].items() if name != "IMPL"}
        rules = [
            {"expression": each["expression"], "reason": each["reason"], "place": f"constraints[{i}]", "limit": False}
            for i, each in enumerate(space["constraints"])
        ]
        branch |= {"impl": impl, "parameters": lists, "default": default, "constraints": rules}
        return {**document, "branches": [branch]}

    @classmethod
    def read(cls, path: Path) -> Landscape:
        """What `write` wrote. Raises InputError, one line, when it is none."""
        try:
            return cls.model_validate(_document(path))
        except ValidationError as error:
            said = f"{error.error_count()} errors, the first: {error.errors()[0]['msg']}"
            raise InputError(f"{path}: no landscape as docs/method/replay.md says: {said}") from None

    def write(self, path: Path) -> None:
        """Writes it, gzipped if the name ends so; never half of it."""
        private = path.with_name(f".{os.getpid()}-{path.name}")
        write_json(self.model_dump(mode="json"), private)
        private.replace(path)


def _of_landscape(name: str, landscape: Landscape) -> Recorded:
    space = Space.enumerate(landscape.space, landscape.device.facts)
    places = [space.index_of(each.point) for each in landscape.points]
    if sorted(place for place in places if place is not None) != list(range(len(space))) or None in places:
        raise InputError(f"{len(places)} points; expected each of the {len(space)} valid ones once")
    entries = dict(zip(places, map(_landscape_entry, landscape.points), strict=True))
    return _recorded(name, landscape.device.name, space, [entries[place] for place in range(len(space))])


def _landscape_entry(each: LandscapePoint) -> Entry:
    compiling, verifying, measuring = (sum(each.seconds.get(stage, 0.0) for stage in part) for part in PARTS)
    fault = None if each.verdict.has_latency else each.verdict
    ms = math.nan if each.us is None else 1e-3 * each.us
    return Entry(dict(each.point), ms, fault, (compiling, verifying, measuring))
