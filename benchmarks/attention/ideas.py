"""What single ideas give: points of a kernel that differ in one of them, raced side by side on this GPU.

    python -m benchmarks.attention.ideas [PROBLEM...] [--only TEXT]... [--rounds N] [--seconds S] [--json FILE]

An idea is a change of parameters or, where it is always on, an edit that takes it out of the sources. At each problem
all points are built and race in one process, warm: graphs of forwards, replayed in random order. The first must be
right by the gate's tolerances, the others must give its answer but for roundings. A
speed is the median over the rounds of the time without the idea over that with it, with its 95 % interval; what graphs
of the same program differ by is an idea too. cuDNN and FlashAttention 3, where its wheel is installed, race beside the
fastest point, of changed scores flex_attention too. No problem begins after S seconds. Needs a GPU that nothing else
uses.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch

from autotuner.devices.environment import usable_cpus
from autotuner.forge.build import build
from autotuner.gate.cases import Matrix
from autotuner.gate.tolerance import Truth, compute_truth
from autotuner.ops import op_of
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.ops.tensors import moved
from autotuner.tuning.workbench import Workbench, load_space, point_of
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault
from benchmarks import holds
from benchmarks.attention.decode import right
from benchmarks.attention.floors import Edit, without
from benchmarks.attention.interleaved import race, spread, timer, variant_forward
from benchmarks.attention.peers import agrees, others, over
from benchmarks.provenance import command_line

WGMMA = (
    "IMPL=wgmma BLOCKS_SM=1 BLOCK_N=128 CONSUMERS=2 EARLY_START=0 OVERLAP=1 O_STAGING=query PING_PONG=1"
    " Q_BUFFERS=2 Q_FROM=registers SCHEDULE=dynamic SOFTMAX=spec STAGES=2"
)
AT_ONCE = f"{WGMMA} PING_PONG=0"
THIRD = "CONSUMERS=3 BLOCK_N=64 SCHEDULE=tile PING_PONG=0 Q_FROM=shared Q_BUFFERS=1"
WOVEN = "CONSUMERS=3 Q_FROM=shared OVERLAP=2"
FOURTH = "CONSUMERS=4 BLOCK_N=64 PING_PONG=0 Q_FROM=shared STAGES=4"
"""Both for rows of 64."""
WIDE = f"{WGMMA} BLOCK_N=64 Q_BUFFERS=1 Q_FROM=shared"
"""For rows of 256."""
MMA = (
    "IMPL=mma BLOCK_N=64 EXP=ex2 FIXED=1 LOAD=tma MULTICAST=1 Q_FROM=shared ROW_TILES=1 SPLIT=1 STAGES=2 SYNC_POLICY=0"
    " WARPS_M=4 WARPS_N=1"
)
DECODE = (
    "IMPL=decode BLOCK_N=64 L2_FETCH=256 LOAD=tma MERGE=device PACK_GQA=1 Q_FROM=registers ROW_TILES=1 SPLIT=4 STAGES=2"
    " WARPS_M=4 WARPS_N=2"
)
FULL, CAUSAL = "(4,16,4096,128) bfloat16 full", "(4,16,4096,128) bfloat16 causal"
NARROW, NARROW_CAUSAL = "(4,32,4096,64) bfloat16 full", "(4,32,4096,64) bfloat16 causal"
WIDEST, GROUPS = "(4,8,4096,256) bfloat16 full", "(4,32:8,2048,128) bfloat16 causal"
LONG, LONG_CAUSAL = "(1,16,16384,128) bfloat16 full", "(1,16,16384,128) bfloat16 causal"
NARROW_LONG, NARROW_LONG_CAUSAL = "(1,32,16384,64) bfloat16 full", "(1,32,16384,64) bfloat16 causal"
NARROW_8192, NARROW_8192_CAUSAL = "(2,32,8192,64) bfloat16 full", "(2,32,8192,64) bfloat16 causal"
CAPPED, SLOPED = (f"(1,32:8,8192,128) bfloat16 causal {more}" for more in ("softcap=50", "bias=alibi"))
CAPPED_SHORT, SLOPED_SHORT = (f"{GROUPS} {more}" for more in ("softcap=50", "bias=alibi"))
SMALL, FEW = "(2,8,2048,64) bfloat16 causal", "(4,32:8,16x4096,128) bfloat16 full"
PROBLEMS = (
    *(CAUSAL, NARROW, GROUPS, CAPPED, SLOPED, FULL, NARROW_CAUSAL, SMALL, FEW, WIDEST),
    *(CAPPED_SHORT, SLOPED_SHORT, LONG, LONG_CAUSAL, NARROW_LONG, NARROW_LONG_CAUSAL),
    *(NARROW_8192, NARROW_8192_CAUSAL),
)
"""The first are wanted most: the time may be over before the last."""


class Idea(NamedTuple):
    """One idea, where it is tried, and what of a point it changes."""

    name: str
    problems: tuple[str, ...]
    point: str
    before: str
    """Values without it, laid over those of the point."""
    after: str
    """Values with it."""
    edits: tuple[Edit, ...] = ()
    """What takes it out of the sources, of the point without it."""


LARGE = (FULL, CAUSAL, NARROW, NARROW_CAUSAL, GROUPS, SMALL)
LONGEST = (LONG, LONG_CAUSAL)
LONGEST_NARROW = (NARROW_LONG, NARROW_LONG_CAUSAL, NARROW_8192, NARROW_8192_CAUSAL)
ORDER = "wgmma_schedule.h"
EARLY, STAYS = "SCHEDULE=static EARLY_START=1", "SCHEDULE=dynamic Q_BUFFERS=2"
ONE_SLOPE: tuple[Edit, ...] = (("wgmma_consumer.h", "RowBias bias = slope;", "RowBias bias = bias_of(my_row);"),)
IDEAS = (
    Idea("nothing", (*LARGE, CAPPED), WGMMA, "", "", (("wgmma.cu", "// Attention on", "// Attention, on"),)),
    Idea("a third consumer", (CAPPED, CAPPED_SHORT), WGMMA, "", THIRD),
    Idea("blocks that stay", (CAPPED, CAPPED_SHORT), f"{WGMMA} {THIRD}", "", STAYS),
    Idea("consumers in turn", (CAPPED, CAPPED_SHORT), f"{WGMMA} {THIRD} {STAYS}", "", "PING_PONG=1"),
    Idea("a third stage", (CAPPED, CAPPED_SHORT), f"{WGMMA} {THIRD} {STAYS}", "", "STAGES=3"),
    Idea("a slope read once an item", (SLOPED, SLOPED_SHORT), f"{WGMMA} {EARLY}", "", "", ONE_SLOPE),
    Idea("the next item's scores early, by turns", (SLOPED, SLOPED_SHORT), WGMMA, "", EARLY),
    Idea("a guessed maximum", (*LARGE, CAPPED), WGMMA, "SOFTMAX=exact", ""),
    Idea("softmax beside the product", (*LARGE, CAPPED), WGMMA, "OVERLAP=0", ""),
    Idea("consumers in turn", (*LARGE, CAPPED), WGMMA, "PING_PONG=0", ""),
    Idea("queries in registers", LARGE, WGMMA, "Q_FROM=shared", ""),
    Idea("the next item's scores early", LARGE, WGMMA, "", "EARLY_START=1"),
    Idea("a third consumer", (FULL, CAUSAL, GROUPS), WGMMA, "", "CONSUMERS=3 BLOCK_N=80 Q_FROM=shared"),
    Idea("a third consumer", (NARROW, NARROW_CAUSAL), f"{WGMMA} Q_FROM=shared", "", "CONSUMERS=3"),
    Idea("a third stage", (NARROW, NARROW_CAUSAL, SMALL), WGMMA, "", "STAGES=3"),
    Idea("a third stage", (CAUSAL, GROUPS), f"{AT_ONCE} BLOCK_N=96 Q_BUFFERS=1", "", "STAGES=3"),
    Idea("outputs apart from queries", (CAUSAL, GROUPS, SMALL), AT_ONCE, "", "O_STAGING=own"),
    Idea("the next item's scores early", (CAUSAL, GROUPS), f"{AT_ONCE} O_STAGING=own", "", "EARLY_START=1"),
    Idea("smaller tiles of keys", (CAUSAL, GROUPS, SMALL), AT_ONCE, "", "BLOCK_N=64 STAGES=4"),
    Idea("larger tiles of keys", (CAUSAL, GROUPS), AT_ONCE, "", "BLOCK_N=144"),
    Idea("larger tiles of keys", (CAUSAL, CAPPED), f"{WGMMA} Q_BUFFERS=1 Q_FROM=shared", "", "BLOCK_N=176"),
    Idea("larger tiles of keys", (WIDEST,), WIDE, "", "BLOCK_N=80"),
    Idea("blocks that stay", LARGE, f"{WGMMA} Q_BUFFERS=1", "SCHEDULE=tile", "SCHEDULE=static"),
    Idea("items by tickets", LARGE, WGMMA, "SCHEDULE=static", ""),
    Idea(
        "the longest items first",
        (CAUSAL, NARROW_CAUSAL, GROUPS),
        WGMMA,
        "",
        "",
        ((ORDER, "row_block = args.row_blocks - 1 - turn;", "row_block = turn;"),),
    ),
    Idea(
        "heads at a time that share the cache",
        (CAUSAL, NARROW_CAUSAL, GROUPS),
        WGMMA,
        "",
        "",
        (("wgmma_host.cpp", "std::clamp<int64_t>(blocks / 2 / rows, 1, slices);", "slices;"),),
    ),
    Idea("consumers in turn", LONGEST, WGMMA, "PING_PONG=0", ""),
    Idea("a third consumer", LONGEST, WGMMA, "", THIRD),
    Idea("blocks that stay", LONGEST, f"{WGMMA} {THIRD}", "", f"{STAYS} STAGES=3"),
    Idea("items by tickets", LONGEST, WGMMA, "SCHEDULE=static", ""),
    Idea("outputs apart from queries", LONGEST, AT_ONCE, "", "O_STAGING=own"),
    Idea("a fourth consumer", LONGEST_NARROW, f"{WGMMA} Q_FROM=shared CONSUMERS=3", "", FOURTH),
    Idea("a fourth consumer", LONGEST_NARROW, f"{WGMMA} {FOURTH} CONSUMERS=3", "", "CONSUMERS=4"),
    Idea("the next item's scores early", (NARROW_LONG,), f"{WGMMA} {FOURTH}", "", "EARLY_START=1"),
    Idea("consumers in turn", LONGEST_NARROW, f"{WGMMA} {FOURTH}", "", "PING_PONG=1"),
    Idea("items by tickets", LONGEST_NARROW, f"{WGMMA} {FOURTH}", "SCHEDULE=static", ""),
    Idea("blocks that stay", LONGEST_NARROW, f"{WGMMA} {FOURTH} Q_BUFFERS=1", "SCHEDULE=tile", "SCHEDULE=static"),
    Idea("outputs among the exponentials", LONGEST_NARROW, f"{WGMMA} {WOVEN}", "OVERLAP=1", ""),
    Idea("a third stage", LONGEST_NARROW, f"{WGMMA} {WOVEN}", "", "STAGES=3"),
    Idea("outputs among the exponentials, four consumers", LONGEST_NARROW, f"{WGMMA} {FOURTH}", "", "OVERLAP=2"),
    Idea("smaller tiles of keys", LONGEST_NARROW, f"{WGMMA} Q_FROM=shared CONSUMERS=3", "", "BLOCK_N=96 STAGES=3"),
    Idea("queries in registers", LONGEST_NARROW, f"{WGMMA} CONSUMERS=3 BLOCK_N=96", "Q_FROM=shared", ""),
    Idea("larger tiles of keys", LONGEST_NARROW, WGMMA, "", "BLOCK_N=176"),
    Idea("copies for two blocks", (SMALL, NARROW_CAUSAL), MMA, "", "MULTICAST=2"),
    Idea("two row tiles a warp", (SMALL, NARROW_CAUSAL), MMA, "", "ROW_TILES=2"),
    Idea("keys in two parts", (SMALL, NARROW_CAUSAL), MMA, "", "SPLIT=2"),
    Idea("heads of a group in one tile", (FEW,), DECODE, "PACK_GQA=0 WARPS_M=1", ""),
    Idea("keys in four parts, merged over the device", (FEW,), DECODE, "SPLIT=1 MERGE=cluster", ""),
)
Side = tuple[str, tuple[Edit, ...]]
"""A point, and what is taken out of its sources."""


def sides(idea: Idea) -> tuple[Side, Side]:
    """Without the idea and with it."""
    return (laid(idea.point, idea.before), idea.edits), (laid(idea.point, idea.after), ())


def laid(point: str, over_it: str) -> str:
    """The point with other values."""
    values = dict(word.split("=") for word in f"{point} {over_it}".split())
    return " ".join(f"{name}={value}" for name, value in values.items())


Row = dict[str, Any]


def tried(text: str, only: Sequence[str] = ()) -> list[Idea]:
    """The ideas that are tried at this problem, of those whose name contains one of the texts; without any, all."""
    named = [idea for idea in IDEAS if not only or any(each in idea.name for each in only)]
    return [idea for idea in named if text in idea.problems]


def raced(text: str, ideas: Sequence[Idea], rounds: int) -> tuple[list[Row], list[Row]]:
    """A row for each idea, and the fastest point beside others."""
    problem = SdpaProblem.parse(text)
    wanted = list(dict.fromkeys(side for idea in ideas for side in sides(idea)))
    refused: dict[Side, str] = {}
    timers: dict[Side, Callable[[], float]] = {}
    answer: torch.Tensor | None = None
    op = op_of(problem)
    case = Matrix(problem).case(op.cases.tuned(problem))
    built = made(text, wanted)
    truth = compute_truth(case, 1, "cuda")
    inputs = moved(op.tensors().inputs(problem, "randn", 1), "cuda")
    for side, artifact in built.items():
        if not isinstance(artifact, Artifact):
            refused[side] = artifact.detail if isinstance(artifact, Fault) else artifact
            continue
        if answer is None and not is_right(artifact, case.problem, truth):
            refused[side] = "wrong"
            continue
        forward, outputs = variant_forward(artifact, problem, [inputs])
        forward(0)
        answer = outputs[0] if answer is None else answer
        try:
            agrees(outputs[0], answer)
        except ValueError as error:
            refused[side] = str(error)
            continue
        timers[side] = timer(forward, 1)
    if answer is None:
        return [], []
    names = {str(number): side for number, side in enumerate(timers)}
    changed = problem.softcapped or problem.bias != "none"
    peers = others(problem, inputs, answer, ["fa3", "flex"] if changed else ["fa3"])
    taken = race({name: timers[side] for name, side in names.items()} | peers, rounds)
    us = {side: taken[name] for name, side in names.items()}
    return [row_of(idea, text, us, refused) for idea in ideas], [beside(problem, us, {n: taken[n] for n in peers})]


def is_right(built: Artifact, problem: Problem, truth: Truth) -> bool:
    """Whether its outputs are within the gate's tolerances."""
    forward, outputs = variant_forward(built, problem, [truth.inputs])
    forward(0)
    torch.cuda.synchronize()
    return right(outputs, truth)


def row_of(idea: Idea, text: str, us: dict[Side, list[float]], refused: dict[Side, str]) -> Row:
    """What the idea gives, or why that is not known."""
    before, after = sides(idea)
    row: Row = {"problem": text, "idea": idea.name, "before": before[0], "after": after[0]}
    reasons = [refused[side].splitlines()[0] for side in (before, after) if side in refused]
    if reasons:
        row["refused"] = reasons[0]
    else:
        row |= {"us": [spread(us[side]) for side in (before, after)], "speed": over(us[before], us[after])}
    print(text, idea.name, row.get("refused") or said(row["speed"]), flush=True)
    return row


def beside(problem: SdpaProblem, us: dict[Side, list[float]], peers: dict[str, list[float]]) -> Row:
    """The fastest point of sources as they are, and how many times as fast as others it is."""
    best = min((side for side in us if not side[1]), key=lambda side: spread(us[side])["median"])
    found = {name: over(each, us[best]) for name, each in peers.items()}
    tflops = problem.flops / spread(us[best])["median"] / 1e6
    print(
        problem, "the fastest:", round(tflops), "TFLOP/s", {name: said(each) for name, each in found.items()}, best[0]
    )
    return {"problem": str(problem), "point": best[0], "tflops": tflops, "speedup": found}


def made(text: str, wanted: list[Side], arch: str | None = None) -> dict[Side, Artifact | Fault | str]:
    """Each built, or why not."""
    bench = Workbench(load_space("sdpa_cuda", problems=[text]), arch=arch)
    problem = SdpaProblem.parse(text)
    with tempfile.TemporaryDirectory() as folder:
        edited = dict.fromkeys(edits for _, edits in wanted if edits)
        families = {edits: without(Path(folder) / str(n), edits) for n, edits in enumerate(edited)}
        families[()] = bench.family

        def one(side: Side) -> Artifact | Fault | str:
            point, edits = side
            if bench.space.index_of(values := point_of(bench.space, point)) is None:
                return "no valid point here"
            parameters = {name: value for name, value in values.items() if name != "IMPL"}
            variant = Variant(family="sdpa", backend="cuda", impl=str(values["IMPL"]), parameters=parameters)
            return build(families[edits], variant, problem, bench.toolchain)

        with ThreadPoolExecutor(usable_cpus()) as pool:
            return dict(zip(wanted, pool.map(one, wanted), strict=True))


def said(speed: dict[str, float]) -> str:
    """With its interval."""
    return f"{speed['mid']:.3f}x ({speed['low']:.3f} to {speed['high']:.3f})"


def main() -> None:
    """Prints a line for each and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=PROBLEMS, metavar="PROBLEM")
    parser.add_argument("--only", default=[], metavar="TEXT", action="append", help="ideas whose name contains it")
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    began, rows, fastest = time.monotonic(), list[Row](), list[Row]()
    for text in given.problems:
        if time.monotonic() - began > given.seconds:
            print(f"{text}: no time is left", flush=True)
            continue
        more, best = raced(text, tried(text, given.only), given.rounds)
        rows, fastest = rows + more, fastest + best
        if given.json is not None:
            made_at = {"command": command_line(), "when": datetime.now(UTC).isoformat(timespec="seconds")}
            where = {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
            given.json.write_text(json.dumps(made_at | where | {"rows": rows, "fastest": fastest}, indent=1) + "\n")
    holds.measured([row["problem"] for row in rows], "idea")


if __name__ == "__main__":
    main()
