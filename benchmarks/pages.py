"""Draws the pages and the parts of README.md that show figures, from the machine-written files in docs/results/, and
writes the JSON schema of the trial report and the page of the commands.

    python -m benchmarks.pages [--check]

A part of a page between `<!-- NAME -->` and `<!-- /NAME -->` belongs to this program. With --check nothing is written;
the exit code is 1 when a page is not what its results say.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import people_pages, rooms_page, schemas, tuned_pages
from benchmarks.attacks import attacks_pages
from benchmarks.attention import (
    arguments_pages,
    counters_pages,
    decode_pages,
    fp8_pages,
    peers_pages,
    views_pages,
    where_pages,
    windows,
)
from benchmarks.cli import commands_page, machines
from benchmarks.driver import sweep_pages
from benchmarks.gate import gate_pages
from benchmarks.inference import (
    after_torch,
    fp8_llama,
    gpu_tests_pages,
    hooked,
    host_time_pages,
    in_a_model,
    torch_versions,
)
from benchmarks.markdown import table
from benchmarks.provenance import RESULTS, ROOT
from benchmarks.search import branches, choice_pages, importance_pages, landscape_pages, replay_pages, transfer_pages
from benchmarks.throughput import throughput_pages
from benchmarks.timing import trust_pages
from benchmarks.timing.wall import whole
from benchmarks.tuned import LARGE


def provenance(document: dict[str, Any]) -> str:
    """Where figures come from, in a sentence."""
    environment = document["environment"]
    commands = " and ".join(dict.fromkeys(f"`{row['command']}`" for row in document["rows"]))
    where = f"{document['device']}, {environment['os']}, torch {environment['torch']}, {document['compiler']}"
    return f"Made by {commands} (each row of the JSON names its own) on {document['when'][:10]}: {where}."


def cpu_attention(document: dict[str, Any]) -> str:
    """Every problem, in a table."""
    head = ["problem", "threads", "speedup over SDPA", "95 % interval", "us", "GFLOP/s"]
    rows = [
        [
            row["problem"],
            str(row["threads"]),
            f"**{row['speedup']['median']:.2f}x**",
            f"{row['speedup']['low']:.3f} to {row['speedup']['high']:.3f}",
            f"{row['microseconds']:.0f}",
            f"{row['gflops']:.0f}",
        ]
        for row in document["rows"]
    ]
    said = (
        "The speedup is the median of t_SDPA / t_variant over interleaved blocks in a fresh process after the sweep,"
        " the middle one of three such processes; the interval is that process's. Both sides had as many threads."
        " GFLOP/s and microseconds are the sweep's. The JSON has the best points."
    )
    return f"{table(head, rows)}\n\n{said} {provenance(document)}"


def abridged(transcript: str, head: int = 5, width: int = 100) -> str:
    """The first lines of a sweep, the last verdict, the top of the leaderboard and the last line; long lines cut."""
    lines = [line.rstrip() for line in transcript.splitlines() if line.strip()]
    ranks = next(i for i, line in enumerate(lines) if line.split()[0] == "rank")
    verdict = max(i for i, line in enumerate(lines) if line.startswith("["))
    leaders = [line for line in lines[ranks + 2 :] if line.split()[0].rstrip("=*").isdigit()][:2]
    chosen = [*lines[:head], "...", lines[verdict], "...", lines[ranks], *leaders, "...", lines[-1]]
    return "\n".join(line if len(line) <= width else line[: width - 3] + "..." for line in chosen)


def took(found: dict[str, Any] | None) -> str:
    """What the recorded sweep took; nothing where that was not kept."""
    if found is None:
        return ""
    asked = "".join(f"{name}={value}, " for name, value in found["asked"].items())
    where = f"{asked}{found['cpus']} CPUs, torch {found['torch']}, {found['when'][:10]}; `{found['command']}`"
    return (
        f"\n\nThe search took {found['search_s']:.0f} s and the finals {found['finals_s']:.0f} s,"
        f" {whole(found) / 60:.1f} minutes together, after {found['before_s']:.0f} s of installing ({where})."
    )


PART = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
"""A part of a page that belongs to this program."""
LINK = re.compile(r"\]\((docs/[^)]*)\)")
"""A link in what is drawn: from the root, wherever the page lies."""


def insert(text: str, drawn: Mapping[str, Callable[[], str]], folder: str = "") -> str:
    """A page's text with each part drawn; `folder`: where the page lies, below the root. Raises KeyError for a
    part that nobody draws."""

    def link(match: re.Match[str]) -> str:
        return f"]({os.path.relpath(match[1], folder or '.')})"

    return PART.sub(lambda part: f"{part[1]}{LINK.sub(link, drawn[part[2]]().rstrip())}\n{part[3]}", text)


def loaded(*names: str) -> list[dict[str, Any]]:
    """Kept results, by the names of their files without the ending."""
    return [json.loads((RESULTS / f"{name}.json").read_text()) for name in names]


def kept(*names: str) -> dict[str, dict[str, Any]]:
    """As `loaded`, with the names."""
    return dict(zip(names, loaded(*names), strict=True))


def kept_sweeps() -> dict[str, dict[str, Any]]:
    """All that the steps `cuda` and `cpu` of benchmarks/throughput/rates.py have kept, by their files."""
    paths = [*sorted(RESULTS.glob("throughput_cuda*.json")), *sorted(RESULTS.glob("throughput_cpu*.json"))]
    return {path.name: json.loads(path.read_text()) for path in paths}


def throughput_page() -> str:
    """docs/results/throughput.md."""
    cuda, cpu, store, devices = (f"throughput_{name}" for name in ("cuda", "cpu", "store", "devices"))
    parts = {
        "On one GPU": throughput_pages.cuda(loaded(cuda)),
        "On a CPU": throughput_pages.cpu(*loaded(cpu)),
        "Store and sampler": throughput_pages.store(loaded(store)[0], kept_sweeps()),
        "Several GPUs": throughput_pages.devices(loaded(f"{devices}_2", f"{devices}_4")),
    }
    return throughput_pages.page(parts)


def if_kept(name: str) -> dict[str, Any] | None:
    """The result of that name, if there is one."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def replays() -> list[dict[str, Any]]:
    """The kept results of benchmarks/search/replay.py."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("replay*.json"))]


def replay_drawn() -> dict[Path, str]:
    """docs/results/replay.md, a section for each replay*.json, if there is one."""
    sections = {}
    for path in sorted(RESULTS.glob("replay*.json")):
        figure = path.with_suffix(".svg")
        sections[path.stem] = replay_pages.section(loaded(path.stem)[0], figure.name if figure.exists() else None)
    return {RESULTS / "replay.md": replay_pages.page(sections, replays()[0])} if sections else {}


def make_tune() -> str:
    """The transcript of README.md."""
    transcript = abridged((RESULTS / "make_tune.txt").read_text())
    return f"```\n{transcript}\n```{took(if_kept('make_tune'))}"


def both_devices(name: str) -> list[dict[str, Any]]:
    """The results of that name that are kept of a CPU and of a GPU."""
    return [found for each in (f"{name}_cpu", f"{name}_cuda", name) if (found := if_kept(each)) is not None]


MUTANTS_OF_ATTENTION = ("mutants_views", "mutants_views_cuda", "mutants_triton_cuda")


def models() -> str:
    """What the examples' models gained on a CPU and on a GPU."""
    names = [[f"{model}_{on}" for on in ("cpu", "cuda_float16", "cuda_bfloat16")] for model in ("encoder", "gpt")]
    return in_a_model.table(*([each for each in map(if_kept, of) if each is not None] for of in names))


PARTS: dict[str, Callable[[], str]] = {
    "make_tune": make_tune,
    "found": lambda: tuned_pages.found(
        [each for each in map(if_kept, ("tuned_wgmma", "tuned_rmsnorm")) if each is not None],
        loaded("cpu_attention")[0],
        peers_pages.brief(if_kept("peers")),
    ),
    "replay": lambda: replay_pages.brief(replays()),
    "missing_barrier": lambda: gate_pages.missing_barrier(*loaded("missing_barrier")),
    "gate_cost": lambda: gate_pages.cost_brief(loaded("gate_cost_cuda", "gate_cost_cpu")),
    "mutants": lambda: gate_pages.mutants_brief(loaded("mutants_cpu", "mutants_cuda")),
    "clock_cuda": lambda: gate_pages.clock_on_cuda(*loaded("mutants_clock_cuda")),
    "views_mutants": lambda: gate_pages.views(
        {name: each for name in MUTANTS_OF_ATTENTION if (each := if_kept(name)) is not None}
    ),
    "warpgroups": lambda: gate_pages.warpgroups(kept("mutants_wgmma")),
    "luck": lambda: gate_pages.luck(*loaded("luck")),
    "attacks": lambda: attacks_pages.attacks(*loaded("attacks_cpu", "attacks_cuda")),
    "soak": lambda: gate_pages.soak(both_devices("soak")),
    "simulated_truth": lambda: trust_pages.simulated(*loaded("simulated_truth")),
    "heats": lambda: trust_pages.heats(if_kept("heat_seconds")),
    "leader": lambda: trust_pages.leader(*loaded("simulated_truth")),
    "aa_sweeps": lambda: trust_pages.aa_sweeps(loaded("aa_sweeps_cuda", "aa_sweeps_cpu")),
    "accusations": lambda: trust_pages.accusations(*loaded("accusations", "accusations_cuda")),
    "busy": lambda: trust_pages.busy(if_kept("busy")),
    "audit_cost": lambda: trust_pages.audit_cost(*loaded("audit_cost")),
    "audits": lambda: trust_pages.audits(
        [json.loads(path.read_text()) for path in sorted(RESULTS.glob("audits_*.json"))]
    ),
    "machines": lambda: machines.page(*loaded("machines")),
    "many": lambda: machines.many([if_kept("many_batches.best"), if_kept("many_heads.best")]),
    "cage_cost": lambda: throughput_pages.cage_cost(*loaded("cage_cost")),
    "proposals": lambda: replay_pages.proposals(*loaded("proposals")),
    "transfer": lambda: transfer_pages.said(if_kept("transfer")),
    "transfer_others": lambda: transfer_pages.said_of_others(if_kept("transfer_others"), if_kept("transfer")),
    "branches": lambda: branches.said(if_kept("branches")),
    "choice": lambda: choice_pages.brief(if_kept("choice")),
    "importances": lambda: importance_pages.importances(*loaded("importances")),
    "rates": lambda: people_pages.rates(loaded("throughput_cuda", "throughput_cpu")),
    "after": lambda: people_pages.after(*loaded("transfer_others")),
    "kernel_tuner": lambda: people_pages.kernel_tuner(
        loaded("throughput_kernel_tuner_first", "throughput_kernel_tuner")
    ),
    "package_torch": lambda: torch_versions.table(*loaded("package_torch")),
    "tests_gpu": lambda: gpu_tests_pages.said(if_kept("tests_gpu")),
    "models": models,
    "host_time": lambda: host_time_pages.table(if_kept("host_time_cuda")),
    "new_lengths": lambda: host_time_pages.growing(*map(if_kept, ("new_lengths_cpu", "new_lengths_cuda"))),
    "generate": lambda: host_time_pages.loops(*map(if_kept, ("generate_cuda", "generate_cpu"))),
    "windows": lambda: windows.table(if_kept("windows_attention")),
    "hooked": lambda: hooked.table(*loaded("hooked_models")),
    "after_torch": lambda: after_torch.table(if_kept("after_torch")),
    "chaos": lambda: sweep_pages.chaos(if_kept("chaos")),
    "ray_worker": lambda: sweep_pages.ray_worker(if_kept("ray_worker")),
    "restarts": lambda: sweep_pages.restarts(if_kept("restarts")),
    "workers": lambda: sweep_pages.workers(if_kept("workers")),
    "arguments": arguments_pages.drawn,
    "decode": lambda: decode_pages.few_queries(*map(if_kept, ("decode_attention", "decode_attention_h100"))),
    "fp8": lambda: fp8_pages.measured(if_kept("fp8_attention"), if_kept("fp8_decode")),
    "fp8_llama": lambda: fp8_llama.table(if_kept("fp8_llama")),
    "peers": lambda: peers_pages.beside(if_kept("peers"), "docs/results/peers.svg"),
    "floors": lambda: peers_pages.floors(if_kept("floors")),
    "ideas": lambda: peers_pages.ideas(*map(if_kept, peers_pages.IDEAS)),
    "triton_autotune": lambda: peers_pages.autotuned(if_kept("triton_autotune")),
    "views": lambda: views_pages.views(if_kept("views")),
    "where": lambda: where_pages.where("docs/results/where.svg"),
    "cpu_attention": lambda: cpu_attention(*loaded("cpu_attention")),
    "one_line": lambda: tuned_pages.one_line(if_kept("one_line")),
    "drawn": lambda: tuned_pages.drawn(
        *loaded("drawn20261130", "drawn20261201", "drawn20261203"), again=if_kept("drawn20261201_again")
    ),
    "tuned_wgmma": lambda: tuned_pages.tuned(if_kept("tuned_wgmma"), LARGE, tuned_pages.GPU),
    "one_line_cpu": lambda: tuned_pages.beside_own(if_kept("one_line_cpu")),
    "windows_cpu": lambda: tuned_pages.tuned(if_kept("windows_cpu")),
    "elsewhere": lambda: tuned_pages.elsewhere(if_kept("elsewhere"), *loaded("tuned_wgmma")),
    "counters": lambda: counters_pages.counted(loaded(*counters_pages.KEPT), "docs/results/profiles.svg"),
    "tuned_rmsnorm": lambda: tuned_pages.tuned(if_kept("tuned_rmsnorm")),
    "cpu_rmsnorm": lambda: tuned_pages.on_the_cpu(*map(if_kept, ("cpu_rmsnorm", "cpu_rmsnorm_avx2"))),
    "doors": rooms_page.doors,
}
"""What is drawn into pages, by the name of the part."""


def landscapes_drawn() -> dict[Path, str]:
    """docs/results/landscapes.md, on the kept landscapes."""
    head = "# Landscapes\n\nDrawn by `benchmarks/pages.py` from the files in `landscapes/`; do not edit. What they are "
    head += "and how they are measured is in [replay.md](../method/replay.md#landscapes)."
    part = landscape_pages.part(RESULTS / "landscapes", if_kept("landscapes/floors"))
    return {RESULTS / "landscapes.md": f"{head}\n\n{part}\n"}


def drawn() -> dict[Path, str]:
    """Every page that this program owns or has a part in, as it should be."""
    return {
        path: f"{text.rstrip()}\n" if path.parent == RESULTS and path.suffix == ".md" else text
        for path, text in pages().items()
    }


def pages() -> dict[Path, str]:
    """Their texts, but for what all have in common."""
    folders = ("", "docs", "docs/method", "docs/reference")
    written = [path for folder in folders for path in sorted((ROOT / folder).glob("*.md"))]
    texts = {path: path.read_text() for path in written if path.name != "commands.md"}
    filled = {
        path: insert(text, PARTS | {"rooms": partial(rooms_page.diagram, text)}, str(path.parent.relative_to(ROOT)))
        for path, text in texts.items()
    }
    across, again = loaded("cross_version", "verified_torch")
    return {
        **filled,
        RESULTS / "gate.md": gate_pages.results_page(
            loaded("mutants_cpu", "mutants_cuda"), across, again, loaded("gate_cost_cuda", "gate_cost_cpu")
        ),
        RESULTS / "throughput.md": throughput_page(),
        RESULTS / "where.svg": where_pages.figure(),
        RESULTS / "peers.svg": peers_pages.figure(if_kept("peers")),
        RESULTS / "profiles.svg": counters_pages.figure(loaded(*counters_pages.KEPT)),
        **replay_drawn(),
        **landscapes_drawn(),
        ROOT / "docs" / "reference" / "commands.md": commands_page.page(),
        ROOT / "docs" / "trial-report.schema.json": json.dumps(schemas.of_trial_report(), indent=1) + "\n",
        ROOT / "docs" / "best.schema.json": json.dumps(schemas.of_best(), indent=1) + "\n",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a page is out of date")
    check = parser.parse_args().check
    stale = [path for path, text in drawn().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is out of date' if check else 'drawn'}")
        if not check:
            path.write_text(drawn()[path])
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
