"""One variant: what it achieved or why it was rejected, its parameters, the gate case by case, its raw blocks, and
the commands that build, gate and time it again."""

from datetime import datetime
from typing import NamedTuple

from autotuner.store import TrialRecord, queries
from autotuner.tuning.finals import standings
from autotuner.values.outcome import Outcome, Timing
from autotuner.values.ratio import quoted
from autotuner.views.drawings import profile
from autotuner.views.drawings.answer import command
from autotuner.views.drawings.figure import Figure
from autotuner.views.drawings.rejects import words
from autotuner.views.drawings.svg import Plot, around
from autotuner.views.gate_tables import cases_table, checks_table
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Table
from autotuner.views.trials_table import blocks_table
from autotuner.views.words import kind_of, micros

WIDTH = 860


class TrialPage(NamedTuple):
    """The page."""

    number: int
    verdict: str
    kind: str
    words: tuple[str, ...]
    facts: Table
    parameters: Table
    built: Table
    gate: Table | None
    cases: Table
    races: tuple[Figure, ...]
    counters: Figure | None
    commands: tuple[tuple[str, str], ...]


def trial_page(snapshot: Snapshot, number: int, store: str) -> TrialPage:
    """`store`: how the command line names it. Raises StoreError: no such trial."""
    record = queries.trial(snapshot.store, snapshot.name, number)
    outcome = standings.proven(snapshot.store, record)
    profiled = queries.profile(snapshot.store, snapshot.name, number)
    timings = () if outcome.measurement is None else outcome.measurement.timings
    return TrialPage(
        number=number,
        verdict="revoked" if record.revoked_at is not None else outcome.verdict.value.replace("_", " "),
        kind=kind_of(outcome.verdict, record.revoked_at is not None),
        words=words(snapshot, number),
        facts=_facts(snapshot, record, outcome),
        parameters=_parameters(snapshot, outcome),
        built=_built(outcome),
        gate=None if outcome.gate is None else checks_table(outcome.gate.checks, snapshot.op),
        cases=cases_table(() if outcome.gate is None else outcome.gate.checks),
        races=tuple(_race(f"race-{number}-{place}", timing) for place, timing in enumerate(timings)),
        counters=None if profiled is None else profile.figure(f"counters-{number}", profiled),
        commands=_commands(snapshot, number, outcome, record.revoked_at is not None, store),
    )


def _parameters(snapshot: Snapshot, outcome: Outcome) -> Table:
    default, best = {} if snapshot.file is None else snapshot.file.default, snapshot.best
    of_best = {} if best is None else best.outcome.variant.point
    rows = tuple(
        (name, str(value), str(default.get(name, "-")), str(of_best.get(name, "-")))
        for name, value in outcome.variant.point.items()
    )
    return Table.plain(("parameter", "here", "default point", "trial to use"), rows, frozenset({1, 2, 3}))


def _built(outcome: Outcome) -> Table:
    artifact = outcome.artifact
    rows = [(f"seconds: {stage}", f"{seconds:.2f}") for stage, seconds in outcome.seconds.items()]
    if artifact is not None:
        rows += [(name.replace("_", " "), f"{value:,}") for name, value in artifact.resources.items()]
        rows += [
            ("build id", artifact.digest),
            ("extension", artifact.name),
            ("program hash", artifact.program_hash),
            ("compiler", artifact.compiler),
            ("architecture", artifact.architecture),
            ("flags", " ".join(artifact.flags)),
        ]
    if outcome.original is not None:
        rows.append(("measured as", outcome.original))
    return Table.plain(("what", "value"), tuple(rows))


def _race(id: str, timing: Timing) -> Figure:
    times = [*timing.variant_us, *timing.baseline_us, *timing.incumbent_us]
    count = len(timing.variant_us)
    plot = Plot.of((WIDTH, 240), f"Raw blocks on {timing.problem}", (0, max(2, count + 1)), around(times))
    plot.axes("block", "us of one forward")
    arms = (("baseline", timing.baseline_us), ("incumbent", timing.incumbent_us), ("measured", timing.variant_us))
    for look, values in arms:
        for block, us in enumerate(values, start=1):
            name = {"measured": "variant", "baseline": timing.baseline}.get(look, look)
            title = f"block {block}, {name}: {micros(us)} us"
            plot.svg.add("circle", cx=plot.x(block), cy=plot.y(us), r=3, class_=f"dot arm-{look}", title=title)
    note = (
        f"Blue: the variant. Black: {timing.baseline}, in the same blocks. Orange: the best until then, where it raced."
    )
    return Figure(id, f"Raw blocks: {timing.problem}", note, plot.svg.render(), blocks_table(timing))


def _commands(
    snapshot: Snapshot, number: int, outcome: Outcome, revoked: bool, store: str
) -> tuple[tuple[str, str], ...]:
    point, name = str(outcome.variant), snapshot.name
    found = [
        ("Build it and put it through the gate", command("gate", str(number), "--study", name, store=store)),
        ("What the gate found, for programs", command("show", str(number), name, "--json", store=store)),
    ]
    if snapshot.file is not None:
        by_name = command("gate", point, "--space", snapshot.file.path, store=store)
        found.insert(1, ("The same by its parameters", by_name))
    if outcome.verdict.has_latency and not revoked:
        again = command("finals", snapshot.name, "--trial", str(number), store=store)
        counted = command("profile", str(number), snapshot.name, store=store)
        found[1:1] = [("Time it again, beside the baseline", again), ("See what holds it back", counted)]
    if snapshot.best is not None and snapshot.best.entry.number == number:
        found.append(("Carry it away with its proof", command("export", snapshot.name, store=store)))
    return tuple(found)


def _facts(snapshot: Snapshot, record: TrialRecord, outcome: Outcome) -> Table:
    measurement = outcome.measurement if outcome.verdict.has_latency else None
    rows: list[tuple[str | datetime, ...]] = [
        ("verdict", "revoked" if record.revoked_at is not None else outcome.verdict.words),
        ("speedup (search)", "-" if measurement is None else quoted(measurement.speedup, False)),
        ("recorded", record.recorded_at),
        ("device", snapshot.record.device.name),
        ("host", record.session.host),
    ]
    return Table.plain(("what", "value"), tuple(rows))
