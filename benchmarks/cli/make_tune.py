"""`make tune` as a user types it, in a new checkout of what is committed: what it says, and what it takes.

    python -m benchmarks.cli.make_tune [--out docs/results/make_tune.txt] [--hold]

Beside the transcript a JSON of the same name has the seconds of installing, of the search, of the finals and of waiting
for a calm machine, each apart. The checkout has a cache and a store of its own. What make reads from the environment,
as TRIALS and MINUTES, it gets. With --hold search and finals must be over within 8 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from autotuner.values.versions import version_of
from benchmarks import holds
from benchmarks.provenance import RESULTS, ROOT, provenance
from benchmarks.timing.wall import phases, run, whole

MOST_S = 8 * 60.0
"""Seconds that search and finals may take on two cores."""
COLUMNS = "180"
"""Of the transcript."""
OF_MAKE = ("TRIALS", "MINUTES")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "make_tune.txt")
    holds.add_option(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        checkout = Path(temporary) / "autotuner"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
        own = {"COLUMNS": COLUMNS, "AUTOTUNER_CACHE": str(Path(temporary) / "cache")}
        others = {name: value for name, value in os.environ.items() if name != "AUTOTUNER_STORE"}
        done = run(["make", "tune"], checkout, others | own)
    if done.code:
        sys.exit(f"make tune ended with exit code {done.code}")
    given.out.write_text(f"$ make tune\n{done.text}")
    found = {
        **provenance(),
        "torch": version_of("torch"),
        "asked": {name: os.environ[name] for name in OF_MAKE if name in os.environ},
        **phases(done),
    }
    given.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(phases(done)))
    if given.hold:
        took = whole(found)
        holds.require([] if took <= MOST_S else [f"search and finals took {took:.0f} s, more than {MOST_S:.0f}"])


if __name__ == "__main__":
    main()
