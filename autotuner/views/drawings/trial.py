"""One variant: what it achieved or why it was rejected, its parameters, the gate case by case, its raw blocks, and
the commands that build, gate and time it again."""

import math
from datetime import datetime
from typing import Any

from markupsafe import Markup

from autotuner.store import TrialRecord, queries
from autotuner.tuning.finals import standings
from autotuner.values.outcome import Outcome, Timing
from autotuner.values.profile import Profile
from autotuner.values.ratio import quoted
from autotuner.views.drawings.sections import Figure, command, in_words
from autotuner.views.drawings.svg import Plot, around, number as figure_of
from autotuner.views.gate_tables import cases_table, checks_table
from autotuner.views.profile_table import lines, profile_table
from autotuner.views.snapshot import Snapshot
from autotuner.views.table import Table
from autotuner.views.trials_table import blocks_table
from autotuner.views.words import kind_of, micros

WIDTH = 860


def trial_page(snapshot: Snapshot, number: int, store: str) -> dict[str, Any]:
    """What the page shows, by its names in the template. `store`: how the command line names it. Raises StoreError: no
    such trial."""
    record = queries.trial(snapshot.store, snapshot.name, number)
    outcome = standings.proven(snapshot.store, record)
    profiled = queries.profile(snapshot.store, snapshot.name, number)
    timings = () if outcome.measurement is None else outcome.measurement.timings
    return {
        "number": number,
        "verdict": "revoked" if record.revoked_at is not None else outcome.verdict.value.replace("_", " "),
        "kind": kind_of(outcome.verdict, record.revoked_at is not None),
        "words": in_words(snapshot, number),
        "facts": _facts(snapshot, record, outcome),
        "parameters": _parameters(snapshot, outcome),
        "built": _built(outcome),
        "gate": None if outcome.gate is None else checks_table(outcome.gate.checks, snapshot.op),
        "cases": cases_table(() if outcome.gate is None else outcome.gate.checks),
        "races": tuple(_race(f"race-{number}-{place}", timing) for place, timing in enumerate(timings)),
        "counters": None if profiled is None else counters(f"counters-{number}", profiled),
        "commands": _commands(snapshot, number, outcome, record.revoked_at is not None, store),
    }


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


# What was counted: both sides under the device's roofs --------------------------------------------------------------

DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
LINE = 64
"""Bytes that a miss of a CPU's last-level cache moves."""


def counters(id: str, found: Profile) -> Figure:
    """The roofline of the device with both sides in it, where it can be drawn; its table has all that was counted."""
    drawn, said = _roofline(found), lines(found)
    if drawn is not None:
        said.append("Drawn: the problem's operations over the bytes of memory that were counted, and over that time.")
    return Figure(id, "What the hardware does", " ".join(said), drawn, profile_table(found), open=True)


def _roofline(found: Profile) -> Markup | None:
    sides = [
        (look, name, found.problem.flops / moved, found.problem.flops / us * 1e6)
        for look, name, counted, us in (
            ("baseline", found.baseline, found.beside, found.us[1]),
            ("measured", "the variant", found.variant, found.us[0]),
        )
        if us is not None and (moved := _bytes(counted.counters))
    ]
    if found.ceilings is None or not sides:
        return None
    peak, per_byte = found.ceilings.flops * found.problem.TIMES_AS_FAST, found.ceilings.bytes
    ridge = peak / per_byte
    xs, ys = [ridge, *(each[2] for each in sides)], [peak, *(each[3] for each in sides)]
    x = math.floor(math.log10(min(xs) / 2)), math.ceil(math.log10(max(xs) * 2))
    y = math.floor(math.log10(min(ys) / 2)), math.ceil(math.log10(max(ys) * 1.2))
    plot = Plot.of((WIDTH, 260), f"Roofline at {found.problem}", x, y)
    _decades(plot)
    left, right = 10 ** x[0], 10 ** x[1]
    start = max(left, 10 ** y[0] / per_byte)
    for a, b in ((start, ridge), (ridge, right)):
        ends = [(plot.x(math.log10(at)), plot.y(math.log10(min(peak, at * per_byte)))) for at in (a, b)]
        plot.svg.line(*ends[0], *ends[1])
    for look, name, intensity, rate in sides:
        title = f"{name}: {intensity:.3g} operations a byte, {rate:.3g} a second, {rate / peak:.0%} of the peak"
        at = {"cx": plot.x(math.log10(intensity)), "cy": plot.y(math.log10(rate))}
        plot.svg.add("circle", **at, r=5, class_=f"dot arm-{look}", title=title)
        plot.svg.text(at["cx"] + 9, at["cy"] + 4, name)
    return plot.svg.render()


def _bytes(counters: dict[str, float]) -> float:
    counted = all(name in counters for name in DRAM)
    return sum(counters[name] for name in DRAM) if counted else LINE * counters.get("cache-misses", 0.0)


def _decades(plot: Plot) -> None:
    """Both axes with a figure a decade; the scales are of logarithms."""
    svg, x, y = plot.svg, plot.x, plot.y
    for tick in range(int(y.low), int(y.high) + 1):
        svg.line(x.start, y(tick), x.end, y(tick), "grid")
        svg.text(x.start - 8, y(tick) + 4, f"1e{tick}", "tick", "end")
    for tick in range(int(x.low), int(x.high) + 1):
        svg.line(x(tick), y.start, x(tick), y.start + 4)
        svg.text(x(tick), y.start + 18, figure_of(10.0**tick), "tick", "middle")
    svg.text((x.start + x.end) / 2, svg.height - 4, "operations a byte", "name", "middle")
    svg.text(x.start, 10, "operations a second", "name")
