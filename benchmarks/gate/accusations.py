"""Honest variants judged on a machine that somebody disturbs all the while: nobody may be accused.

    python -m benchmarks.gate.accusations cpu|cuda [--points 150] [--seed N] [--json OUT.json] [--hold]

Random valid points of shipped spaces go through gate, race, audit and soak as finalists do, beside two busy loops a
CPU, or on a GPU beside another process's matrix products (60 points there). No thermometer turns a race away before its
verdict, as in a first run on such a machine. A verdict against a variant is an accusation; `disturbed` is none.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotuner.run.executor import ask, sound_calibration
from autotuner.run.jobs import BuildJob, Built, CalibrationJob, JudgeJob
from autotuner.tuning.workbench import Workbench, load_space
from autotuner.values.outcome import Outcome
from benchmarks import holds
from benchmarks.provenance import command_line
from benchmarks.timing.disturbance import disturbed

SPACES = {"cpu": ("sdpa_cpu", "rmsnorm_cpu"), "cuda": ("sdpa_cuda", "rmsnorm_cuda")}
POINTS = {"cpu": 150, "cuda": 60}
LOOPS = 2
"""Busy loops for each CPU."""
FOREVER_S = 1e9


def judged(space: str, kind: str, count: int, draw: random.Random) -> list[dict[str, Any]]:
    """The outcomes of so many points of a space."""
    here, found = Workbench(load_space(space)), []
    points = draw.sample(range(len(here.space)), min(count, len(here.space)))
    with closing(here.executor()) as executor:
        calibrated = sound_calibration(ask(executor, CalibrationJob(conditions=here.conditions)))
        update = {"baselines": calibrated.baselines, "ceilings": calibrated.ceilings}
        conditions = here.conditions.model_copy(update=update)
        with disturbed(kind, FOREVER_S, times=LOOPS):
            for number, point in enumerate(points, 1):
                started = time.monotonic()
                result = ask(executor, BuildJob(variant=here.variant(point), conditions=conditions))
                if isinstance(result, Built):
                    result = ask(executor, JudgeJob(built=result, conditions=conditions, soak="finalist"))
                assert isinstance(result, Outcome)
                found.append(row(space, result, time.monotonic() - started))
                print(f"{space} {number}: {found[-1]['verdict']} {found[-1]['code']}", file=sys.stderr, flush=True)
    return found


def row(space: str, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """What became of one."""
    fault = outcome.fault
    return {
        "space": space,
        "variant": str(outcome.variant),
        "verdict": str(outcome.verdict),
        "code": fault.code if fault else "",
        "detail": fault.detail if fault else "",
        "accused": outcome.verdict.judges and not outcome.verdict.has_latency,
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
    accused = [each for each in rows if each["accused"]]
    verdicts = Counter(each["verdict"] for each in rows)
    print(f"{len(rows)} honest variants, {len(accused)} accused; {', '.join(f'{n} {v}' for v, n in verdicts.items())}")
    if options.json:
        when = datetime.now(UTC).isoformat(timespec="seconds")
        document = {"command": command_line(), "when": when, "verdicts": verdicts, "accused": accused, "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.hold:
        holds.require([f"{each['variant']}: {each['verdict']} {each['code']} {each['detail']}" for each in accused])


if __name__ == "__main__":
    main()
