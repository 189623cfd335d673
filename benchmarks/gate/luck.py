"""How near right variants come to the gate's tolerances over many seeds: whether bad luck rejects one.

    python -m benchmarks.gate.luck [--seeds 2] [--each 2] [--problem TEXT ...] [--drawn 16] [--draw SEED]
        [--json docs/results/luck.json] [--hold]

Each study draws the inputs of its cases from secret seeds. Here every case of the matrix is drawn from many, and random
variants of each implementation of the CPU family compute it, for the usual problems or those named, and some that a
seed draws: of any head dimension, mask, groups and what else attention has. What must hold: no output breaks a rule.
The mutants say whether the tolerances are too wide, this whether they are too narrow.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch

from autotuner.devices import DEVICES, Wishes
from autotuner.forge.loaded_variant import OUTSIDE_DOMAIN, LoadedVariant
from autotuner.gate.cases import Case, Matrix
from autotuner.gate.tolerance import Truth, compute_truth, judge
from autotuner.ops import op_of
from autotuner.ops.tensors import Tensors
from autotuner.tuning.workbench import Workbench, load_space, toolchain_for
from autotuner.values.gate_report import CaseErrors
from autotuner.values.outcome import Artifact
from autotuner.values.problem import Problem
from benchmarks import holds
from benchmarks.provenance import command_line

SPACE = "sdpa_cpu"
PROBLEMS = (
    "(1,8,128,64) float32 full",
    "(1,8,128,64) float32 causal",
    "(2,8:2,128,64) float32 causal bottom_right lengths bshd lse",
    "(2,8:2,1x512,64) float32 full lengths lse",
    "(2,8:2,128,64) float16 causal lengths lse",
    "(2,4,128,128) float16 causal lengths",
    "(2,8:2,128,96) bfloat16 full lengths lse",
    "(2,4,128,80) float32 causal bottom_right lengths",
    "(1,4,128,256) float32 causal bias=alibi",
    "(2,8:2,128,64) bfloat16 causal lengths lse",
    "(2,8:2,1x512,64) bfloat16 full lengths lse",
)
MASKS = (
    "full",
    "causal",
    "causal bottom_right",
    "causal window=30",
    "full window=20,9",
    "full window=5,40 bottom_right",
)
BIASES = ("bias=alibi", "bias=full", "bias=heads")
EXTRAS = {"lengths": 0.4, "lse": 0.4, "sinks": 0.2, "softcap=15": 0.2}
"""What a drawn problem has beside, how often."""
ALIGNMENT = 64
"""Bytes to which a workspace is aligned."""


def problem_drawn(draw: random.Random) -> str:
    """A small problem of any kind that the CPU family serves."""
    heads, seq_q = draw.choice((1, 2, 3, 4, 6, 8)), draw.choice((1, 3, 17, 64, 128))
    seq_k = draw.choice((seq_q, seq_q, 1, 50, 300))
    of_keys = draw.choice([heads // group for group in (1, 1, 2, 4) if heads % group == 0])
    sizes = f"({draw.choice((1, 2, 3))},{heads}:{of_keys},{seq_q}x{seq_k},{draw.choice((64, 80, 96, 128, 192, 256))})"
    words = [draw.choice(("float32", "bfloat16", "float16")), draw.choice(MASKS)]
    words += [word for word, share in EXTRAS.items() if draw.random() < share]
    words += [draw.choice(BIASES)] if draw.random() < 0.3 else []
    return " ".join((sizes, *words, *(["bshd"] if draw.random() < 0.25 else [])))


class Sound(NamedTuple):
    """A variant of the shipped family, which is taken for right: what it breaks here is a rule to look at."""

    impl: str
    variant: LoadedVariant

    def answer(self, problem: Problem, inputs: Tensors) -> Tensors | None:
        """Its outputs; None where it does not serve the problem."""
        outputs = op_of(problem).tensors().outputs(problem, inputs)
        wanted = self.variant.workspace_bytes(problem)
        room = torch.empty(wanted + ALIGNMENT, dtype=torch.uint8)
        workspace = -(-room.data_ptr() // ALIGNMENT) * ALIGNMENT
        status = self.variant.run(problem, inputs, outputs, workspace, wanted)
        if status == OUTSIDE_DOMAIN:
            return None
        if status:
            raise RuntimeError(f"{self.impl} ended with status {status} on {problem}")
        return outputs


def drawn(workbench: Workbench, each: int) -> list[Sound]:
    """Random variants of every implementation, always the same. Raises RuntimeError for one that cannot be built."""
    space, draw, found = workbench.space, random.Random(0), list[Sound]()
    column = space.rows[:, space.parameters.index("IMPL")]
    for place, impl in enumerate(space.values["IMPL"]):
        points = [int(index) for index in (column == place).nonzero()[0]]
        built = workbench.build_all(draw.sample(points, min(each, len(points))))
        for one in built:
            if not isinstance(one, Artifact):
                raise RuntimeError(f"{impl} cannot be built: {one.detail}")
            found.append(Sound(str(impl), LoadedVariant(one)))
    return found


def judged(sound: Sound, case: Case, truth: Truth) -> list[CaseErrors]:
    """Of each output."""
    outputs = sound.answer(case.problem, truth.inputs)
    return [] if outputs is None else [judge(*pair) for pair in zip(outputs, truth.outputs, strict=True)]


def cases(problem: Problem) -> Iterator[Case]:
    """Every case of the matrix of a variant with the usual tile."""
    matrix = Matrix(problem)
    yield from dict.fromkeys((*matrix.quick(), *matrix.full(matrix.op.cases.tile({}, {}))))


def row(text: str, seeds: int, each: int) -> dict[str, Any]:
    """One problem: what was judged, and the nearest that each implementation came to a tolerance."""
    workbench = Workbench(load_space(SPACE, problems=[text]))
    variants = drawn(workbench, each)
    worst: dict[str, tuple[float, str]] = {sound.impl: (0.0, "") for sound in variants}
    broken, outputs, asked = list[str](), 0, 0
    for case in cases(workbench.conditions.compiled_for):
        for seed in range(seeds):
            truth, asked = compute_truth(case, seed), asked + 1
            for sound in variants:
                for errors in judged(sound, case, truth):
                    outputs += 1
                    worst[sound.impl] = max(worst[sound.impl], (errors.worst_ratio, case.name))
                    if errors.failed_rule is not None:
                        broken.append(f"{sound.impl}: {errors.failed_rule} in {case.name} with seed {seed}")
    nearest = {impl: {"share": share, "case": case} for impl, (share, case) in worst.items()}
    counted = {"variants": len(variants), "cases_by_seed": asked, "outputs": outputs}
    return {"problem": text, **counted, "broken": broken, "nearest": nearest}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problem", action="append", help="instead of the usual ones; may be given again and again")
    parser.add_argument("--drawn", type=int, default=16, help="how many problems beside these are drawn")
    parser.add_argument("--draw", type=int, default=random.randrange(1 << 32), help="the seed that draws them")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--each", type=int, default=2, help="variants of each implementation")
    parser.add_argument("--json", type=Path)
    holds.add_option(parser)
    options = parser.parse_args()
    rows = []
    draw = random.Random(options.draw)
    for text in (*(options.problem or PROBLEMS), *(problem_drawn(draw) for _ in range(options.drawn))):
        rows.append(row(text, options.seeds, options.each))
        print(json.dumps(rows[-1]), flush=True)
    device = DEVICES["cpu"].choose(Wishes()).device
    document = {
        "command": command_line(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device.name,
        "environment": device.environment,
        "compiler": toolchain_for(device).version,
        "seeds": options.seeds,
        "draw": options.draw,
        "rows": rows,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.hold:
        holds.require([said for found in rows for said in unmet(found)])


def unmet(found: dict[str, Any]) -> list[str]:
    """What does not hold of a problem's row."""
    idle = [impl for impl, nearest in found["nearest"].items() if not nearest["case"]]
    said = [*(f"{impl} was judged in no case" for impl in idle), *found["broken"]]
    return [f"{found['problem']}: {each}" for each in said]


if __name__ == "__main__":
    main()
