"""Judges IMPL = wgmma on this GPU, races it against cuDNN and flash attention, and keeps the figures.

    python benchmarks/wgmma_attention.py STEP ... [--json docs/results/wgmma_attention.json] [--problems A,B] [--keep N]

Steps, each of which adds its part to the JSON file:
  judge   the points of POINTS on every problem of PROBLEMS: the whole gate, and the timing of the search
  races   the fastest --keep of each problem with an exact softmax, and the same with a speculative one, against cuDNN
          and against flash attention, cold and warm, interleaved; and in bfloat16
  back    the fastest of each kind of softmax on inputs that make a speculative one go back, and what cuDNN takes there
  stress  1,000 launches back to back at random points of the space on each problem: all must give the same bits
Needs a GPU of compute capability 9.0 that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Literal

from autotuner.evaluate import Built, JudgeJob, RaceJob
from autotuner.executors import Executor
from autotuner.outcome import Artifact, Heat, Outcome
from autotuner.problem import Problem
from autotuner.session import Session, fresh_seeds, load_space
from autotuner.terms import Terms
from autotuner.variant import Value
from autotuner.verdict import Fault

Point = dict[str, Value]
Figures = dict[str, Any]


def problem_of(batch: int, heads: int, length: int, head_dim: int, causal: bool, dtype: str = "float16") -> Problem:
    """A problem with as many keys as queries."""
    fields = {"batch": batch, "heads": heads, "seq_q": length, "seq_k": length, "head_dim": head_dim}
    return Problem.model_validate({**fields, "dtype": dtype, "causal": causal})


PROBLEMS = {
    "A": problem_of(1, 32, 2048, 128, causal=False),
    "Ac": problem_of(1, 32, 2048, 128, causal=True),
    "B": problem_of(2, 8, 2048, 64, causal=False),
    "Bc": problem_of(2, 8, 2048, 64, causal=True),
    "C": problem_of(4, 16, 1024, 64, causal=False),
    "Cc": problem_of(4, 16, 1024, 64, causal=True),
    "E": problem_of(1, 16, 768, 128, causal=False),
    "E7": problem_of(1, 16, 777, 128, causal=False),
    "Fc": problem_of(8, 8, 256, 128, causal=True),
    "G": problem_of(1, 8, 512, 128, causal=False),
    "H": problem_of(4, 32, 4096, 128, causal=False),
    "Hc": problem_of(4, 32, 4096, 128, causal=True),
}

COMMON: Point = {
    "IMPL": "wgmma",
    "CONSUMERS": 2,
    "BLOCK_N": 128,
    "STAGES": 2,
    "BLOCKS_SM": 1,
    "SCHEDULE": "dynamic",
    "OVERLAP": 1,
    "PING_PONG": 1,
    "Q_FROM": "shared",
    "Q_BUFFERS": 2,
    "EARLY_START": 0,
    "O_STAGING": "query",
    "SOFTMAX": "spec",
}
EARLY: Point = {"EARLY_START": 1, "SCHEDULE": "static"}
FOUR: Point = {"CONSUMERS": 4, "BLOCK_N": 64, "STAGES": 3}
ONE: Point = {"CONSUMERS": 1, "PING_PONG": 0, "BLOCKS_SM": 2}
PLAIN: Point = {"SCHEDULE": "tile", "Q_BUFFERS": 1, "O_STAGING": "own"}
SHARED: Point = {"Q_BUFFERS": 1, "O_STAGING": "query"}
CHANGES: dict[str, Point] = {
    "common": {},
    "early": EARLY,
    "early_no_turns": {**EARLY, "PING_PONG": 0},
    "early_dynamic": {"EARLY_START": 1},
    "early_registers": {**EARLY, "Q_FROM": "registers"},
    "early_144": {**EARLY, "BLOCK_N": 144},
    "early_112": {**EARLY, "BLOCK_N": 112},
    "own": {"Q_BUFFERS": 1, "O_STAGING": "own"},
    "static": {"SCHEDULE": "static"},
    "no_turns": {"PING_PONG": 0},
    "no_overlap": {"OVERLAP": 0},
    "plain": PLAIN,
    "plain_112": {**PLAIN, "BLOCK_N": 112},
    "four": FOUR,
    "four_early": {**FOUR, **EARLY},
    "four_deep": {**FOUR, "STAGES": 4},
    "four_static": {**FOUR, "SCHEDULE": "static"},
    "four_plain": {**FOUR, **PLAIN},
    "three": {"CONSUMERS": 3, "BLOCK_N": 112, "SCHEDULE": "static"},
    "one": ONE,
    "one_early": {**ONE, **EARLY},
    "one_early_registers": {**ONE, **EARLY, "Q_FROM": "registers"},
    "one_registers": {**ONE, "Q_FROM": "registers"},
    "one_registers_static": {**ONE, "Q_FROM": "registers", "SCHEDULE": "static"},
    "one_64": {**ONE, **PLAIN, "BLOCK_N": 64},
    "one_64_early": {**ONE, **EARLY, "BLOCK_N": 64},
    "one_64_static": {**ONE, **SHARED, "SCHEDULE": "static", "BLOCK_N": 64},
    "one_64_registers": {**ONE, **PLAIN, "BLOCK_N": 64, "Q_FROM": "registers"},
    "one_80": {**ONE, **PLAIN, **SHARED, "BLOCK_N": 80},
    "one_112": {**ONE, **PLAIN, **SHARED, "BLOCK_N": 112, "STAGES": 1},
    "one_128": {**ONE, **PLAIN, **SHARED, "STAGES": 1},
}
"""What sets a point apart from COMMON. Those that are no points of the space on a problem are left out there."""

SOFTMAXES = ("spec", "spec_rounded", "exact")
BLOCKS = 24
STRESS_LAUNCHES = 1000
COMPARED = 50
"""Launches without a pause, then the last output is compared and poisoned."""


class Room:
    """The space on one problem, and the terms to judge there."""

    def __init__(self, problem: Problem) -> None:
        file = load_space("sdpa_wgmma")
        self.session = Session(file.model_copy(update={"problems": (problem,)}))
        self.problem = problem

    def points(self, wanted: str = "") -> dict[str, int]:
        """The points of CHANGES with each softmax that are valid here and whose label has this pattern."""
        found: dict[str, int | None] = {}
        for (name, change), how in product(CHANGES.items(), SOFTMAXES):
            if re.search(wanted, f"{name}/{how}"):
                found[f"{name}/{how}"] = self.session.space.index_of({**COMMON, **change, "SOFTMAX": how})
        return {label: index for label, index in found.items() if index is not None}

    def terms(self, backend: str = "cudnn", cache: Literal["cold", "warm"] = "cold") -> Terms:
        return Terms(problems=(self.problem,), cache=cache, seeds=fresh_seeds(), baselines=(backend,), max_blocks=24)


def answer(executor: Executor, job: JudgeJob | RaceJob) -> object:
    executor.submit(job)
    while (done := executor.wait(60)) is None:
        pass
    return done[1]


def spread(us: tuple[float, ...]) -> Figures:
    """Microseconds: the median, the quartiles, the extremes."""
    low, _, high = quantiles(us, n=4)
    return {"median": median(us), "quartiles": [low, high], "least": min(us), "most": max(us)}


def judged(outcome: Outcome) -> Figures:
    """What became of a variant."""
    figures: Figures = {"verdict": str(outcome.verdict)}
    if outcome.fault is not None:
        figures["fault"] = f"{outcome.fault.code} {outcome.fault.case or ''}: {outcome.fault.detail}"
    if outcome.gate is not None:
        cases = [case for check in outcome.gate.checks for case in check.cases]
        figures["error_of_tolerance"] = max((_share(case.errors) for case in cases), default=None)
    if outcome.measurement is not None:
        timing = outcome.measurement.timings[0]
        figures |= {"us": spread(timing.variant_us), "baseline_us": spread(timing.baseline_us)}
        figures["ratio"] = 1 / median(b / v for v, b in zip(timing.variant_us, timing.baseline_us, strict=True))
    return figures


def _share(errors: Any) -> float:
    """The largest error of a case in units of its tolerance."""
    pairs = ("max_abs", "row_rel", "head_rel")
    return max(getattr(errors, name) / getattr(errors, f"{name}_tol") for name in pairs)


def judge_all(rooms: dict[str, Room], wanted: str) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    with closing(next(iter(rooms.values())).session.executor()) as executor:
        for name, room in rooms.items():
            started = time.monotonic()
            points, terms = room.points(wanted), room.terms()
            made = dict(zip(points, room.session.build_all(list(points.values())), strict=True))
            rows = found[name] = {"problem": str(room.problem), "points": {}}
            for label, built in made.items():
                rows["points"][label] = row = {"point": room.session.space.point(points[label])}
                if isinstance(built, Fault):
                    row |= {"verdict": str(built.verdict), "fault": f"{built.code}: {built.detail}"}
                    continue
                row["resources"] = built.resources
                whole = Built(artifact=built, seconds=0.0)
                outcome = answer(executor, JudgeJob(built=whole, terms=terms, soak="never"))
                row |= judged(outcome) if isinstance(outcome, Outcome) else {"fault": str(outcome)}
                say(name, label, row)
            print(f"{name}: {len(made)} points in {time.monotonic() - started:.0f} s", flush=True)
    return found


def say(name: str, label: str, row: Figures) -> None:
    if "us" in row:
        numbers = f"{row['us']['median']:8.2f} us  {row['ratio']:.3f} of {row['baseline_us']['median']:.2f}"
        print(f"{name:3} {label:34} {numbers}  error {row['error_of_tolerance']:.2f}", flush=True)
    else:
        print(f"{name:3} {label:34} {row.get('verdict')} {row.get('fault')}", flush=True)


# Races ----------------------------------------------------------------------------------------------------------------


def fastest(rows: Figures, keep: int) -> list[str]:
    """The fastest points of each kind of softmax."""
    timed = {label: row for label, row in rows["points"].items() if "us" in row}
    order = sorted(timed, key=lambda label: float(timed[label]["ratio"]))
    return [label for how in SOFTMAXES for label in [each for each in order if each.endswith(f"/{how}")][:keep]]


def race(executor: Executor, room: Room, artifacts: list[Artifact], backend: str, cache: Any) -> list[Figures]:
    """Each against a baseline, all interleaved."""
    heat = answer(executor, RaceJob(artifacts=tuple(artifacts), terms=room.terms(backend, cache), blocks=BLOCKS))
    if not isinstance(heat, Heat):
        return [{"fault": str(heat)} for _ in artifacts]
    baseline = heat.baseline_us[0]
    figures: list[Figures] = []
    for place, us in enumerate(heat.us):
        if place in heat.faults:
            figures.append({"fault": str(heat.faults[place])})
            continue
        ratios = [variant / base for variant, base in zip(us[0], baseline, strict=True)]
        figures.append({"us": spread(us[0]), "baseline_us": spread(baseline), "ratio": spread(tuple(ratios))})
    return figures


def race_all(rooms: dict[str, Room], document: Figures, keep: int) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    with closing(next(iter(rooms.values())).session.executor()) as executor:
        for name, room in rooms.items():
            found[name] = {"problem": str(room.problem), "races": {}}
            labels = fastest(document["judge"][name], keep)
            points = room.points()
            other = Room(room.problem.model_copy(update={"dtype": "bfloat16"}))
            for dtype, here in (("float16", room), ("bfloat16", other)):
                built = here.session.build_all([points[label] for label in labels])
                artifacts = [each for each in built if isinstance(each, Artifact)]
                assert len(artifacts) == len(built), built
                for backend, cache in (("cudnn", "cold"), ("cudnn", "warm"), ("flash", "cold")):
                    if dtype == "bfloat16" and (backend, cache) != ("cudnn", "cold"):
                        continue
                    figures = race(executor, here, artifacts, backend, cache)
                    for label, row in zip(labels, figures, strict=True):
                        found[name]["races"].setdefault(label, {})[f"{dtype} {backend} {cache}"] = row
                        if "us" in row:
                            us, ratio = row["us"]["median"], row["ratio"]["median"]
                            print(
                                f"{name:3} {label:34} {dtype} {us:8.2f} us, {ratio:.3f} of {backend} {cache}",
                                flush=True,
                            )
                        else:
                            print(f"{name:3} {label:34} {dtype:8} {row}", flush=True)
    return found


# The way back ---------------------------------------------------------------------------------------------------------


def replay_us(forward: Callable[[], object], calls: int) -> Callable[[], float]:
    """A timer of a captured forward: microseconds of one of `calls` in a replay."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        forward()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                forward()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed() -> float:
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        return 1000 * first.elapsed_time(last) / calls

    return timed


def forwards(room: Room, labels: list[str], tensors: Any) -> dict[str, Callable[[], object]]:
    """What each point does with these inputs, and cuDNN."""
    import torch

    from autotuner.attention import sdpa
    from autotuner.extension import Extension

    q, k, v = tensors
    o, words = torch.empty_like(q), torch.empty(16, device="cuda", dtype=torch.int32)
    inputs = (q.data_ptr(), k.data_ptr(), v.data_ptr())
    points = room.points()

    def launch(extension: Extension) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        assert extension.run(room.problem, inputs, o.data_ptr(), words.data_ptr(), 64, stream) == 0

    found: dict[str, Callable[[], object]] = {"cudnn": partial(sdpa(room.problem, "cudnn"), q, k, v)}
    for label, built in zip(labels, room.session.build_all([points[label] for label in labels]), strict=True):
        assert isinstance(built, Artifact), built
        found[label] = partial(launch, Extension(built))
    return found


def back_all(rooms: dict[str, Room], document: Figures) -> dict[str, Figures]:
    """Warm replays of about a millisecond, interleaved in random order."""
    from autotuner.attention import inputs

    draw, found = random.Random(7), {}
    for name, room in rooms.items():
        found[name] = {"problem": str(room.problem), "inputs": {}}
        labels = fastest(document["judge"][name], 1)
        for distribution in ("randn", "large", "slopes", "sink"):
            tensors = [tensor.cuda() for tensor in inputs(room.problem, distribution, 3)]
            calls = max(2, int(300e9 / room.problem.flops))
            timers = {label: replay_us(each, calls) for label, each in forwards(room, labels, tensors).items()}
            taken: dict[str, list[float]] = {label: [] for label in timers}
            for _ in range(15):
                for label in draw.sample(list(timers), len(timers)):
                    taken[label].append(timers[label]())
            rows = found[name]["inputs"][distribution] = {label: spread(tuple(us)) for label, us in taken.items()}
            print(name, distribution, {label: round(row["median"], 1) for label, row in rows.items()}, flush=True)
    return found


# Stress ---------------------------------------------------------------------------------------------------------------


def stress_all(rooms: dict[str, Room], points: int) -> dict[str, Figures]:
    """Launches without a pause between them; the first output is the gate's affair, the others must equal it."""
    import torch

    from autotuner.attention import DTYPES
    from autotuner.extension import Extension

    draw, found = random.Random(25), {}
    for name, room in rooms.items():
        p, space = room.problem, room.session.space
        chosen = [draw.randrange(len(space)) for _ in range(points)]
        shape = (p.batch, p.heads, p.seq_q, p.head_dim)
        q, k, v = (torch.randn(shape, device="cuda", dtype=DTYPES[p.dtype]) for _ in range(3))
        sdpa = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=p.causal)
        words = torch.full((16,), 0x7FFF7FFF, device="cuda", dtype=torch.int32)
        other, refused, far = 0, 0, 0.0
        launches = min(STRESS_LAUNCHES, COMPARED * (1 + int(20 * 2e11 / p.flops)))
        for built in room.session.build_all(chosen):
            if isinstance(built, Fault):
                refused += 1
                continue
            extension, first, last = Extension(built), torch.empty_like(q), torch.empty_like(q)
            stream = torch.cuda.current_stream().cuda_stream
            inputs = (q.data_ptr(), k.data_ptr(), v.data_ptr())
            for number in range(launches):
                o = first if number == 0 else last
                status = extension.run(p, inputs, o.data_ptr(), words.data_ptr(), 64, stream)
                assert status == 0, status
                if number % COMPARED == COMPARED - 1:
                    other += int(not torch.equal(first, last))
                    last.fill_(float("nan"))
            far = max(far, float((first - sdpa).abs().max()))
        found[name] = {"points": points, "refused": refused, "launches": launches, "differ": other, "from_sdpa": far}
        print(f"{name}: {found[name]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("steps", nargs="+", choices=["judge", "races", "back", "stress"])
    parser.add_argument("--json", type=Path, default=Path("docs/results/wgmma_attention.json"))
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--labels", default="", help="a pattern of the points to judge")
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--points", type=int, default=50, help="random points of the stress on each problem")
    options = parser.parse_args()
    document = json.loads(options.json.read_text()) if options.json.exists() else {"commands": []}
    rooms = {name: Room(PROBLEMS[name]) for name in options.problems.split(",")}
    session = next(iter(rooms.values())).session
    document |= {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": session.device.name,
        "environment": session.device.environment,
        "compiler": session.toolchain.version,
    }
    document["commands"].append(f"python {shlex.join(sys.argv)}")
    if "judge" in options.steps:
        document["judge"] = {**document.get("judge", {}), **judge_all(rooms, options.labels)}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if "races" in options.steps:
        document["races"] = {**document.get("races", {}), **race_all(rooms, document, options.keep)}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if "back" in options.steps:
        document["back"] = {**document.get("back", {}), **back_all(rooms, document)}
    if "stress" in options.steps:
        document["stress"] = {**document.get("stress", {}), **stress_all(rooms, options.points)}
    options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
