"""Tables of the finals' method, of simulated truth and of the A/A sweeps, from their kept results."""

from __future__ import annotations

from itertools import chain
from typing import Any

from benchmarks.markdown import table
from benchmarks.timing import finals_methods

Document = dict[str, Any]
SHOWN = ("covered", "leader_covered", "equal_lost", "crowned_two_equal_ahead", "found_2_percent")


def share(pair: list[int]) -> str:
    """`pair`: those of which it holds, and all. Both are shown: of few a share says little."""
    return f"{100 * pair[0] / pair[1]:.1f} % ({pair[0]}/{pair[1]})" if pair[1] else ""


def simulated(document: Document) -> str:
    """Whole sweeps on known truth, a regime a row."""
    head = [
        "conditions",
        "equal, crowned",
        "equal, given up in the search",
        "2 % better: found",
        "in the tie set",
        "covered, leader",
    ]
    regimes = dict.fromkeys(row["regime"] for row in document["rows"])
    rows = [_regime(name, [row for row in document["rows"] if row["regime"] == name]) for name in regimes]
    said = (
        f"{document['sweeps']} sweeps of {document['candidates']} candidates for each condition and each of two"
        f" cases (all of the best equal; one 2 % better); finals of {document['processes']} processes at most,"
        f" {document['final_blocks']} blocks each. Made by `{document['command']}` on {document['when'][:10]}."
    )
    return f"{table(head, rows)}\n\n{said}"


def heats(document: Document | None) -> str:
    """Where the seconds of a heat go, and what finals of so many resolve: a sentence a problem."""
    if document is None:
        return "Not measured yet."
    return "\n".join(f"- {_heat(row)}" for row in document["rows"] if row["process"] == "finalist")


def _heat(row: Document) -> str:
    longest = sorted(row["seconds"].items(), key=lambda each: -each[1])[:2]
    parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in longest)
    apart = (
        f"; {row['heats'] // 2} of each of two resolve {100 * row['resolution']:.1f} %" if "resolution" in row else ""
    )
    return f"{row['problem']}, {row['device']}: {row['whole']:.1f} s a process ({parts}){apart}. {row['when'][:10]}."


def _regime(name: str, rows: list[Document]) -> list[str]:
    equal = next(row for row in rows if not row["one_is_2_percent_better"])
    better = next(row for row in rows if row["one_is_2_percent_better"])
    one, other = equal["counts"], better["counts"]
    counts = (one["crowned_wrongly"], one["equal_lost"], other["found"], other["tied"])
    covered = f"{_of(one['leader_covered'])}, {_of(other['leader_covered'])}"
    return [name, *map(_of, counts), covered]


def _of(pair: list[int]) -> str:
    return "{}/{}".format(*pair)


def leader(document: Document) -> str:
    """docs/method/finals.md: how wide the leader's intervals are, and where they are worst."""
    head = ["processes", "half width without races", "with", "leader covered, least"]
    methods = document["methods"]
    spread, fewest = "1 %", min(finals_methods.FINALISTS)
    rows = []
    for most in dict.fromkeys(each["processes"] for each in methods):
        of = [each for each in methods if each["processes"] == most]
        widths = {
            each["searched"]: _percent(each["half_width"])
            for each in of
            if each["between_processes"] == spread and each["finalists"] == fewest
        }
        least = min(float(each["leader_covered"]) for each in of)
        rows.append([str(most), widths["none"], widths["alike"], _percent(least)])
    most_crowned = _percent(max(each["crowned_two_equal_ahead"] for each in methods))
    said = (
        f"Half widths: {fewest} finalists whose loads differ by {spread}; {finals_methods.FINALS} finals a row. Of two"
        f" equals ahead one was crowned in {most_crowned} at most."
    )
    return f"{table(head, rows)}\n\n{said}"


def busy(document: Document | None) -> str:
    """docs/method/busy-machine.md: whole runs with and without other work."""
    if document is None:
        return "No result is kept yet."
    head = ["machine", "runs", "judged", "winner", "interval above 1", "has the quiet ratio", "wrong crowns", "seconds"]
    rows = []
    for name in ("quiet", "busy"):
        found = document[name]
        of = [run for run in document["runs"] if run["is_busy"] == (name == "busy")]
        above = sum(run["speedup"] is not None and run["speedup"]["low"] > 1 for run in of)
        seconds = " to ".join(f"{each:.0f}" for each in found["seconds"])
        judged = " to ".join(map(str, found["judged"]))
        counts = [found["winners"], above, found["covered"], found["crowns_missed"]]
        rows.append([name, str(found["runs"]), judged, *map(str, counts), seconds])
    said = (
        f"`tune --minutes {document['minutes']:g}` at {document['problem']}."
        f" Made by `{document['command']}` on {document['when'][:10]}."
    )
    return f"{table(head, rows)}\n\n{said}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


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
    said = "; ".join(f"`{each['command']}` on {each['when'][:10]}" for each in documents)
    return f"{table(head, rows)}\n\nMade by {said}."


def audit_cost(document: Document) -> str:
    """docs/method/timing.md: the share of whole sweeps that audits take."""
    said = ", ".join(
        f"{100 * row['share']:.1f} % of {row['search_s'] + row['finals_s']:.0f} s at {row['problems'][0]} on"
        f" {row['device']}"
        for row in document["rows"]
    )
    runs = " and ".join(dict.fromkeys(f"`{row['command']}`" for row in document["rows"]))
    return f"Audits took of search and finals {said}. Made by {runs} on {document['rows'][-1]['when'][:10]}."


def audits(documents: list[Document]) -> str:
    """docs/method/timing.md: what audits said of right kernels, a device and a cache policy a row."""
    if not documents:
        return "No result is kept yet."
    head = ["device", "cache", "points", "accused", "rejected", "fresh inputs cost: medians", "an audit takes"]
    found: dict[tuple[str, str], dict[str, list[Document]]] = {}
    runs = [run for document in documents for run in document["runs"]]
    for run in runs:
        for name, caches in run["spaces"].items():
            for cache, one in caches.items():
                found.setdefault((run["device"], cache), {}).setdefault(name, []).append(one)
    rows = [[*key, *_audited([*chain(*spaces.values())])] for key, spaces in found.items()]
    torch = ", ".join(sorted({run["versions"]["torch"] for run in runs}))
    days = sorted({run["when"][:10] for run in runs})
    said = (
        "Costs are relative to a plain forward: what it takes longer on fresh inputs, the medians of the runs. Made by"
        f" `python -m benchmarks.timing.audits`, torch {torch}, {days[0]} to {days[-1]}; each JSON has its spaces,"
        " options and seeds."
    )
    return f"{table(head, rows)}\n\n{said}"


def _audited(runs: list[Document]) -> list[str]:
    """What the runs of a device with one cache policy say together."""
    medians = [each["kept"][1] for each in runs]
    seconds = [each["seconds"] for each in runs]
    return [
        f"{sum(each['points'] for each in runs):,}",
        str(sum(len(each["accused"]) for each in runs)),
        str(sum(len(each.get("rejected", ())) for each in runs)),
        f"{100 * min(medians):+.2f} to {100 * max(medians):+.2f} %",
        f"{min(seconds):.1f} to {max(seconds):.1f} s",
    ]


def accusations(cpu: Document, cuda: Document) -> str:
    """How many honest variants were accused on a busy CPU and GPU."""
    told = (_accused(cpu, "two busy loops a CPU"), _accused(cuda, "another process's products on a GPU"))
    return f"Honest variants: {'; '.join(told)}."


def _accused(document: Document, beside: str) -> str:
    disturbed, where = document["verdicts"].get("disturbed", 0), document.get("device")
    beside += f" ({where})" if where else ""
    return (
        f"of {len(document['rows'])} beside {beside} {len(document['accused'])} were accused, {disturbed} `disturbed`"
    )
