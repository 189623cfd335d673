"""Surroundings that containers and clusters give, each made for one command: what happens there.

    python -m benchmarks.cli.machines [--json docs/results/machines.json] [--hold]

Needs Linux and root, for mounts and control groups of its own; what cannot be made here is left out with the reason.
docs/reference/machines.md shows the result, and beside it the surroundings that tests make.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from autotuner.ops.sdpa.problem import SdpaProblem
from benchmarks import holds
from benchmarks.provenance import ROOT, made, provenance

PATIENCE_S = 400
NO_PASSWD = "unshare --user --map-user=54321 --map-group=54321"
HOMELESS = "env -u HOME -u USER -u LOGNAME -u XDG_CACHE_HOME -u AUTOTUNER_CACHE"
FINE = "Nothing here is in the way of tuning"
TUNE = "tune --trials 1 --minutes 1"
JUDGE = 'gate "IMPL=simd" --space sdpa_cpu'
V1 = Path("/sys/fs/cgroup/cpu/cgroup.procs").exists()


class Surrounding(NamedTuple):
    """A machine that is not like others."""

    what: str
    before: str
    """Shell that makes it; $M is a folder of its own, with those for the cache, $C, and for temporary files, $T."""
    command: str
    """Of autotuner; where it begins with a colon, with what stands before the colon in front."""
    says: str
    """What must stand in what is printed."""


def group(controller: str, v1: str, v2: str) -> str:
    """Shell that enters a control group with these settings."""
    folder = f"/sys/fs/cgroup/{controller}/autotuner-$$" if V1 else "/sys/fs/cgroup/autotuner-$$"
    settings = v1 if V1 else v2
    made = [f"echo {value} > {folder}/{name}" for name, value in (each.split("=") for each in settings.split(","))]
    return "; ".join([f"mkdir {folder}", *made, f"echo $$ > {folder}/cgroup.procs"])


QUOTA = group("cpu", "cpu.cfs_period_us=100000,cpu.cfs_quota_us=150000", "cpu.max='150000 100000'")


def memory(size: str) -> str:
    return group("memory", f"memory.limit_in_bytes={size}", f"memory.max={size}")


SURROUNDINGS = (
    Surrounding("no HOME, no entry in passwd", "", f"{NO_PASSWD} {HOMELESS}: doctor", FINE),
    Surrounding("a read-only root", "mount -t tmpfs none $M; mount -o remount,bind,ro /", JUDGE, "passed: IMPL=simd"),
    Surrounding("a read-only cache", "mount -t tmpfs -o ro none $C", TUNE, "set AUTOTUNER_CACHE"),
    Surrounding("a cache mounted noexec", "mount -t tmpfs -o noexec none $C", TUNE, "is mounted noexec"),
    Surrounding("TMPDIR mounted noexec", "mount -t tmpfs -o noexec none $T", TUNE, "set TMPDIR"),
    Surrounding("a full disk", "mount -t tmpfs -o size=200k none $C", TUNE, "no space left"),
    Surrounding("64 MB of /dev/shm", "mount -t tmpfs -o size=64m none /dev/shm", "doctor", "--shm-size"),
    Surrounding("a quota of 1.5 CPUs", QUOTA, "doctor", "1 used: .* a quota of 1.5"),
    Surrounding("one CPU by affinity", "", "taskset -c 0: doctor", "1 used: "),
    Surrounding("300 MB of memory", memory("300M"), TUNE, "takes 1 GiB of memory, and 0.3 GiB may be used"),
    Surrounding("4 GB of memory", memory("4G"), f"{TUNE} --problem '(64,32,1024,64) float32'", "4.0 GiB may be used"),
    Surrounding("no network", "", "unshare --net: doctor", FINE),
    Surrounding("no compiler", "export CXX=/nowhere/g++", TUNE, "install one"),
    Surrounding("a forward of a minute", "", f"{TUNE} --problem '(1,1,262144,64) float32'", "tune shorter lengths"),
)


def tried(one: Surrounding) -> dict[str, Any]:
    """What happens there."""
    *front, command = one.command.split(": ", 1)
    with tempfile.TemporaryDirectory(prefix="autotuner-machines-") as name:
        folder = Path(name)
        places = {"$M": folder, "$C": folder / "cache", "$T": folder / "tmp"}
        shell = (
            f"set -e; {one.before or ':'}; mkdir -p $C $T; cd $M; exec {' '.join(front)} $PYTHON -m autotuner {command}"
        )
        for word, place in {**places, "$PYTHON": sys.executable}.items():
            shell = shell.replace(word, str(place))
        for place in places.values():
            place.mkdir(mode=0o777, exist_ok=True)
        own = {"AUTOTUNER_CACHE": "$C", "TMPDIR": "$T", "AUTOTUNER_STORE": "$M/studies.db"}
        around = {name: value.replace(value[:2], str(places[value[:2]])) for name, value in own.items()}
        words = ["unshare", "--mount", "sh", "-c", shell]
        whole = {**os.environ, **around, "COLUMNS": "500"}
        done = subprocess.run(words, env=whole, capture_output=True, text=True, timeout=PATIENCE_S)
    for left in (*Path("/sys/fs/cgroup").glob("autotuner-*"), *Path("/sys/fs/cgroup").glob("*/autotuner-*")):
        with contextlib.suppress(OSError):
            left.rmdir()
    lines = [" ".join(line.split()) for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    found = next((line for line in lines if re.search(one.says, line)), None)
    said = found or (lines[-1] if lines else "")
    return {
        "what": one.what,
        "command": command,
        "exit": done.returncode,
        "said": said.removeprefix("autotuner: ").replace(str(folder), "FOLDER").replace(f"{ROOT}/", ""),
        "as_meant": found is not None and "Traceback" not in done.stderr,
    }


def page(document: Mapping[str, Any]) -> str:
    """docs/reference/machines.md: what happens in each."""
    rows = ["| surrounding | command | what happens |", "|---|---|---|"]
    for row in document["rows"]:
        if row["exit"]:
            told = f"refused: {row['said'].rpartition('; ')[2]}"
        else:
            told = "works" if row["said"].startswith(("Nothing", "passed")) else row["said"].partition(";")[0]
        rows.append(f"| {row['what']} | `{row['command'].partition(' --trials')[0].partition(' ')[0]}` | {told} |")
    return "\n".join([*rows, "", made(document)])


def many(tables: Sequence[Mapping[str, Any] | None]) -> str:
    """The same: what `tune --out` kept of problems that some backends of torch cannot launch."""
    lines = []
    for table in filter(None, tables):
        won, problem = table["confirmed"], SdpaProblem.model_validate(table["problems"][0]["problem"])
        over = f"{won['mid']:.2f}x torch's {table['baseline'][0]['backend']} ({won['low']:.2f} to {won['high']:.2f})"
        lines.append(f"- `{problem}` on {table['device']['name']}: {table['impl']}, {over}, confirmed.")
    return "\n".join(lines) or "Not kept yet."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="PATH")
    parser.add_argument("--only", metavar="WORDS", help="those whose name has these words")
    holds.add_option(parser)
    options = parser.parse_args()
    rows = []
    for one in SURROUNDINGS:
        if options.only is None or options.only in one.what:
            rows.append(tried(one))
            print(json.dumps(rows[-1]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({**provenance(), "rows": rows}, indent=1) + "\n")
    if options.hold:
        holds.require([f"{row['what']}: {row['said']}" for row in rows if not row["as_meant"]])


if __name__ == "__main__":
    main()
