"""What docs/start.md and docs/method/compared.md show of kept results."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table

Document = dict[str, Any]


def rates(documents: list[Document]) -> str:
    """How many variants a minute are judged."""
    head = ["device", "problem", "variants a minute", "with the start", "CPUs"]
    rows = [
        [
            each["device"],
            each["problem"],
            f"{each['a_minute']:.0f}",
            f"{each['a_minute_with_calibration']:.0f}",
            str(each["cpus"]),
        ]
        for each in documents
    ]
    said = "The commands and all figures are in [results/throughput.md](docs/results/throughput.md)."
    return f"{table(head, rows)}\n\n{said}"


def after(document: Document) -> str:
    """How many variants it takes until one is near the best, by landscape."""
    targets: dict[str, dict[str, float]] = {}
    for row in document["rows"]:
        targets.setdefault(row["target"], row["median_evaluations"])
    cold, unaided = ([found[name] for found in targets.values()] for name in ("cold", "unaided"))
    return (
        f"Until one is within {document['within']:.0%} of the best point, `{document['sampler']}` judges"
        f" {min(cold):.0f} to {max(cold):.0f} variants by the median over {document['seeds']} searches of each of"
        f" {len(targets)} landscapes; {min(unaided):.0f} to {max(unaided):.0f} where the space has no expected latency."
        " transfer_others.json has the command."
    )


def kernel_tuner(runs: list[Document]) -> str:
    """The same configurations by Kernel Tuner and here."""
    head = ["run", "Kernel Tuner", "autotuner", "with its calibration"]
    rows = [
        [
            run["when"][:10],
            f"{run['kernel_tuner']['a_minute']:.0f} a minute",
            f"{run['autotuner']['a_minute']:.0f} a minute",
            f"{run['ratio_with_calibration']:.2f} times as fast",
        ]
        for run in runs
    ]
    what = f"{runs[-1]['configurations']} configurations at {runs[-1]['problem']} on {runs[-1]['device']}."
    theirs = runs[-1]["kernel_tuner"]
    made = f"Kernel Tuner {theirs['version']} with cupy {theirs['cupy']}. Made by `{runs[-1]['command']}`."
    return f"{table(head, rows)}\n\n{what} {_where_the_time_went(runs)} {made}"


def _where_the_time_went(runs: list[Document]) -> str:
    """Of both sides, run by run."""
    theirs = [run["kernel_tuner"]["stages_ms"]["total_compile_time"] / 1e3 for run in runs]
    compiling = [f"{one:.0f} of {run['kernel_tuner']['seconds']:.0f} s" for one, run in zip(theirs, runs, strict=True)]
    verdicts = [run["autotuner"]["verdicts"] for run in runs]
    stopped = [f"{each['raced_out']} of {sum(each.values())}" for each in verdicts]
    cpus = runs[-1]["autotuner"]["cpus"]
    return (
        f"Kernel Tuner's compile stage took {' and '.join(compiling)}; autotuner builds side by side on {cpus} CPUs."
        f" Kernel Tuner times every configuration to the end; autotuner stopped {' and '.join(stopped)} races early."
    )
