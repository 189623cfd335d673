"""Runs long proofs in parts side by side, each on two CPUs of its own, and makes one result of a proof's parts.

    python -m benchmarks.shards attacks|accusations|busy|aa_cpu|one_line_cpu|windows_cpu ... --into FOLDER
        [--cpus 0-31] [--minutes M] [--hold]
    python -m benchmarks.shards attacks_cuda|accusations_cuda|aa_cuda|peers|one_line|drawnSEED ... --gpu N[,N]
        --into FOLDER [--minutes M] [--hold]

A part is the proof's own command on some of its cases, in a process group bound to two CPUs, which are of one core
where the machine says so, with a cache and a folder for temporary files of its own. On GPUs parts run one after
another on each, with its share of the CPUs. No part begins that would not end within M minutes; FOLDER/PROOF.json is
written after each, and the same command later goes on with the parts that it lacks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from autotuner.devices import DEVICES, Wishes
from autotuner.ops.sdpa.problem import SdpaProblem
from benchmarks import holds, tuned
from benchmarks.attacks import catalogue, judged
from benchmarks.attention import peers
from benchmarks.gate import accusations
from benchmarks.provenance import command_line
from benchmarks.timing import aa_sweeps, busy
from tests.mutants.expectations import Backend

EACH = {"cpu": 6, "cuda": 24}
"""Attacks of a part. On CUDA more of them: what a sweep builds before its first trial takes longer there."""
CUDA_MINUTES = 4
"""For the sweep of a part there."""
EARLY = ("hidden", "systemic")
"""Groups whose attacks end before anything is timed: their parts are short, and come last."""
HONEST = {"rmsnorm_cpu": (9, 8), "sdpa_cpu": (6, 13)}
"""Parts of a space, and points of each: 150 in all. A baseline of rmsnorm's is compiled, and its heats take longer."""
SWEEPS = 20
"""In which nobody can win, on a kind of device."""
LONG = 3e12
"""Operations of a problem that one forward takes some milliseconds for."""
TOPOLOGY = Path("/sys/devices/system/cpu")


Part = tuple[str, ...]
Document = Mapping[str, Any]


class Proof(NamedTuple):
    """A proof that can be cut."""

    module: ModuleType
    parts: Callable[[Document], list[Part]]
    """Arguments of the proof's command, a part each that the document lacks; the first are the longest."""
    minutes: float
    """A part begins only where so many are left."""
    needs_gpu: bool = False
    short: tuple[str, ...] = ()
    """Beginnings of cases whose parts take half of that at most."""
    is_kept_by_row: bool = False
    """Whether `parts` goes by what the document has: then what a part has found counts, though it did not end."""

    def needs(self, part: Part) -> float:
        """Minutes that must be left."""
        return self.minutes / 2 if self.short and any(word.startswith(self.short) for word in part) else self.minutes


def attacks(device: Backend, document: Document) -> list[Part]:
    """At most EACH attacks of a group at a time: more take longer, fewer have the honest one judged more often."""
    held = {f"{row['group']}/{row['name']}" for row in document.get("rows", [])}
    alone: list[str] = []
    cut: list[list[str]] = []
    for group in catalogue.groups(device):
        names = [name for each in group.attacks if (name := f"{group.name}/{each.name}") not in held]
        if len(group.attacks) == 1:
            alone += names
        else:
            count = math.ceil(len(names) / EACH[device])
            cut += [names[first::count] for first in range(count)]
    cut.sort(key=lambda names: (names[0].startswith(EARLY), -len(names)))
    more = ("--device", device, "--minutes", str(CUDA_MINUTES)) if device == "cuda" else ()
    return [(*more, "--only", *names) for names in (*cut, alone) if names]


def of(parts: Callable[[], list[Part]]) -> Callable[[Document], list[Part]]:
    """Those that the document has not named as done."""

    def lacking(document: Document) -> list[Part]:
        return [part for part in parts() if " ".join(part) not in document.get("parts", [])]

    return lacking


def raced(document: Document) -> list[Part]:
    """A long race takes more than a short tune has: none of its variants would be judged in time."""
    held = {row["problem"] for row in document.get("rows", [])}
    lacking = [problem for problem in tuned.PEERS if problem not in held]
    return [(each, *(("--minutes", "0.9") if SdpaProblem.parse(each).flops > LONG else ())) for each in lacking]


def seeds(count: int, *arguments: str) -> list[Part]:
    return [(*arguments, "--seed", str(seed)) for seed in range(count)]


def nobody(each: int, *arguments: str) -> list[Part]:
    """SWEEPS sweeps in which nobody can win, so many in a part."""
    return [(*arguments, "--sweeps", str(each), "--seed", str(first)) for first in range(0, SWEEPS, each)]


def honest() -> list[Part]:
    return [
        part
        for space, (count, points) in HONEST.items()
        for part in seeds(count, "cpu", "--space", space, "--points", str(points))
    ]


PROOFS = {
    "attacks": Proof(judged, partial(attacks, "cpu"), 3.0, short=(*EARLY, "flag_"), is_kept_by_row=True),
    "attacks_cuda": Proof(judged, partial(attacks, "cuda"), 3.0, needs_gpu=True, is_kept_by_row=True),
    "accusations": Proof(accusations, of(honest), 7.5),
    "accusations_cuda": Proof(accusations, of(lambda: seeds(5, "cuda", "--points", "12")), 2.0, needs_gpu=True),
    "aa_cpu": Proof(aa_sweeps, of(partial(nobody, 1, "cpu", "--trials", "4")), 3.0),
    "aa_cuda": Proof(
        aa_sweeps, of(partial(nobody, 2, "cuda", "--trials", "8", "--finals-minutes", "0.5")), 2.6, needs_gpu=True
    ),
    "busy": Proof(busy, of(lambda: seeds(busy.RUNS, "--runs", "1")), 7.6),
    "one_line": Proof(tuned, of(partial(tuned.parts, "one_line")), 1.65, needs_gpu=True),
    "one_line_cpu": Proof(tuned, of(partial(tuned.parts, "one_line_cpu")), 2 * tuned.CPU_MINUTES["one_line_cpu"] + 0.3),
    "windows_cpu": Proof(tuned, of(partial(tuned.parts, "windows_cpu")), tuned.CPU_MINUTES["windows_cpu"]),
    "peers": Proof(peers, raced, 0.95, needs_gpu=True),
}


def proof(name: str) -> tuple[str, Proof]:
    """The proof of that name. Raises ValueError where there is none."""
    if name.startswith("drawn"):
        return name, Proof(tuned, of(partial(tuned.parts, name)), 1.5, needs_gpu=True)
    if name not in PROOFS:
        raise ValueError(name)
    return name, PROOFS[name]


class Place(NamedTuple):
    """Where one part runs at a time."""

    gpu: str
    cpus: tuple[int, ...]


def places(cpus: Sequence[int], gpus: Sequence[str]) -> list[Place]:
    """A GPU each with its share of the CPUs; without GPUs CPUs two by two. Those of one core are together."""

    def core(cpu: int) -> tuple[int, int]:
        siblings = TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        first = siblings.read_text().replace("-", ",").split(",")[0] if siblings.exists() else cpu
        return int(first), cpu

    ordered = sorted(cpus, key=core)
    each = len(ordered) // len(gpus) if gpus else 2
    shares = [tuple(ordered[first : first + each]) for first in range(0, len(ordered) - each + 1, each)]
    return [Place(*pair) for pair in zip(gpus or [""] * len(shares), shares, strict=False)]


def numbers(text: str) -> list[int]:
    """Those of a list such as 0-3,8."""
    found: list[int] = []
    for each in text.split(","):
        first, _, last = each.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def run(wanted: Proof, arguments: Part, limit_s: float, gpu: str) -> Any:
    """The document of one part, on the CPUs of this thread; None where it did not end and what it left is no use."""
    with tempfile.TemporaryDirectory(prefix="shard_") as name:
        folder = Path(name)
        around = {"TMPDIR": name, "AUTOTUNER_CACHE": str(folder / "cache"), "CUDA_VISIBLE_DEVICES": gpu}
        words = [sys.executable, "-m", wanted.module.__name__, *arguments, "--json", str(folder / "part.json")]
        with (folder / "log").open("w+") as log:
            process = subprocess.Popen(words, env=os.environ | around, stdout=log, stderr=log, start_new_session=True)
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if not wanted.is_kept_by_row:
                    return None
            part = folder / "part.json"
            if not part.exists():
                log.seek(0)
                print(*arguments, "left nothing:", log.read()[-1500:], flush=True)
                return None
            try:
                return json.loads(part.read_text())
            except ValueError:  # it was ended while it wrote
                return None


Waiting = list[tuple[str, Proof, Part]]


def done(waiting: Waiting, where: Sequence[Place], until: float) -> Iterator[tuple[str, str, Any]]:
    """Each part that ended: its proof, its arguments, its document."""
    ended: queue.SimpleQueue[tuple[str, str, Any] | None] = queue.SimpleQueue()
    taking = threading.Lock()

    def take() -> tuple[str, Proof, Part] | None:
        """The first that has time left to end."""
        with taking:
            minutes = (until - time.monotonic()) / 60
            found = next((each for each in waiting if each[1].needs(each[2]) <= minutes), None)
            if found is not None:
                waiting.remove(found)
            return found

    def work(place: Place) -> None:
        os.sched_setaffinity(0, place.cpus)  # of this thread, and of all that it starts
        while (part := take()) is not None:
            began, (name, wanted, arguments) = time.monotonic(), part
            document = run(wanted, arguments, until - began, place.gpu)
            said = "is done" if document is not None else "did not end"
            print(f"{name} {' '.join(arguments)} {said}: {time.monotonic() - began:.0f} s on {place}", flush=True)
            if document is not None:
                ended.put((name, " ".join(arguments), document))
        ended.put(None)

    workers = [threading.Thread(target=work, args=(place,)) for place in where]
    for worker in workers:
        worker.start()
    left = len(workers)
    while left:
        if (found := ended.get()) is None:
            left -= 1
        else:
            yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = f"{', '.join(PROOFS)}, or drawn and a seed: the first has the first CPUs that are free"
    parser.add_argument("proofs", nargs="+", type=proof, metavar="PROOF", help=names)
    parser.add_argument("--cpus", type=numbers, default=sorted(os.sched_getaffinity(0)), help="such as 0-7,16")
    parser.add_argument("--gpu", default="", metavar="N", help="those for proofs on CUDA, such as 0,1")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER")
    holds.add_option(parser)
    given = parser.parse_args()
    proofs = dict(given.proofs)
    if any(each.needs_gpu != bool(given.gpu) for each in proofs.values()):
        parser.error("name --gpu for proofs on CUDA, and for them alone")
    if given.gpu:
        DEVICES["cuda"].choose(Wishes())  # raises where there is none: parts would be tuned on the CPU, and be done
    where = places(given.cpus, given.gpu.split(",") if given.gpu else [])
    given.into.mkdir(parents=True, exist_ok=True)
    files = {name: given.into / f"{name}.json" for name in proofs}
    whole = {name: json.loads(file.read_text()) if file.exists() else {} for name, file in files.items()}
    waiting = [(name, each, part) for name, each in proofs.items() for part in each.parts(whole[name])]
    for name, part, document in done(waiting, where, time.monotonic() + 60 * given.minutes):
        before = whole[name]
        after = proofs[name].module.merged([before, document] if before else [document])
        made = before.get("commands", [before["command"]] if before else [])
        after |= {"command": command_line(), "commands": list(dict.fromkeys([*made, command_line()]))}
        after |= {"parts": [*before.get("parts", []), part]}
        whole[name] = after | {"missing": [" ".join(each) for each in proofs[name].parts(after)]}
        files[name].write_text(json.dumps(whole[name], indent=1) + "\n")
    for name, document in whole.items():
        left = len(proofs[name].parts(document))
        print(f"{name}: {len(document.get('parts', []))} parts are done, {left} are missing")
    for name, document in whole.items():
        holds.measured(document.get("parts", []), f"part of {name}")
        if given.hold:
            missing = [f"{name}: {' '.join(each)} is missing" for each in proofs[name].parts(document)]
            holds.require([*missing, *proofs[name].module.unmet(document)])


if __name__ == "__main__":
    main()
