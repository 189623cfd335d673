"""What docs/reference/sweeps.md, store.md and hosts.md show of kept results; None where nothing is kept."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table
from benchmarks.provenance import made

NOTHING = "Not measured yet."


def chaos(document: dict[str, Any] | None) -> str:
    """A worker that is struck at random, and one that is not."""
    if document is None:
        return NOTHING
    rows = [
        [words, f"{run['judged']:,}", f"{run['worked_s']:.0f}", f"{run['wall_s']:.0f}", f"{run['true_us']:,.1f}"]
        for words, run in (("struck", document["struck"]), ("undisturbed", document["undisturbed"]))
    ]
    strikes = document["strikes"]
    said = ", ".join(f"{what} {count}" for what, count in strikes.items())
    said = f"{sum(strikes.values())} strikes ({said}); told to go, the worker went within "
    said += f"{document['slowest_end_s']:.1f} s; it took at most {document['peak_mib']:.0f} MiB and "
    said += f"{document['peak_files']} files."
    head = ["sweep", "judged", "worked, s", "wall, s", "the winner's true us"]
    return f"{table(head, rows)}\n\n{said} {made(document)}"


def ray_worker(document: dict[str, Any] | None) -> str:
    """Nodes that judge in earnest."""
    if document is None:
        return NOTHING
    runs = document["runs"]
    rows = [
        [
            f"{run['nodes']}{', one killed on the way' if run['killed_after_s'] else ''}",
            str(run["judged"]),
            str(run["lost"]),
            f"{run['rate']:.2f}",
            "confirmed" if run["confirmed"] else "the finals' time was too short to confirm it",
        ]
        for run in runs.values()
    ]
    both = {"one", "two"} <= runs.keys()
    ratio = f"Two nodes have {runs['two']['rate'] / runs['one']['rate']:.2f} times the rate of one. " if both else ""
    said = f"{ratio}A node has {'a GPU and ' if document['gpus'] else ''}a half of {document['cpus']} CPUs; "
    said += f"{document['device']} ([kept](../results/ray_worker.json)). {made(document)}"
    return f"{table(['nodes', 'judged', 'lost', 'judged a second', 'best'], rows)}\n\n{said}"


def restarts(document: dict[str, Any] | None) -> str:
    """A server that is restarted while a worker works."""
    if document is None:
        return NOTHING
    sweeps = document["sweeps"]
    gone = [seconds for sweep in sweeps for seconds in sweep["gone_s"]]
    said = (
        f"In {len(sweeps)} sweeps of {sweeps[0]['judged']} trials {document['restarts']} restarts, {min(gone):.1f} to "
    )
    said += f"{max(gone):.1f} s each: {document['workers_ended']} workers ended, {document['trials_lost']} trials lost."
    return f"{said} {made(document)}"


def workers(document: dict[str, Any] | None) -> str:
    """A worker on each GPU against one."""
    if document is None:
        return NOTHING
    rows = [
        [
            count,
            str(found["judged"]),
            f"{found['rate']:.2f} ({document['ratios'][count]:.2f}x)",
            f"{found['whole_rate']:.2f} ({document['whole_ratios'][count]:.2f}x)",
            f"{found['seconds']:.1f}",
        ]
        for count, found in document["by_workers"].items()
    ]
    head = ["workers and sweeps", "variants", "a second, while all judge", "a second, of the whole time", "s"]
    said = f"Sweeps of {document['trials']} variants; {document['device']}, torch {document['torch']}."
    return f"{table(head, rows)}\n\n{said} {made(document)}"
