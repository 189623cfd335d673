"""Races tuned variants beside the fastest attention that others publish, on this GPU.

    python -m benchmarks.attention.peers PROBLEM [--minutes M] [--trials N] [--rounds N] [--json FILE]
    python -m benchmarks.shards peers --gpu 0,1 --minutes 9 --into docs/results

The first command tunes a problem as one who types one line does, builds the variant again, which must be right, and
races forwards in one process: the variant, cuDNN, FlashAttention 3 (the package fa3-fwd), FlashInfer and compiled
flex_attention where they are installed and serve the problem, and a matrix product that says what the device gives in
this state. Graphs of some milliseconds are replayed in random order, and each begins on a busy device. A speedup is the
median over the rounds with its 95 % interval; the clock and the power are those of the whole race. FILE keeps its rows
of other problems and devices. Needs a GPU that nothing else uses.

The second does so for FlashAttention 3's published grid, tritonbench's, and head dimensions that they leave out, a
problem at a time on each GPU, as far as the minutes reach, and goes on there when it is called again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pynvml
import torch

from autotuner.gate.cases import Matrix
from autotuner.gate.tolerance import compute_truth
from autotuner.ops import op_of
from autotuner.ops.sdpa.flex import module
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import DTYPES, Tensors, moved
from autotuner.race.statistics import median_interval
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact
from benchmarks import tuned
from benchmarks.attention.decode import right
from benchmarks.attention.interleaved import Figures, Forward, baseline_forward, race, spread, timer, variant_forward
from benchmarks.provenance import command_line

SIZE = 8192
"""Rows and columns of the matrices whose product is the ceiling."""
FAR = 0.01
"""Of two right answers in 16 bits, at most."""


def fa3(problem: SdpaProblem, inputs: Tensors) -> Forward:
    """FlashAttention 3's forward, which has heads behind the sequence, windows and capped scores. Raises ImportError or
    TypeError where its wheel lacks them."""
    if problem.bias != "none" or problem.sinks != "none":
        raise ValueError("fa3: no bias and no sinks")
    attention = import_module("fa3_fwd_interface").flash_attn_func
    q, k, v = (tensor.transpose(1, 2) for tensor in inputs[:3])
    options: dict[str, Any] = {"softcap": problem.softcap} if problem.softcapped else {}
    if problem.windowed:
        options["window_size"] = (problem.window_left, problem.window_right)

    def answer() -> torch.Tensor:
        found: Any = attention(q, k, v, causal=problem.causal, **options)
        drawn: torch.Tensor = (found[0] if isinstance(found, tuple) else found).transpose(1, 2)
        return drawn

    return kept(answer)


def flashinfer(problem: SdpaProblem, inputs: Tensors) -> Forward:
    """FlashInfer's prefill of one sequence."""
    attention = import_module("flashinfer").single_prefill_with_kv_cache
    if problem.batch > 1:
        raise RuntimeError("flashinfer: one sequence a call")
    q, k, v = (tensor[0].transpose(0, 1) for tensor in inputs)
    return kept(lambda: attention(q, k, v, causal=problem.causal).transpose(0, 1)[None])


def flex(problem: SdpaProblem, inputs: Tensors) -> Forward:
    """flex_attention as torch's compiler makes it, with its mask of blocks, which is made once."""
    torch.compiler.reset()  # the ninth module of a class would not be compiled
    compiled: Any = torch.compile(module(problem, "cuda"), dynamic=False)
    return kept(lambda: compiled(*inputs))


PEERS: Mapping[str, Callable[[SdpaProblem, Tensors], Forward]] = {"fa3": fa3, "flashinfer": flashinfer, "flex": flex}


def kept(call: Callable[[], torch.Tensor]) -> Forward:
    """A forward whose last result lives on."""
    found: list[torch.Tensor] = []

    def forward(_: int) -> torch.Tensor:
        found[:] = [call()]
        return found[0]

    return forward


def others(
    problem: SdpaProblem, inputs: Tensors, answer: torch.Tensor, names: Collection[str] = PEERS.keys()
) -> dict[str, Callable[[], float]]:
    """Timers of cuDNN and these peers, where they serve the problem and their answer is the variant's, which was found
    right."""
    found: dict[str, Callable[[], float]] = {}
    made: dict[str, Callable[[], Forward]] = {"cudnn": lambda: baseline_forward("cudnn", problem, [inputs])}
    made |= {name: partial(peer, problem, inputs) for name, peer in PEERS.items() if name in names}
    for name, make in made.items():
        try:
            forward = make()
            agrees(forward(0), answer)
            found[name] = timer(forward, 1)
        except (ImportError, RuntimeError, ValueError, TypeError) as error:
            print(f"{problem}: {name} is left out: {str(error).splitlines()[0][:120]}", flush=True)
    return found


def agrees(found: object, answer: torch.Tensor) -> None:
    """Raises ValueError where the relative root mean square between them is more than roundings explain."""
    found = found[0] if isinstance(found, tuple) else found
    assert isinstance(found, torch.Tensor)
    far = float((found.double() - answer.double()).norm() / answer.double().norm())
    if not far <= FAR:
        raise ValueError(f"its answer differs by {far:.3g} in the root mean square")


def ceiling(problem: SdpaProblem) -> Callable[[], float]:
    """A timer of a large product of matrices in the problem's dtype."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=DTYPES[problem.dtype]) for _ in range(2))
    return timer(kept(lambda: a @ b), 1)


class Watch:
    """The clock and the power of this GPU, looked at before each replay."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self._device = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
        self.mhz: list[float] = []
        self.watts: list[float] = []

    def over(self, timed: Callable[[], float]) -> Callable[[], float]:
        """The timer, looked at; the device is busy when its graph begins."""

        def watched() -> float:
            torch.cuda._sleep(20_000)
            us = timed()
            self.mhz.append(pynvml.nvmlDeviceGetClockInfo(self._device, pynvml.NVML_CLOCK_SM))
            self.watts.append(pynvml.nvmlDeviceGetPowerUsage(self._device) / 1000)
            return us

        return watched


def raced(row: Figures, rounds: int) -> Figures:
    """The figures of one tuned row, or why there are none."""
    problem = SdpaProblem.parse(row["problem"])
    bench = Workbench(load_space("sdpa_cuda", problems=[row["problem"]]))
    index = bench.space.index_of(row["parameters"])
    built = None if index is None else bench.build_all([index])[0]
    if not isinstance(built, Artifact):
        return {"refused": "no point of the space" if built is None else built.detail}
    op = op_of(problem)
    case = Matrix(problem).case(op.cases.tuned(problem))
    truth = compute_truth(case, 1, "cuda")
    forward, outputs = variant_forward(built, case.problem, [truth.inputs])
    forward(0)
    torch.cuda.synchronize()
    if not right(outputs, truth):
        return {"refused": "wrong"}
    inputs = moved(op.tensors().inputs(problem, "randn", 1), "cuda")
    forward, outputs = variant_forward(built, problem, [inputs])
    forward(0)
    timers = {"variant": timer(forward, 1), **others(problem, inputs, outputs[0])}
    timers["product"] = ceiling(problem)
    watch = Watch()
    taken = race({name: watch.over(timed) for name, timed in timers.items()}, rounds)
    return {
        "impl": built.variant.impl,
        "parameters": row["parameters"],
        "us": {name: spread(us) for name, us in taken.items()},
        "tflops": {
            name: (2 * SIZE**3 if name == "product" else problem.flops) / statistics.median(us) / 1e6
            for name, us in taken.items()
        },
        "speedup": {name: over(us, taken["variant"]) for name, us in taken.items() if name in {"cudnn", *PEERS}},
        "mhz": spread(watch.mhz),
        "watts": spread(watch.watts),
    }


def over(others_us: list[float], variants_us: list[float]) -> Figures:
    """t_other / t_variant of the rounds, with its 95 % interval."""
    logs = [math.log(ours / theirs) for ours, theirs in zip(variants_us, others_us, strict=True)]
    return median_interval(logs).speedup.model_dump()


def found(text: str, options: argparse.Namespace) -> Figures:
    """The row of one problem. Exits where tuning finds no variant."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "studies.db"
        os.environ["AUTOTUNER_CACHE"] = str(store.with_suffix(".cache"))  # where tuning leaves what it builds
        row = tuned.tuned(tuned.SETS["peers"], text, store, options)
        if "error" in row:
            raise SystemExit(f"{text}: {row['error']}")
        kept = {name: row[name] for name in ("problem", "device", "seed", "minutes", "seconds", "judged", "confirmed")}
        return {**kept, "torch": torch.__version__, **raced(row, options.rounds)}


def merged(documents: Sequence[Figures]) -> Figures:
    """One of several: of a problem and a device the last row."""
    rows = {(row["problem"], row["device"]): row for document in documents for row in document["rows"]}
    return {**documents[-1], "rows": list(rows.values())}


def unmet(document: Figures) -> list[str]:
    """Where no race was run, or another is faster beyond the interval."""
    return [f"{row['problem']}: {row['refused']}" for row in document["rows"] if "refused" in row] + [
        f"{row['problem']}: {name} is faster: {each['mid']:.3f}x"
        for row in document["rows"]
        for name, each in row.get("speedup", {}).items()
        if each["high"] < 1
    ]


def main() -> None:
    """Prints a line and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem")  # one: the next tune would wait for this process, foreign to it, to leave the GPU
    parser.add_argument("--minutes", type=float, default=0.45, help="of each problem's tuning")
    parser.add_argument("--finals-minutes", type=float, default=0.1, help="of these; the race comes after them")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(namespace=argparse.Namespace(warm=False, space=None, first_points="all"))
    document: Figures = {"rows": []}
    if given.json is not None and given.json.exists():
        document = json.loads(given.json.read_text())
    row = found(given.problem, given)
    said = {name: f"{each['mid']:.3f} [{each['low']:.3f}, {each['high']:.3f}]"
            for name, each in row.get("speedup", {}).items()}  # fmt: skip
    tflops = {name: round(number) for name, number in row.get("tflops", {}).items()}
    print(row["problem"], row.get("refused") or said, tflops, flush=True)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    if given.json is not None:
        document = merged([document, {"command": command_line(), "when": when, "rows": [row]}])
        given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
