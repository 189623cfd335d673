"""Puts IMPL = wgmma to harder tests on this GPU and adds the figures to those of wgmma.py.

    python -m benchmarks.attention.wgmma_trials STEP ... [--json docs/results/wgmma_attention.json]
        [--problems A,B] [--points N]

Steps:
  back     the fastest of each kind of softmax on inputs that make a speculative one go back, and what cuDNN takes there
  clocks   clock, power and time of cuDNN and of the fastest at (1,32,2048,128): without a pause and in bursts, on
           random numbers and on zeros
  mutants  what the gate says of the mutants of tests/mutants/warpgroups.toml
  stress   1,000 launches back to back at N random points of the space on each problem: all must give the same bits
Needs what `judge` of wgmma.py has kept, and a GPU that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pynvml
import torch

from autotuner.forge.build import build
from autotuner.forge.loaded_variant import LoadedVariant
from autotuner.ops.sdpa.tensors import inputs, sdpa
from autotuner.ops.tensors import DTYPES
from autotuner.run.jobs import Built, JudgeJob
from autotuner.values.outcome import Artifact, Outcome
from autotuner.values.verdict import Fault
from benchmarks.attention.wgmma import PROBLEMS, Figures, Room, answer, fastest, judged, opened, spread
from tests.mutants.warpgroups import Mutant, mutants

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Forward = Callable[[], object]

LAUNCHES = 1000
COMPARED = 50
"""Launches without a pause; then the last output is compared and poisoned."""

LONGEST_S = 3.0
"""Seconds of launches on a point; where these are fewer than LAUNCHES, as many as that."""

MODE_S = 1.2
BURST_S, PAUSE_S = 0.0004, 0.004


class Launcher:
    """A built variant on some inputs, with an output and a workspace of its own."""

    def __init__(self, room: Room, built: Artifact, tensors: Tensors) -> None:
        self._variant, self._problem = LoadedVariant(built), room.problem
        self._tensors = tensors
        self._words = torch.full((16,), 0x7FFF7FFF, device="cuda", dtype=torch.int32)
        self.output = torch.empty_like(tensors[0])

    def __call__(self) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        workspace = self._words.data_ptr()
        status = self._variant.run(self._problem, self._tensors, (self.output,), workspace, 64, stream)
        assert status == 0, status


def replayed(forward: Forward, calls: int) -> Callable[[], float]:
    """A timer of `calls` captured forwards: microseconds of one."""
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
        return float(1000 * first.elapsed_time(last) / calls)

    return timed


def forwards(room: Room, labels: list[str], tensors: Tensors) -> dict[str, Forward]:
    """cuDNN, and what each point does with these inputs."""
    found: dict[str, Forward] = {"cudnn": partial(sdpa(room.problem, "cudnn"), *tensors)}
    points = room.points()
    for label, built in zip(labels, room.workbench.build_all([points[label] for label in labels]), strict=True):
        assert isinstance(built, Artifact), built
        found[label] = Launcher(room, built, tensors)
    return found


def back(room: Room, rows: Figures) -> Figures:
    """Warm replays of about a millisecond, interleaved in random order."""
    draw, found = random.Random(7), {}
    labels = fastest(rows, 1)
    for distribution in ("randn", "large", "slopes", "sink"):
        q, k, v = (tensor.cuda() for tensor in inputs(room.problem, distribution, 3))
        calls = max(2, int(300e9 / room.problem.flops))
        timers = {label: replayed(each, calls) for label, each in forwards(room, labels, (q, k, v)).items()}
        taken: dict[str, list[float]] = {label: [] for label in timers}
        for _ in range(15):
            for label in draw.sample(list(timers), len(timers)):
                taken[label].append(timers[label]())
        found[distribution] = {label: spread(tuple(us)) for label, us in taken.items()}
        print(room.problem, distribution, {name: round(row["median"], 1) for name, row in found[distribution].items()})
    return found


def clocks(room: Room, rows: Figures) -> Figures:
    """Each arm for MODE_S in each mode, with what NVML says meanwhile."""
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    found: Figures = {}
    for kind, factor in (("random", 1.0), ("zeros", 0.0)):
        q, k, v = (factor * tensor.cuda() for tensor in inputs(room.problem, "randn", 3))
        arms = forwards(room, fastest(rows, 1), (q, k, v))
        for mode, seconds in (("hot", 0.0016), ("cool", BURST_S)):
            for label, forward in arms.items():
                timed = replayed(forward, max(1, round(seconds / 100e-6)))
                figures = _watched(timed, PAUSE_S if mode == "cool" else 0.0, device)
                found[f"{kind} {mode} {label}"] = figures
                print(kind, mode, label, {name: round(number, 1) for name, number in figures.items()}, flush=True)
    return found


def _watched(timed: Callable[[], float], pause: float, device: object) -> Figures:
    """Median microseconds, and the median clock and power of the second half."""
    us, mhz, watts, reasons = [], [], [], 0
    until = time.monotonic() + MODE_S
    while time.monotonic() < until:
        us.append(timed())
        mhz.append(pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM))
        watts.append(pynvml.nvmlDeviceGetPowerUsage(device) / 1000)
        reasons |= pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
        time.sleep(pause)
    half = len(us) // 2
    return {"us": median(us[half:]), "mhz": median(mhz[half:]), "watts": median(watts[half:]), "reasons": reasons}


def judged_mutants() -> list[Figures]:
    """The gate's word on each, up to and with a long soak, at a problem that fills a GPU and can yet be soaked."""
    found: list[Figures] = []
    with tempfile.TemporaryDirectory() as folder, closing(Room(PROBLEMS["B"]).workbench.executor()) as executor:
        rooms = [Room(mutant.full) for mutant in mutants()]

        def made(mutant: Mutant, room: Room) -> Artifact | Fault:
            return build(mutant.family(Path(folder)), mutant.variant, room.problem, room.workbench.toolchain)

        with ThreadPoolExecutor(os.cpu_count()) as builders:
            for mutant, room, built in zip(mutants(), rooms, builders.map(made, mutants(), rooms), strict=True):
                if isinstance(built, Fault):
                    row: Figures = {"verdict": str(built.verdict), "fault": f"{built.code}: {built.detail}"}
                else:
                    job = JudgeJob(
                        built=Built(artifact=built, seconds=0.0), conditions=room.conditions("flash"), soak="finalist"
                    )
                    outcome = answer(executor, job)
                    row = judged(outcome) if isinstance(outcome, Outcome) else {"fault": str(outcome)}
                row.pop("us", None)
                code = str(row.get("fault", "pass")).split()[0].rstrip(":")
                expected = code in (mutant.gate or ("pass",))
                found.append({"name": mutant.name, "what": mutant.what, "as_expected": expected, **row})
                print(mutant.name, row.get("verdict"), str(row.get("fault"))[:100], flush=True)
    return found


def stress(room: Room, points: int) -> Figures:
    """The first output is compared with torch's, the others must equal it."""
    p, space = room.problem, room.workbench.space
    draw = random.Random(25)
    shape = (p.batch, p.heads, p.seq_q, p.head_dim)
    q, k, v = (torch.randn(shape, device="cuda", dtype=DTYPES[p.dtype]) for _ in range(3))
    expected = sdpa(p, "flash")(q, k, v)
    chosen = room.workbench.build_all([draw.randrange(len(space)) for _ in range(points)])
    found: Figures = {"points": points, "refused": 0, "launches": 0, "differ": 0, "from_flash": 0.0}
    for built in chosen:
        if isinstance(built, Fault):
            found["refused"] += 1
            continue
        launch, started, first = Launcher(room, built, (q, k, v)), time.monotonic(), None
        for number in range(1, LAUNCHES + 1):
            launch()
            if number % COMPARED == 1 or number == LAUNCHES:
                first = launch.output.clone() if first is None else first
                found["differ"] += int(not torch.equal(first, launch.output))
                launch.output.fill_(float("nan"))
                if time.monotonic() - started > LONGEST_S:
                    break
        found["launches"] += number
        assert first is not None
        found["from_flash"] = max(found["from_flash"], float((first - expected[0]).abs().max()))
    print(p, found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("steps", nargs="+", choices=["back", "clocks", "mutants", "stress"])
    parser.add_argument("--json", type=Path, default=Path("docs/results/wgmma_attention.json"))
    parser.add_argument("--problems", default="A")
    parser.add_argument("--points", type=int, default=50)
    options = parser.parse_args()
    rooms = {name: Room(PROBLEMS[name]) for name in options.problems.split(",")}
    document: dict[str, Any] = opened(options.json, next(iter(rooms.values())).workbench)

    def keep(step: str, name: str, figures: Figures) -> None:
        document.setdefault(step, {})[name] = figures
        options.json.write_text(json.dumps(document, indent=1) + "\n")

    for name, room in rooms.items():
        if "back" in options.steps:
            keep("back", name, back(room, document["judge"][name]))
        if "stress" in options.steps:
            keep("stress", name, stress(room, options.points))
    if "clocks" in options.steps:
        keep("clocks", "A", clocks(Room(PROBLEMS["A"]), document["judge"]["A"]))
    if "mutants" in options.steps:
        document["mutants"] = judged_mutants()
    options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
