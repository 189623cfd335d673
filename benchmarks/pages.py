"""Draws the pages and the parts of README.md that show figures, from the machine-written files in docs/results/, and
writes the JSON schema of the trial report and the page of the commands.

    python -m benchmarks.pages [--check]

A part of a page between `<!-- NAME -->` and `<!-- /NAME -->` belongs to this program. With --check nothing is written;
the exit code is 1 when a page is not what its results say.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from autotuner.serve.best import json_schema
from autotuner.tuning import trial_report
from benchmarks import people_pages, rooms_page, tuned_pages
from benchmarks.attention import counters_pages, cuda_pages, decode_pages, old_and_new_pages, views_pages, wgmma_pages
from benchmarks.attention.cuda_pages import table
from benchmarks.cli import commands_page
from benchmarks.driver import sweep_pages
from benchmarks.gate import gate_pages
from benchmarks.inference import (
    after_torch,
    gpu_tests_pages,
    host_time_pages,
    in_a_model,
    new_lengths,
    torch_versions,
)
from benchmarks.provenance import RESULTS, ROOT
from benchmarks.search import choice_pages, importance_pages, landscape_pages, replay_pages, transfer_pages
from benchmarks.throughput import throughput_pages
from benchmarks.timing import trust_pages
from benchmarks.timing.wall import whole
from benchmarks.tuned import LARGE

GOALS = {
    "sdpa_cpu": 1.15,
    "sdpa_cpu_small": 1.15,
    "sdpa_cpu_causal": 2.0,
    "sdpa_cpu_bf16": 2.0,
    "sdpa_cpu_long": 1.0,
}
"""The least speedup over SDPA that this project holds itself to, by space."""


def provenance(document: dict[str, Any]) -> str:
    """Where figures come from, in a sentence."""
    environment = document["environment"]
    commands = " and ".join(dict.fromkeys(f"`{row['command']}`" for row in document["rows"]))
    where = f"{document['device']}, {environment['os']}, torch {environment['torch']}, {document['compiler']}"
    return f"Made by {commands} (each row of the JSON names its own) on {document['when'][:10]}: {where}."


MISSION = "(1,8,512,64) float32"
"""Of the CPU's problems those that README.md shows."""
RESULTS_PAGE = "docs/results"


def shown(what: str, when: str, device: str, versions: str, page: str) -> str:
    """Under a short table of README.md: what was measured on, and the page that has all of it."""
    return f"{what}, {device}, {versions}, {when[:10]}. All problems and commands: [{page}]({RESULTS_PAGE}/{page})."


def cpu_brief(document: dict[str, Any]) -> str:
    """The result table of README.md."""
    rows = [
        [
            row["problem"],
            str(row["threads"]),
            f"**{row['speedup']['median']:.2f}x**",
            f"{row['speedup']['low']:.3f} to {row['speedup']['high']:.3f}",
            f"{row['microseconds']:.0f}",
        ]
        for row in document["rows"]
        if row["problem"].startswith(MISSION)
    ]
    head = ["problem", "threads", "speedup over SDPA", "95 % interval", "us, by the search"]
    versions = f"torch {document['environment']['torch']}"
    said = "The microseconds are the search's own; the speedups were measured again in fresh processes. "
    said += shown("Cold cache", document["when"], document["device"], versions, "cpu_attention.md")
    return f"{table(head, rows)}\n\n{said}"


def cuda_brief(document: dict[str, Any]) -> str:
    """The result table of README.md."""
    versions = f"torch {document['environment']['torch']}"
    said = shown("float16", document["when"], document["device"], versions, "cuda_attention.md")
    return f"{cuda_pages.brief(document)}\n\n{said}"


def cpu_summary(document: dict[str, Any]) -> str:
    """Every problem, in a table."""
    head = [
        "problem",
        "threads",
        "speedup over SDPA",
        "95 % interval",
        "three processes",
        "us",
        "GFLOP/s",
        "worst to best",
    ]
    rows = [
        [
            row["problem"],
            str(row["threads"]),
            f"**{row['speedup']['median']:.2f}x**",
            f"{row['speedup']['low']:.3f} to {row['speedup']['high']:.3f}",
            f"{min(row['speedups']):.2f} to {max(row['speedups']):.2f}",
            f"{row['microseconds']:.0f}",
            f"{row['gflops']:.0f}",
            f"{row['spread_worst_to_best']:.0f}x",
        ]
        for row in document["rows"]
    ]
    return f"{table(head, rows)}\n\n{provenance(document)}"


def cpu_page(document: dict[str, Any]) -> str:
    """docs/results/cpu_attention.md."""
    goals = table(
        ["space", "threads", "goal", "reached", "met", "search estimate", "judged"],
        [
            [
                row["space"],
                str(row["threads"]),
                f"{GOALS[row['space']]:.2f}x",
                f"{row['speedup']['median']:.3f}x",
                "yes" if row["speedup"]["median"] >= GOALS[row["space"]] else "**no**",
                f"{row['search_estimate']:.3f}x",
                str(row["judged"]),
            ]
            for row in document["rows"]
        ],
    )
    against_itself = table(
        ["space", "threads", "ratio", "interval", "winner"],
        [
            [
                row["space"],
                str(row["threads"]),
                f"{row['aa_ratio']['median']:.4f}",
                f"{row['aa_ratio']['low']:.4f} to {row['aa_ratio']['high']:.4f}",
                row["aa_winner"] or "none",
            ]
            for row in document["rows"]
        ],
    )
    points = "\n".join(
        f"- {row['space']}, {row['threads']} thread(s): " + " ".join(f"{k}={v}" for k, v in row["best"].items())
        for row in document["rows"]
    )
    return (
        "\n\n".join(
            [
                "# CPU attention against PyTorch's SDPA",
                "Drawn by `benchmarks/pages.py` from cpu_attention.json; do not edit.",
                cpu_summary(document),
                "The speedup is the median of t_SDPA / t_variant over interleaved blocks in a fresh process after the "
                "sweep, the middle one of three such processes; the interval is that process's. Both sides had as many "
                "threads. GFLOP/s and microseconds are the sweep's. Worst to best is the ratio of latencies "
                "among the variants of the sweep that passed the gate.",
                f"## Against the goals\n\n{goals}",
                f"## The same library against itself\n\n{against_itself}",
                f"## The best points\n\n{points}",
            ]
        )
        + "\n"
    )


def abridged(transcript: str, head: int = 6, width: int = 100) -> str:
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
    beside = f"Installing took {found['before_s']:.0f} s before, waiting for a calm machine {found['waited_s']:.0f} s"
    return (
        f"\n\nThe search took {found['search_s']:.0f} s and the finals {found['finals_s']:.0f} s,"
        f" {whole(found) / 60:.1f} minutes together. {beside} beside these ({where})."
    )


OLDER = (
    "`python benchmarks/NAME.py` is a command of an earlier layout: the programs are in the folders of"
    " `benchmarks/` now."
)


def with_older(drawn: str) -> str:
    """What was drawn, and of a command in it that is no more where one finds it now."""
    return f"{drawn.rstrip()}\n\n{OLDER}" if "`python benchmarks/" in drawn else drawn


def insert(text: str, name: str, content: str) -> str:
    """`text` with the part of that name replaced."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"a page has no part {name}")
    return pattern.sub(lambda match: f"{match[1]}{with_older(content)}\n{match[2]}", text)


def loaded(*names: str) -> list[dict[str, Any]]:
    """Kept results, by the names of their files without the ending."""
    return [json.loads((RESULTS / f"{name}.json").read_text()) for name in names]


def kept(*names: str) -> dict[str, dict[str, Any]]:
    """As `loaded`, with the names."""
    return dict(zip(names, loaded(*names), strict=True))


def gate_drawn() -> dict[Path, str]:
    """The pages on the gate."""
    judged, cost = loaded("mutants_cpu", "mutants_cuda"), loaded("gate_cost_cuda", "gate_cost_cpu")
    why = ROOT / "docs" / "why-the-gate.md"
    text = insert(why.read_text(), "missing_barrier", gate_pages.missing_barrier(*loaded("missing_barrier")))
    text = insert(text, "gate_cost", gate_pages.cost_brief(cost))
    text = insert(text, "mutants", gate_pages.mutants_brief(judged))
    oracle, across = loaded("references_cpu", "references_cuda"), loaded("cross_version")[0]
    gate = ROOT / "docs" / "gate.md"
    tested = insert(gate.read_text(), "clock_cuda", gate_pages.clock_on_cuda(*loaded("mutants_clock_cuda")))
    tested = insert(tested, "views", gate_pages.views(kept("mutants_views", "mutants_views_cuda")))
    tested = insert(tested, "warpgroups", gate_pages.warpgroups(kept("mutants_wgmma")))
    tested = insert(tested, "luck", gate_pages.luck(*loaded("luck")))
    soaked = [found for name in ("soak_cpu", "soak_cuda") if (found := if_kept(name)) is not None]
    tested = insert(tested, "soak", gate_pages.soak(soaked))
    return {why: text, gate: tested, RESULTS / "gate.md": gate_pages.results_page(judged, across, oracle, cost)}


def trust_drawn() -> dict[Path, str]:
    """The pages on what a figure is worth."""
    truth = loaded("simulated_truth")[0]
    method, timing = ROOT / "docs" / "finals-method.md", ROOT / "docs" / "timing.md"
    text = insert(method.read_text(), "simulated_truth", trust_pages.simulated(truth))
    text = insert(text, "leader", trust_pages.leader(truth))
    itself = insert(timing.read_text(), "aa_sweeps", trust_pages.aa_sweeps(loaded("aa_sweeps_cuda", "aa_sweeps_cpu")))
    itself = insert(itself, "audit_cost", trust_pages.audit_cost(*loaded("audit_cost")))
    audits = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("audits_*.json"))]
    itself = insert(itself, "audits", trust_pages.audits(audits))
    kept = [found for name in ("disturbed", "disturbed_cuda") if (found := if_kept(name)) is not None]
    busy = ROOT / "docs" / "busy-machine.md"
    there = insert(busy.read_text(), "disturbed", trust_pages.disturbed(kept))
    return {method: text, timing: itself, busy: there, RESULTS / "finals.md": trust_pages.page(truth)}


def kept_sweeps() -> dict[str, dict[str, Any]]:
    """All that the steps `cuda` and `cpu` of benchmarks/throughput/rates.py have kept, by their files."""
    paths = [*sorted(RESULTS.glob("throughput_cuda*.json")), *sorted(RESULTS.glob("throughput_cpu*.json"))]
    return {path.name: json.loads(path.read_text()) for path in paths}


def throughput_drawn() -> dict[Path, str]:
    """docs/results/throughput.md."""
    cuda, cpu, store, devices = (f"throughput_{name}" for name in ("cuda", "cpu", "store", "devices"))
    parts = {
        "On one GPU": throughput_pages.cuda(loaded(f"{cuda}_first", f"{cuda}_second", cuda)),
        "On a CPU": throughput_pages.cpu(*loaded(cpu)),
        "Store and sampler": throughput_pages.store(loaded(store)[0], kept_sweeps()),
        "Several GPUs": throughput_pages.devices(
            loaded(*(f"{devices}_{count}{run}" for count in (2, 4) for run in ("_first", "")))
        ),
        "Kernel Tuner": throughput_pages.kernel_tuner(
            loaded("throughput_kernel_tuner_first", "throughput_kernel_tuner")
        ),
        "Earlier trees": throughput_pages.checkouts(*loaded("checkouts", "landscapes_held")),
    }
    return {RESULTS / "throughput.md": throughput_pages.page(parts)}


def isolation_drawn() -> dict[Path, str]:
    """What docs/isolation.md says of the cage's cost."""
    page = ROOT / "docs" / "isolation.md"
    return {page: insert(page.read_text(), "cage_cost", throughput_pages.cage_cost(*loaded("cage_cost")))}


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
    return {RESULTS / "replay.md": replay_pages.page(sections)} if sections else {}


def search_drawn() -> dict[Path, str]:
    """docs/results/search.md, and what docs/search.md shows of it."""
    choice, three, all_of_them = (if_kept(name) for name in ("choice", "transfer", "transfer_others"))
    search = ROOT / "docs" / "search.md"
    text = insert(search.read_text(), "transfer", transfer_pages.said(three))
    text = insert(text, "transfer_others", transfer_pages.said_of_others(all_of_them, three))
    text = insert(text, "choice", choice_pages.brief(choice))
    parts = {
        "What a proposal takes": replay_pages.proposals(*loaded("proposals")),
        "What a related study is worth": transfer_pages.transfer(three),
        "The same on other landscapes": transfer_pages.others(all_of_them, three),
        "Other settings of the sampler": choice_pages.part(choice),
    }
    head = "# Figures of the search\n\nDrawn by `benchmarks/pages.py` from the JSON files beside it; do not edit. What "
    head += "they mean is in [search.md](../search.md)."
    sections = (f"## {title}\n\n{content}" for title, content in parts.items())
    return {search: text, RESULTS / "search.md": "\n\n".join([head, *sections]) + "\n"}


def optuna_drawn() -> dict[Path, str]:
    """docs/optuna.md."""
    page = ROOT / "docs" / "optuna.md"
    return {page: insert(page.read_text(), "importances", importance_pages.importances(*loaded("importances")))}


def people_drawn() -> dict[Path, str]:
    """docs/how-long.md and docs/compared.md."""
    long, compared = ROOT / "docs" / "how-long.md", ROOT / "docs" / "compared.md"
    text = insert(long.read_text(), "rates", people_pages.rates(loaded("throughput_cuda", "throughput_cpu")))
    text = insert(text, "after", people_pages.after(*loaded("transfer_others")))
    runs = loaded("throughput_kernel_tuner_first", "throughput_kernel_tuner")
    beside = insert(compared.read_text(), "kernel_tuner", people_pages.kernel_tuner(runs))
    return {long: text, compared: insert(beside, "replay_brief", replay_pages.brief(replays()))}


def packages_drawn() -> dict[Path, str]:
    """docs/packages.md."""
    page = ROOT / "docs" / "packages.md"
    text = insert(page.read_text(), "package_torch", torch_versions.table(*loaded("package_torch")))
    return {page: insert(text, "tests_gpu", gpu_tests_pages.said(if_kept("tests_gpu")))}


def models_drawn() -> dict[Path, str]:
    """docs/use-in-a-model.md."""
    page = ROOT / "docs" / "use-in-a-model.md"
    text = insert(page.read_text(), "encoder", in_a_model.table(if_kept("encoder_cpu")))
    text = insert(text, "gpt", in_a_model.generation(if_kept("gpt_cpu")))
    for dtype in ("float16", "bfloat16"):
        text = insert(text, f"encoder_{dtype}", in_a_model.table(if_kept(f"encoder_cuda_{dtype}")))
        text = insert(text, f"gpt_{dtype}", in_a_model.generation(if_kept(f"gpt_cuda_{dtype}")))
    text = insert(text, "host_time", host_time_pages.table(if_kept("host_time_cuda")))
    for name in ("new_lengths_cpu", "new_lengths_cuda"):
        text = insert(text, name, new_lengths.table(if_kept(name)))
    return {page: insert(text, "after_torch", after_torch.table(if_kept("after_torch")))}


def sweeps_drawn() -> dict[Path, str]:
    """docs/sweeps.md and docs/hosts.md."""
    sweeps, hosts = ROOT / "docs" / "sweeps.md", ROOT / "docs" / "hosts.md"
    text = insert(sweeps.read_text(), "chaos", sweep_pages.chaos(if_kept("chaos")))
    text = insert(text, "figures", sweep_pages.figures(if_kept("figures")))
    beside = insert(hosts.read_text(), "ray", sweep_pages.ray(if_kept("ray")))
    return {sweeps: text, hosts: insert(beside, "workers", sweep_pages.workers(if_kept("workers")))}


def kernels_drawn() -> dict[Path, str]:
    """docs/kernels-cuda.md, and rmsnorm's page where it is."""
    page, norm = ROOT / "docs" / "kernels-cuda.md", ROOT / "docs" / "kernels-rmsnorm.md"
    text = insert(
        page.read_text(),
        "decode",
        decode_pages.few_queries(*map(if_kept, ("decode_attention", "decode_attention_h100"))),
    )
    text = insert(text, "old_and_new", old_and_new_pages.old_and_new(if_kept("old_and_new")))
    text = insert(text, "views", views_pages.views(if_kept("views")))
    text = insert(text, "tuned_wgmma", tuned_pages.tuned(if_kept("tuned_wgmma"), LARGE))
    text = insert(text, "elsewhere", tuned_pages.elsewhere(if_kept("elsewhere"), *loaded("tuned_wgmma")))
    text = insert(text, "counters", counters_pages.counted(if_kept("counters"), *loaded("tuned_wgmma")))
    tuned = tuned_pages.tuned(if_kept("tuned_rmsnorm"))
    more = {}
    if norm.exists():
        of_cpus = map(if_kept, ("cpu_rmsnorm", "cpu_rmsnorm_again", "cpu_rmsnorm_avx2"))
        on_the_cpu = tuned_pages.on_the_cpu(*of_cpus)
        more[norm] = insert(insert(norm.read_text(), "tuned_rmsnorm", tuned), "cpu_rmsnorm", on_the_cpu)
    return {page: text, **more}


def rooms_drawn() -> dict[Path, str]:
    """docs/architecture.md."""
    page = ROOT / "docs" / "architecture.md"
    text = page.read_text()
    return {page: insert(insert(text, "rooms", rooms_page.diagram(text)), "doors", rooms_page.doors())}


def landscapes_drawn() -> dict[Path, str]:
    """docs/results/landscapes.md, on the kept landscapes."""
    head = "# Landscapes\n\nDrawn by `benchmarks/pages.py` from the files in `landscapes/`; do not edit. What they are "
    head += "and how they are measured is in [replay.md](../replay.md#landscapes)."
    part = landscape_pages.part(RESULTS / "landscapes", if_kept("landscapes/floors"))
    return {RESULTS / "landscapes.md": f"{head}\n\n{part}\n"}


def drawn() -> dict[Path, str]:
    """Every page that this program owns or has a part in, as it should be."""
    return {
        path: f"{with_older(text).rstrip()}\n" if path.parent == RESULTS and path.suffix == ".md" else text
        for path, text in pages().items()
    }


def pages() -> dict[Path, str]:
    """Their texts, but for what all have in common."""
    document = json.loads((RESULTS / "cpu_attention.json").read_text())
    transcript = abridged((RESULTS / "make_tune.txt").read_text())
    readme = (ROOT / "README.md").read_text()
    readme = insert(readme, "cpu_attention", cpu_brief(document))
    readme = insert(readme, "make_tune", f"```\n{transcript}\n```{took(if_kept('make_tune'))}")
    cuda = json.loads((RESULTS / "cuda_attention.json").read_text())
    readme = insert(readme, "cuda_attention", cuda_brief(cuda))
    readme = insert(readme, "replay", replay_pages.brief(replays()))
    smoke = (RESULTS / "cuda_smoke.txt").read_text()
    return {
        **gate_drawn(),
        **rooms_drawn(),
        **trust_drawn(),
        **throughput_drawn(),
        **isolation_drawn(),
        **replay_drawn(),
        **search_drawn(),
        **landscapes_drawn(),
        **optuna_drawn(),
        **people_drawn(),
        **packages_drawn(),
        **models_drawn(),
        **sweeps_drawn(),
        **kernels_drawn(),
        ROOT / "README.md": readme,
        RESULTS / "cpu_attention.md": cpu_page(document),
        RESULTS / "cuda_attention.md": cuda_pages.page(cuda, smoke),
        RESULTS / "wgmma_attention.md": wgmma_pages.page(loaded("wgmma_attention")[0], if_kept("wgmma_stress")),
        ROOT / "docs" / "reference" / "commands.md": commands_page.page(),
        ROOT / "docs" / "trial-report.schema.json": json.dumps(trial_report.json_schema(), indent=1) + "\n",
        ROOT / "docs" / "best.schema.json": json.dumps(json_schema(), indent=1) + "\n",
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
