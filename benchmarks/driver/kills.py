"""A real sweep on the CPU, killed again and again at random moments (kill -9), loses nothing and judges nothing twice.

    python -m benchmarks.driver.kills [--kills 20] [--trials 85] [--json docs/results/kills.json]

The sweep is over the numeric mutants. Every second kill comes at any moment of the start, the others while it judges.
Exit code 1 where something was lost, judged twice or left running, or where no kill came while it judged.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from autotuner.devices import DEVICES, Wishes
from benchmarks import holds
from benchmarks.provenance import command_line
from tests.helpers.kills import killed_sweep


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--trials", type=int, default=85)
    parser.add_argument("--json", type=Path, metavar="PATH")
    options = parser.parse_args()
    started = time.monotonic()
    os.environ.pop("AUTOTUNER_STORE", None)  # the sweep's store lies in its folder
    with tempfile.TemporaryDirectory(prefix="autotuner-kills-") as folder:
        try:
            found = killed_sweep(Path(folder), options.kills, options.trials)
        except AssertionError as error:
            holds.require([str(error)])
            raise
    document = {
        "command": command_line(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": DEVICES["cpu"].choose(Wishes(threads=1)).device.name,
        "seconds": round(time.monotonic() - started, 1),
        **found._asdict(),
    }
    print(json.dumps(document, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    holds.require([] if found.proves_something else ["no kill came while it judged: nothing is proven"])


if __name__ == "__main__":
    main()
