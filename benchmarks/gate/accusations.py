"""Honest variants judged and timed on a machine that somebody disturbs all the while: nobody may be accused.

    python -m benchmarks.gate.accusations cpu|cuda [--points 150] [--seed N] [--json OUT.json] [--hold]

Random valid points of shipped spaces, on small problems, are built while the machine is calm. Then each has a heat, as
finals hold them: quick cases of the gate, interleaved blocks, the audit. That is all that rests on time; the cache is
warm, as the input sets of a cold one would take longer than all else. Beside it are two busy loops a CPU, or on a GPU
another process's matrix products (60 points there). One in EVERY goes through the whole gate as well. No thermometer
turns anyone away before the verdict, as in a first run on such a machine. A verdict against a variant is an accusation;
`disturbed` is none.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from autotuner.run.executor import ask, sound_calibration
from autotuner.run.jobs import Built, CalibrationJob, JudgeJob, RaceJob
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Artifact, Heat, Outcome
from autotuner.values.verdict import Fault
from benchmarks import holds
from benchmarks.provenance import measured_on
from benchmarks.timing.disturbance import disturbed

SPACES = {"cpu": ("sdpa_cpu", "rmsnorm_cpu"), "cuda": ("sdpa_cuda", "rmsnorm_cuda")}
POINTS = {"cpu": 150, "cuda": 60}
SMALL = {
    "sdpa_cpu": ["(1,2,128,64) float32"],
    "rmsnorm_cpu": ["(256,1024) float32"],
    "sdpa_cuda": ["(1,8,512,64) float16"],
    "rmsnorm_cuda": ["(4096,4096) float16"],
}
"""Problems in the place of a space's own."""
BLOCKS = 8
EVERY = 15
LOOPS = 2
"""Busy loops for each CPU."""
FOREVER_S = 1e9


def judged(space: str, kind: str, count: int, draw: random.Random) -> list[dict[str, Any]]:
    """What became of so many points of a space."""
    here, found = Workbench(load_space(space, problems=SMALL.get(space, ()))), []
    points = draw.sample(range(len(here.space)), min(count, len(here.space)))
    built = [each for each in here.build_all(points) if isinstance(each, Artifact)]
    print(f"{space}: {len(built)} of {len(points)} are built", file=sys.stderr, flush=True)
    with closing(here.executor()) as executor:
        warm = here.conditions.model_copy(update={"cache": "warm"})
        calibrated = sound_calibration(ask(executor, CalibrationJob(conditions=warm)))
        update = {"baselines": calibrated.baselines, "ceilings": calibrated.ceilings}
        conditions = warm.model_copy(update=update)
        with disturbed(kind, FOREVER_S, times=LOOPS):
            for number, artifact in enumerate(built):
                started = time.monotonic()
                gated = "after" if number % 2 else "before"
                heat = RaceJob(artifacts=(artifact,), conditions=conditions, blocks=BLOCKS, judged=gated)
                result = ask(executor, heat)
                assert isinstance(result, Heat | Fault)
                fault = result if isinstance(result, Fault) else result.faults.get(0)
                if fault is None and number % EVERY == 0:
                    made = Built(artifact=artifact, seconds=0.0)
                    outcome = ask(executor, JudgeJob(built=made, conditions=conditions, soak="finalist"))
                    assert isinstance(outcome, Outcome)
                    fault = outcome.fault
                found.append(row(space, artifact, fault, time.monotonic() - started))
                print(f"{space} {number + 1}: {found[-1]['verdict']} {found[-1]['code']}", file=sys.stderr, flush=True)
    return found


def row(space: str, artifact: Artifact, fault: Fault | None, seconds: float) -> dict[str, Any]:
    """What became of one."""
    return {
        "space": space,
        "variant": str(artifact.variant),
        "verdict": str(fault.verdict) if fault else "measured",
        "code": fault.code if fault else "",
        "detail": fault.detail if fault else "",
        "accused": fault is not None and fault.verdict.judges,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=sorted(SPACES))
    parser.add_argument("--points", type=int, help="in all, over the spaces")
    parser.add_argument("--space", nargs="+", help="of these alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    holds.add_option(parser)
    options = parser.parse_args()
    spaces = options.space or SPACES[options.kind]
    wanted, draw = options.points or POINTS[options.kind], random.Random(options.seed)
    rows: list[dict[str, Any]] = []
    for place, space in enumerate(spaces):
        rows += judged(space, options.kind, (wanted - len(rows)) // (len(spaces) - place), draw)
    holds.measured([each["variant"] for each in rows], "honest variant")
    document = {**measured_on(options.kind), **summed(rows)}
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in document["verdicts"].items())
    print(f"{len(rows)} honest variants, {len(document['accused'])} accused; {verdicts}")
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.hold:
        holds.require(unmet(document))


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows, and what they come to."""
    accused = [each for each in rows if each["accused"]]
    return {"verdicts": Counter(each["verdict"] for each in rows), "accused": accused, "rows": rows}


def merged(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One document of several."""
    return {**documents[-1], **summed([row for document in documents for row in document["rows"]])}


def unmet(document: dict[str, Any]) -> list[str]:
    """What does not hold of it."""
    return [f"{each['variant']}: {each['verdict']} {each['code']} {each['detail']}" for each in document["accused"]]


if __name__ == "__main__":
    main()
