"""Tables of the finals' method, of simulated truth and of the A/A sweeps, from their kept results."""

from __future__ import annotations

from typing import Any

from benchmarks.attention.cuda_pages import table

Document = dict[str, Any]
REGIMES_SHOWN = ("0.2 %", "1 %", "0.1 % and 1 %")
METHODS_SHOWN = ("own", "pooled", "larger")
FINALISTS_SHOWN = 9


def share(pair: list[int]) -> str:
    """`pair`: so many of so many."""
    return f"{100 * pair[0] / pair[1]:.1f} %" if pair[1] else ""


def simulated(document: Document) -> str:
    """Whole sweeps on known truth, a regime a row."""
    head = [
        "conditions",
        "equal, crowned",
        "equal, lost",
        "5 % slower, removed",
        "2 % better: found",
        "in the tie set",
        "covered",
        "covered, leader",
        "median blocks",
    ]
    regimes = dict.fromkeys(row["regime"] for row in document["rows"])
    rows = [_regime(name, [row for row in document["rows"] if row["regime"] == name]) for name in regimes]
    said = (
        f"{document['sweeps']} sweeps of {document['candidates']} candidates for each of the conditions and each of two"
        f" cases (all of the best equal; one 2 % better); finals of {document['processes']} processes with"
        f" {document['final_blocks']} blocks. Made by `{document['command']}` on {document['when'][:10]}."
    )
    return f"{table(head, rows)}\n\n{said}"


def _regime(name: str, rows: list[Document]) -> list[str]:
    equal = next(row for row in rows if not row["one_is_2_percent_better"])
    better = next(row for row in rows if row["one_is_2_percent_better"])
    one, other = equal["counts"], better["counts"]
    return [
        name,
        share(one["crowned_wrongly"]),
        share(one["equal_lost"]),
        share(one["5_%_slower_removed"]),
        share(other["found"]),
        share(other["tied"]),
        f"{share(one['covered'])}, {share(other['covered'])}",
        f"{share(one['leader_covered'])}, {share(other['leader_covered'])}",
        f"{equal['blocks_median']:.0f}, {better['blocks_median']:.0f}",
    ]


def methods(document: Document) -> str:
    """Numbers of processes and deviations compared, for one number of finalists."""
    head = ["between processes", "processes", *(f"covered, leader: {name}" for name in METHODS_SHOWN), "found, 2 %"]
    kept = [row for row in document["methods"] if row["finalists"] == FINALISTS_SHOWN]
    rows = []
    for regime in REGIMES_SHOWN:
        for processes in sorted({row["processes"] for row in kept}):
            found = {
                row["method"]: row
                for row in kept
                if (row["between_processes"], row["processes"]) == (regime, processes)
            }
            if not all(name in found for name in METHODS_SHOWN):
                continue
            cells = [
                f"{found[name]['covered']:.1%}, {found[name]['leader_covered']:.1%}".replace("%", " %")
                for name in METHODS_SHOWN
            ]
            rows.append([regime, str(processes), *cells, f"{found['own']['found_2_percent']:.1%}".replace("%", " %")])
    return f"{table(head, rows)}\n\n{FINALISTS_SHOWN} finalists; other numbers of them are in the JSON."


def page(document: Document) -> str:
    """docs/results/finals.md."""
    head = "# How many processes the finals need\n\nDrawn by `benchmarks/pages.py` from simulated_truth.json; do not "
    head += "edit. What it means is in [finals-method.md](../finals-method.md)."
    return f"{head}\n\n{methods(document)}\n\nMade by `{document['command']}` on {document['when'][:10]}.\n"


def aa_sweeps(documents: list[Document]) -> str:
    """Sweeps in which nobody can win."""
    head = [
        "device",
        "sweeps",
        "crowned",
        "candidates",
        "promoted wrongly",
        "lost equal arms",
        "finalists",
        "intervals that cover 1",
        "leader off by at most",
        "search estimate off by at most",
    ]
    rows = []
    for document in documents:
        found = document["summary"]
        rows.append(
            [
                document["device"],
                str(found["sweeps"]),
                str(found["crowned"]),
                str(found["candidates"]),
                str(found["promoted_wrongly"]),
                str(found["lost_equal_arms"]),
                str(found["finalists"]),
                f"{100 * found['covered']:.1f} %",
                f"{100 * found['largest_leader']:.2f} %",
                f"{100 * found['largest_estimate']:.2f} %",
            ]
        )
    said = "; ".join(f"`{each['command']}` on {each['when'][:10]}, torch {each['torch']}" for each in documents)
    return f"{table(head, rows)}\n\nMade by {said}."
