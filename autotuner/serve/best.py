"""Exports of a study's best configuration: documents that programs can read, with the proof of what they claim."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationError

from autotuner.serve.c_source import write_c_folder
from autotuner.serve.folder import of_study
from autotuner.serve.package import write_folder
from autotuner.serve.table import digest_of_table, table_of
from autotuner.store import Store, queries
from autotuner.store.records import OtherCache, StudyRecord
from autotuner.tuning.finals import standings
from autotuner.tuning.finals.serving import LOSS
from autotuner.tuning.finals.standings import Best
from autotuner.tuning.trial_report import GateSummary
from autotuner.values.errors import InputError, StoreError
from autotuner.values.files import read_regular, why, write_atomically
from autotuner.values.model import Model
from autotuner.values.outcome import BackendTiming, Device
from autotuner.values.plugs import Plugs
from autotuner.values.problem import Problem
from autotuner.values.ratio import BIASED, Speedup
from autotuner.values.sweep import Earlier
from autotuner.values.table import LARGEST_BYTES, DispatchTable
from autotuner.values.validation import explanation
from autotuner.values.variant import Value, Variant, digest_of
from autotuner.values.versions import version_of

CONFIRMED_NOTE = (
    "The speedup to quote is the one under `confirmed`, found in fresh processes on fresh inputs. That under"
    " `measurement` is the search's own estimate: as the best of many measured variants it is biased upward."
)


class ExportedProblem(Model):
    """What was computed, and the work in it."""

    problem: Problem
    flops: int = Field(description="floating-point operations of one forward")
    bytes: int = Field(description="fewest bytes that one forward must move")


class ExportedToolchain(Model):
    """What the variant was built with and ran under."""

    compiler: str
    flags: tuple[str, ...]
    architecture: str
    environment: dict[str, str] = Field(description="versions and settings of the session that measured it")


class ExportedDevice(Device):
    """The device it was measured on; the figures hold for this model only."""


class ExportedIdentity(Model):
    """Which binary the figures belong to."""

    variant_digest: str
    artifact_digest: str
    extension_name: str
    library_sha256: str
    program_hash: str


class ExportedFinals(Speedup):
    """What the finals confirmed of this trial: t_baseline / t_variant, over all problems.

    An end of the interval is null where the processes were too few to bound it.
    """

    difference: float = Field(description="the search estimate over `mid`, less 1: how much too good it was")
    artifact_digest: str = Field(
        description="of the binary that raced; another than in `identity` was built differently"
    )
    tied: tuple[int, ...] = Field(description="trials that tie for the lead, this one among them")
    crowned: bool = Field(description="faster than every other finalist and the baseline, beyond the tie band")
    tie: float = Field(description="the tie band: ratios within 1 + tie are ties")
    other_cache: OtherCache | None = Field(default=None, description="the same where the caches hold something else")
    processes: int
    blocks: int = Field(description="of one process")
    host: str
    finished_at: datetime

    @classmethod
    def of(cls, best: Best) -> ExportedFinals | None:
        """None where no finals had the trial in them."""
        found, finals, difference = best.confirmed, best.finals, best.entry.difference
        if found is None or finals is None or difference is None or best.raced is None:
            return None
        other = best.proof.other_cache if best.proof is not None else None
        own = {
            "difference": difference,
            "artifact_digest": best.raced,
            "crowned": best.entry.crowned,
            "other_cache": other,
        }
        return cls.taken_from(finals, **dict(found), **own)


class ProblemTiming(Model):
    """One problem's figures."""

    problem: Problem
    median_us: float = Field(description="microseconds of one forward of the variant")
    speedup: Speedup
    blocks: int = Field(description="interleaved blocks in which variant and baseline ran side by side")


class ExportedMeasurement(Model):
    """The latency, over all problems and for each.

    Over all: geometric means, or the worst problem's where the objective is the largest log-ratio.
    """

    median_us: float
    speedup: Speedup
    objective: float = Field(description="ln(t_variant / t_baseline): mean, or largest, over the problems")
    cache: Literal["cold", "warm"] = Field(description="state of the L2 cache before each forward")
    timings: tuple[ProblemTiming, ...]


class BestConfiguration(Model):
    """best.json. Its JSON schema is `BestConfiguration.model_json_schema()`; a number that is not finite is null."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    schema_version: Literal[3] = 3
    generator: str = Field(description="program and version that wrote this")
    study: str
    trial: int = Field(description="trial number in the study")
    family: str
    backend: str
    impl: str
    parameters: dict[str, Value] = Field(description="the point of the search space: IMPL and every parameter")
    problems: tuple[ExportedProblem, ...]
    device: ExportedDevice
    toolchain: ExportedToolchain
    identity: ExportedIdentity
    gate: GateSummary
    confirmed: ExportedFinals | None = Field(default=None, description="null where there were no finals")
    measurement: ExportedMeasurement = Field(description="the search estimate: biased upward")
    baseline: tuple[BackendTiming, ...] = Field(description="the fastest of the baselines that took each problem")
    recorded_at: datetime
    exported_at: datetime
    note: str = BIASED
    table: DispatchTable | None = Field(
        default=None,
        description="which variant serves which problem, over all studies of the export; null without finals",
    )
    table_digest: str | None = Field(default=None, description="SHA-256 of the table's canonical JSON")
    digest: str | None = Field(default=None, description="SHA-256 of the canonical JSON of all other fields")


class Format(NamedTuple):
    """A format of export: what the file or folder is called unless the user says, and which of the two it is."""

    filename: str
    render: Callable[[Best, StudyRecord, DispatchTable | None], str] | None = None
    """The text of a file; the table says what serves which problem. Raises InputError where the trial does not carry
    its proof."""
    folder: Callable[[DispatchTable | None, StudyRecord, Path], str] | None = None
    """Writes a folder, and says in a line how it is used."""


def configuration(best: Best, study: StudyRecord, table: DispatchTable | None = None) -> BestConfiguration:
    """The document about a study's best trial, with the table of this study and others.

    Raises InputError where the trial does not carry its proof.
    """
    outcome = best.outcome
    artifact, gate, measurement = outcome.artifact, best.gate, outcome.measurement
    if artifact is None or gate is None or not gate.passed or measurement is None or best.record.revoked_at is not None:
        raise InputError(
            f"trial {best.record.number} of {study.name} is no measured pass of the gate: export a standing one"
        )
    confirmed = ExportedFinals.of(best)
    timings = [
        ProblemTiming.taken_from(
            each,
            median_us=statistics.median(each.variant_us),
            speedup=each.log_ratio.speedup,
            blocks=len(each.variant_us),
        )
        for each in measurement.timings
    ]
    return BestConfiguration.taken_from(
        outcome.variant,
        generator=f"autotuner {version_of('kernel-autotuner')}",
        study=study.name,
        trial=best.record.number,
        parameters=outcome.variant.point,
        problems=[ExportedProblem.taken_from(problem, problem=problem) for problem in study.problems],
        device=ExportedDevice.taken_from(study.device),
        toolchain=ExportedToolchain.taken_from(artifact, environment=best.record.session.environment),
        identity=ExportedIdentity.taken_from(
            artifact,
            variant_digest=artifact.variant.digest,
            artifact_digest=artifact.digest,
            extension_name=artifact.name,
        ),
        gate=GateSummary.of(gate),
        confirmed=confirmed,
        measurement=ExportedMeasurement.taken_from(
            measurement, median_us=best.entry.median_us, speedup=best.entry.speedup, timings=timings
        ),
        baseline=[
            BackendTiming.taken_from(each, backend=each.baseline, median_us=statistics.median(each.baseline_us))
            for each in measurement.timings
        ],
        recorded_at=best.record.recorded_at,
        exported_at=datetime.now(UTC),
        note=BIASED if confirmed is None else CONFIRMED_NOTE,
        table=table,
        table_digest=None if table is None else digest_of_table(table),
    )


def export_json(best: Best, study: StudyRecord, table: DispatchTable | None = None) -> str:
    """best.json as text: a `BestConfiguration`. Raises InputError where the trial does not carry its proof."""
    # Of the text as it is read: its numbers have gone through JSON.
    document = json.loads(configuration(best, study, table).model_dump_json(exclude={"digest"}))
    return json.dumps({**document, "digest": digest_of(document)}, indent=2, ensure_ascii=False) + "\n"


def earlier_of(path: Path) -> Earlier:
    """The variant of an export that lies in a file. Raises InputError, one line, for what is none or is damaged."""
    try:
        text = read_regular(path, LARGEST_BYTES)
        found, document = BestConfiguration.model_validate_json(text), json.loads(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {why(error)}") from None
    except ValidationError as error:
        said = " ".join(explanation(error, BestConfiguration).split())
        raise InputError(f"{path}: no export: {said}; write one with `autotuner export`") from None
    if document.pop("digest", None) != digest_of(document):
        raise InputError(f"{path}: damaged: it is not the one of its digest; take another copy, or export it again")
    point = {**found.parameters, "IMPL": found.impl}
    return Earlier(
        trial=found.trial,
        exported_at=found.exported_at,
        device=found.device.name,
        problems=tuple(each.problem for each in found.problems),
        variant=Variant.of(found.family, found.backend, point),
        artifact=found.identity.artifact_digest,
        library_sha256=found.identity.library_sha256,
        baselines=tuple(each.backend for each in found.baseline),
        confirmed=tuple(_confirmed_on(found, each.problem) for each in found.problems),
    )


def _confirmed_on(found: BestConfiguration, problem: Problem) -> Speedup | None:
    """What finals say of the exported binary on a problem."""
    mine, all_of_it = found.identity.artifact_digest, found.confirmed
    if all_of_it is None or all_of_it.artifact_digest != mine:
        return None
    if len(found.problems) == 1:
        return Speedup(low=all_of_it.low, mid=all_of_it.mid, high=all_of_it.high, level=all_of_it.level)
    entries = found.table.entries if found.table is not None else ()
    return next((each.speedup for each in entries if each.problem == problem and each.use == mine), None)


FORMATS: Plugs[Format] = Plugs(
    "autotuner.formats",
    "export format",
    {
        "json": Format("best.json", export_json),
        "c": Format("tuned", folder=of_study("the C file", write_c_folder)),
        "package": Format("tuned", folder=of_study("a package", write_folder)),
    },
)
"""The formats by the name a user gives; also those of other packages (docs/reference/own-format.md)."""


class Exported(NamedTuple):
    """What an export says, and what was written of it."""

    best: Best
    table: DispatchTable | None
    without: str | None
    """Why there is no table, where it was wanted."""
    said: str
    """The text of a file, or how a folder is used."""


def export(
    store: Store,
    study: str,
    tabled: Sequence[str],
    target: Path | None,
    form: Format = FORMATS["json"],
    loss: float = LOSS,
    estimates: bool = False,
    required: bool = False,
) -> Exported:
    """Writes the best configuration of a study with the table over the studies `tabled`. Without a target the text is
    made, and nothing written. A file does without its table where that cannot be made, unless it is `required`.

    Raises InputError where there is no best one, and where it cannot be written.
    """
    best = standings.required_best(store, study)
    table, without = None, None
    try:
        table = table_of(store, tabled, loss, estimates) if tabled else None
    except InputError as error:
        if required or isinstance(error, StoreError) or form.folder is not None:
            raise
        without = str(error)
    record = queries.study(store, study)
    if form.folder is not None and target is not None:
        return Exported(best, table, without, form.folder(table, record, target))
    if form.render is None:
        raise InputError("the format is a folder: name one, as --out FOLDER")
    text = form.render(best, record, table)
    if target is not None:
        write_atomically(target, text)
    return Exported(best, table, without, text)
