"""What is proven by hand, part by part: `make proof PART=transfer`, or `python -m benchmarks.proof NAME ...`.

Each part is a program that writes what it found to docs/results/ and whose exit code is not 0 when what must hold does
not. Keep what it wrote, and draw the pages anew: `python -m benchmarks.pages`. Without a name they are listed; `all` is
every part, without those that need a GPU where there is none. Some replay recorded spaces of Kernel Tuner, *.json.gz in
the folder that the variable SPACES names.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from autotuner.devices.cuda.probe import probe
from autotuner.values import config
from benchmarks import shards, tests_run, tuned
from benchmarks.attacks import judged
from benchmarks.attention import elsewhere
from benchmarks.cli import hostile, machines, make_tune
from benchmarks.driver import chaos, kills, many_workers, queue_soak, ray_nodes, restarts, workers
from benchmarks.gate import accusations, emulated, luck, mutants, op_mutants, soak, view_mutants
from benchmarks.inference import in_a_model
from benchmarks.provenance import RESULTS, ROOT
from benchmarks.search import branches, landscapes, replay, replay_choice, transfer
from benchmarks.service import first_paint, load
from benchmarks.throughput import figures
from benchmarks.timing import aa_sweeps, audit_cost, audits, busy, simulated_truth
from tests.mutants.expectations import MUTANTS

SPACES = "SPACES"
ALL = "all"
LANDSCAPES = tuple(map(str, sorted(landscapes.LANDSCAPES.glob("*.json.gz"))))


def right_kernels(pattern: str) -> dict[str, str]:
    """Spaces of the right kernels beside the mutants, by the name of what is kept of their audits."""
    return {
        "_".join(path.relative_to(MUTANTS).with_suffix("").parts): str(path.relative_to(ROOT))
        for path in sorted(MUTANTS.rglob(pattern))
    }


OTHERS = {
    "sdpa_cpu_bf16": ("sdpa_cpu", "--problem", "(1,8,512,64) bfloat16 full"),
    "sdpa_cpu_causal": ("sdpa_cpu", "--problem", "(1,8,512,64) float32 causal"),
    "sdpa_cpu_long": ("sdpa_cpu", "--problem", "(1,8,2048,128) float32 full"),
    "sdpa_cpu_small": ("sdpa_cpu", "--problem", "(1,4,128,64) float32 full"),
    "rmsnorm_cpu_short": ("rmsnorm_cpu", "--problem", "(4096,1024) float32"),
}
AUDITED = {
    **{path.stem: (path.stem,) for path in sorted(config.spaces_dir().glob("*_cpu*.toml"))},
    **OTHERS,
    **{name: (path,) for name, path in right_kernels("right_cpu*.toml").items()},
}
"""Spaces on the CPU and problems, by the name of what is kept of their audits. Each is a step of its own: a machine can
do them one by one."""
COSTED = ("(1,8,512,64) float32 full", "(1,8,512,64) float32 causal", "(1,8,2048,128) float32 full")
"""Problems whose sweeps show what audits cost."""
AUDITED_ON_CUDA = sorted(
    {path.stem for path in config.spaces_dir().glob("*.toml") if "_cpu" not in path.stem} - {"sdpa_cuda_smoke"}
)
"""Spaces on CUDA. The points of the smoke test are of another one."""
FILLING = tuple(word for count in (1, 2, 3, 4, 6, 8) for word in ("--problem", f"({count},1,87,128) float16 causal"))
"""Problems of which an audit's refills take some less or more than a second-level cache holds."""
RIGHT_ON_CUDA = right_kernels("right_cuda*.toml")
"""Apart, so that nothing of an op is kept elsewhere where the op is deleted."""


class Step(NamedTuple):
    """A program and its arguments; SPACES among them stands for the recorded spaces."""

    module: str
    arguments: tuple[str, ...]


class Part(NamedTuple):
    """Something that is proven by hand."""

    says: str
    minutes: int
    """What it takes on two cores, about."""
    steps: tuple[Step, ...]
    needs_gpu: bool = False


def kept(name: str) -> str:
    return str((RESULTS / f"{name}.json").relative_to(ROOT))


def step(program: ModuleType, *arguments: str) -> Step:
    return Step(program.__name__, arguments)


PARTS = {
    "gate": Part(
        "every mutant in every setting is rejected, every right implementation passes under many seeds (CPU)",
        50,
        (
            step(mutants, kept("mutants_cpu"), "--only", "numeric", "systemic", "clock", "--hold"),
            step(mutants, kept("mutants_cpu"), "--only", "clock", "--lasting", "--hold"),
            step(mutants, kept("mutants_cpu"), "--only", "right", "--dtype", "bfloat16", "--seeds", "25", "--hold"),
            step(mutants, kept("mutants_cpu"), "--only", "right", "--dtype", "float32", "--seeds", "13", "--hold"),
            step(op_mutants, kept("mutants_ops"), "--seeds", "5", "--hold"),
            step(view_mutants, "--json", kept("mutants_views")),
            step(luck, "--json", kept("luck"), "--hold"),
            step(soak, "--json", kept("soak_cpu"), "--hold"),
        ),
    ),
    "attacks": Part(
        "of all attacks on the judge, through the real commands, none gains a crown or an export (CPU)",
        60,
        (step(judged, "--json", kept("attacks_cpu"), "--hold"),),
    ),
    "emulator": Part(
        "the same of the CUDA mutants in every setting, on the emulator",
        25,
        (
            step(emulated, "--json", kept("mutants_emulated")),
            step(emulated, "--ops", "--json", kept("mutants_ops_emulated")),
        ),
    ),
    "transfer": Part(
        "a search that knows a related one needs half of the evaluations, on every pair of the kept landscapes",
        15,
        (step(transfer, *LANDSCAPES, "--seeds", "100", "--json", kept("transfer"), "--hold"),),
    ),
    "floors": Part(
        "evolution reaches its floor on every kept landscape, and random search does not",
        2,
        (
            step(landscapes, "hold", "--json", kept("landscapes_held")),
            step(branches, "--json", kept("branches")),
        ),
    ),
    "replay": Part(
        "evolution scores on recorded spaces, one and 16 in flight, what it scored when the result was kept",
        60,
        tuple(
            step(replay, SPACES, "--in-flight", count, "--json", kept(name), "--figure", figure, "--hold")
            for count, name, figure in (
                ("1", "replay", "docs/results/replay.svg"),
                ("16", "replay_parallel", "docs/results/replay_parallel.svg"),
            )
        ),
    ),
    "choice": Part(
        "no other choice of the sampler's constants is better on spaces that had no say in it",
        60,
        (step(replay_choice, SPACES, "--seeds", "25", "--free-sampler", "--json", kept("choice"), "--hold"),),
    ),
    "truth": Part(
        "on devices whose truth is known nobody is crowned wrongly and intervals cover it",
        18,
        (step(simulated_truth, "--json", kept("simulated_truth"), "--hold"),),
    ),
    "nobody": Part(
        "in real sweeps in which nobody can win nobody is crowned (CPU; needs a quiet machine)",
        20,
        (step(aa_sweeps, "cpu", "--trials", "4", "--json", kept("aa_sweeps_cpu"), "--hold"),),
    ),
    "busy": Part(
        "a busy machine gets an answer in its time, whose interval has the quiet one (CPU; needs a quiet machine)",
        150,
        (step(busy, "--json", kept("busy"), "--hold"),),
    ),
    "machines": Part(
        "surroundings of containers and clusters, each made for one command, end as they are meant to (root)",
        5,
        (step(machines, "--json", kept("machines"), "--hold"),),
    ),
    "accusations": Part(
        "150 honest variants are judged beside two busy loops a CPU, and none is accused (CPU)",
        120,
        (step(accusations, "cpu", "--json", kept("accusations"), "--hold"),),
    ),
    "audits": Part(
        "the audit accuses no right kernel, cold and warm (CPU; needs a quiet machine)",
        300,
        tuple(
            step(audits, *words, "--json", kept(f"audits_{name}"), "--more", "--hold")
            for name, words in AUDITED.items()
        ),
    ),
    "audit_cost": Part(
        "audits take less than 5 % of whole sweeps (CPU; needs a quiet machine)",
        24,
        (step(audit_cost, "sdpa_cpu", "--problem", *COSTED, "--json", kept("audit_cost"), "--hold"),),
    ),
    "make_tune": Part(
        "make tune in a new checkout ends within 8 minutes, installing and waiting aside (needs a quiet machine)",
        12,
        (step(make_tune, "--out", str((RESULTS / "make_tune.txt").relative_to(ROOT)), "--hold"),),
    ),
    "kills": Part(
        "a sweep killed twenty times loses nothing and judges nothing twice",
        5,
        (step(kills, "--kills", "20", "--json", kept("kills")),),
    ),
    "chaos": Part(
        "a worker that is killed, stopped and told to go at random finds what an undisturbed one finds",
        100,
        (step(chaos, "--minutes", "60", "--json", kept("chaos"), "--hold"),),
    ),
    "soak": Part(
        "an hour of a queue, its workers, store, disk and server struck, loses nothing, and memory stays flat (root)",
        65,
        (step(queue_soak, "--json", kept("queue_soak"), "--hold"),),
    ),
    "restarts": Part(
        "a server of the store that is restarted twenty times on new databases ends no worker, and nothing is lost",
        20,
        (step(restarts, "--json", kept("restarts")),),
    ),
    "ray": Part(
        "a node of a Ray cluster that is killed costs what it had in hand one more try; needs the extra `ray`",
        2,
        (step(ray_nodes, "--json", kept("ray")),),
    ),
    "workers": Part(
        "two workers on a GPU each reach at least 1.8 times the rate of one (a host with two GPUs)",
        5,
        (step(workers, "--devices", "cuda:0,cuda:1", "--json", kept("workers"), "--hold"),),
        needs_gpu=True,
    ),
    "many_workers": Part(
        "eight workers of fake devices do 10,000 trials on PostgreSQL, and the driver's share of a trial stays flat",
        5,
        (step(many_workers, "--json", kept("many_workers"), "--hold"),),
    ),
    "figures": Part(
        "the figures of a study of 10,000 trials take less than 100 ms each (needs a quiet machine)",
        2,
        (step(figures, "--json", kept("figures"), "--hold"),),
    ),
    "paint": Part(
        "a browser paints every page of a study of 10,000 trials in less than a second (needs a quiet machine)",
        4,
        (step(first_paint, "--json", kept("service_first_paint"), "--hold"),),
    ),
    "load": Part(
        "twenty readers at once get 100 leaderboards a second, and half a request is not held (needs a quiet machine)",
        2,
        (step(load, "--json", kept("service_load"), "--hold"),),
    ),
    "hostile": Part(
        "bad files, bad command lines and damaged stores end in one line, 100,000 of them",
        360,
        (step(hostile, "--json", kept("hostile")),),
    ),
    "tests": Part(
        "every test, those too of which each run takes a sample",
        30,
        (step(tests_run, kept("tests"), "-m", "", "--all"),),
    ),
    "gpu": Part(
        "the tests that need a GPU; every mutant is rejected on CUDA",
        20,
        (
            step(tests_run, kept("tests_gpu"), "-m", "gpu"),
            step(mutants, kept("mutants_cuda"), "--backend", "cuda", "--jobs", "8", "--hold"),
            step(mutants, kept("mutants_clock_cuda"), "--backend", "cuda", "--only", "clock", "--hold"),
            step(op_mutants, kept("mutants_ops_cuda"), "--backend", "cuda", "--hold"),
            step(view_mutants, "--backend", "cuda", "--json", kept("mutants_views_cuda")),
            step(view_mutants, "--table", "triton", "--backend", "cuda", "--json", kept("mutants_triton_cuda")),
            step(soak, "--backend", "cuda", "--json", kept("soak_cuda"), "--hold"),
        ),
        needs_gpu=True,
    ),
    "gpu_attacks": Part(
        "of all attacks on the judge, through the real commands, none gains a crown or an export (CUDA)",
        60,
        (step(judged, "--device", "cuda", "--json", kept("attacks_cuda"), "--hold"),),
        needs_gpu=True,
    ),
    "gpu_accusations": Part(
        "60 honest variants are judged beside another program on the GPU, and none is accused",
        30,
        (step(accusations, "cuda", "--json", kept("accusations_cuda"), "--hold"),),
        needs_gpu=True,
    ),
    "gpu_audits": Part(
        "the audit accuses no right kernel on a GPU, cold and warm",
        60,
        (
            step(audits, *AUDITED_ON_CUDA, "--json", kept("audits_cuda"), "--more", "--hold"),
            step(audits, "sdpa_cuda", *FILLING, "--points", "16", "--json", kept("audits_filling"), "--more", "--hold"),
            *(
                step(audits, space, "--json", kept(f"audits_{name}"), "--more", "--hold")
                for name, space in RIGHT_ON_CUDA.items()
            ),
        ),
        needs_gpu=True,
    ),
    "gpu_tuned": Part(
        "what `autotuner tune` reaches from an empty store, of every problem that has no row of this GPU yet",
        60,
        (
            step(tuned, "large", "--missing", "--trials", "40", "--json", kept("tuned_wgmma")),
            step(tuned, "odd", "--missing", "--trials", "40", "--json", kept("tuned_wgmma")),
            step(tuned, "small", "--missing", "--trials", "40", "--json", kept("tuned_wgmma")),
            step(tuned, "rmsnorm", "--missing", "--trials", "30", "--json", kept("tuned_rmsnorm")),
            step(elsewhere, kept("tuned_wgmma"), "--json", kept("elsewhere")),
        ),
        needs_gpu=True,
    ),
    "gpu_peers": Part(
        "one line of tuning on FlashAttention 3's published grid, beside it and cuDNN",
        100,
        (step(shards, "peers", "--gpu", "0", "--into", "docs/results"),),
        needs_gpu=True,
    ),
    "gpu_models": Part(
        "the examples on a GPU, recorded, tuned, exported and loaded: before and after",
        40,
        tuple(
            step(in_a_model, model, "--device", "cuda", "--dtype", dtype, "--out", kept(f"{model}_cuda_{dtype}"))
            for model in ("encoder", "gpt")
            for dtype in ("float16", "bfloat16")
        ),
        needs_gpu=True,
    ),
}


def spaces() -> list[str]:
    """The recorded spaces. Exits where there are none."""
    folder = os.environ.get(SPACES)
    found = sorted(map(str, Path(folder).glob("*.json.gz"))) if folder else []
    if not found:
        sys.exit(f"proof: this part replays recorded spaces: name their folder, as in {SPACES}=FOLDER make proof ...")
    return found


def command(wanted: Step) -> list[str]:
    """The line that runs a step."""
    arguments = [word for each in wanted.arguments for word in (spaces() if each == SPACES else [each])]
    return [sys.executable, "-m", wanted.module, *arguments]


def prove(names: Sequence[str]) -> list[str]:
    """Runs parts, one after another; those that failed."""
    failed = []
    for name in names:
        started = time.monotonic()
        steps = PARTS[name].steps
        holds = all(subprocess.run(command(each), cwd=ROOT).returncode == 0 for each in steps)
        print(f"{name}: {'holds' if holds else 'DOES NOT HOLD'} ({time.monotonic() - started:.0f} s)", flush=True)
        failed += [] if holds else [name]
    return failed


def provable() -> list[str]:
    """Every part that this machine can prove."""
    has_gpu = not isinstance(probe(), str)
    return [name for name, part in PARTS.items() if has_gpu or not part.needs_gpu]


def listed() -> str:
    """The parts, for a person."""
    lines = [f"  {name:<16}{part.says}; about {part.minutes} minutes" for name, part in PARTS.items()]
    return "\n".join(["make proof PART=NAME, where NAME is one of these or all:", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("parts", nargs="*", metavar="NAME")
    wanted = parser.parse_args().parts
    for name in wanted:
        if name not in (*PARTS, ALL):
            sys.exit(f"proof: there is no part {name}; there are {', '.join(PARTS)}")
    if not wanted:
        print(listed())
        return
    failed = prove(provable() if ALL in wanted else wanted)
    if failed:
        sys.exit(f"proof: {', '.join(failed)} did not hold")


if __name__ == "__main__":
    main()
