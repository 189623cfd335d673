"""docs/results/replay.md, from the kept results of benchmarks/search/replay.py."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table
from benchmarks.provenance import made

Document = dict[str, Any]


def _score(score: dict[str, float]) -> str:
    return f"{score['p']:.3f} ({score['low']:.3f} to {score['high']:.3f})"


def _named(each: Document) -> list[str]:
    return [each["sampler"], str(each["in_flight"])]


def scores(run: Document) -> str:
    """A line for each sampler, a column for each space."""
    of = {(row["sampler"], row["in_flight"], row["space"]): row for row in run["rows"]}
    head = ["sampler", "in flight", "mean over the spaces", *run["spaces"]]
    lines = [
        [
            *_named(mean),
            f"**{mean['time']['p']:.3f}** ({mean['time']['low']:.3f} to {mean['time']['high']:.3f})",
            *(_score(of[mean["sampler"], mean["in_flight"], space]["time"]) for space in run["spaces"]),
        ]
        for mean in run["means"]
    ]
    return table(head, lines)


def brief(runs: list[Document]) -> str:
    """The means of all runs, for the README."""
    axes = ("mean score on worker-seconds (95 % interval)", "on the clock")
    head = ["sampler", "in flight", *axes, "public spaces", "searches of each"]
    lines = [
        [*_named(mean), _score(mean["time"]), _score(mean["clock"]), str(len(run["spaces"])), str(run["seeds"])]
        for run in runs
        for mean in run["means"]
    ]
    said = (
        "Worker-seconds are those of evaluations that have ended, with the waiting for proposals; the clock's are"
        " seconds since the start, times the number in flight."
    )
    return f"{table(head, lines)}\n\n{said}"


def spaces(run: Document) -> str:
    """What was searched."""
    head = ["space", "device", "parameters", "points", "that run", "optimum ms", "median ms", "evaluations", "seconds"]
    lines = [
        [
            name,
            each["device"],
            str(each["parameters"]),
            f"{each['points']:,}",
            f"{each['measured']:,}",
            f"{each['optimum_ms']:.4g}",
            f"{each['median_ms']:.4g}",
            f"{each['budget']['evaluations']:,}",
            f"{each['budget']['worker_seconds']:,.0f}",
        ]
        for name, each in run["spaces"].items()
    ]
    return table(head, lines)


def section(run: Document, figure: str | None) -> str:
    """One kept run; `figure` is the name of its drawing, beside the page."""
    charged = "charged" if run["sampler_is_charged"] else "free"
    said = f"{run['seeds']} searches of each; the sampler's own time is {charged}."
    drawing = [f"![Best so far against the share of the budget]({figure})"] if figure is not None else []
    return "\n\n".join([said, scores(run), *drawing, made(run)])


def page(sections: dict[str, str], run: Document) -> str:
    """docs/results/replay.md. `run`: one of the runs, whose spaces are those of all."""
    head = "# Samplers on recorded spaces\n\nDrawn by `benchmarks/pages.py` from the JSON files beside it; do not edit."
    head += " What they mean is in [replay.md](../method/replay.md): 0 is random search, 1 the optimum from the start;"
    head += " scores are on the time axis, with 95 % intervals."
    parts = {**sections, "The spaces": spaces(run)}
    return "\n\n".join([head, *(f"## {title}\n\n{text}" for title, text in parts.items())]) + "\n"


def proposals(document: Document) -> str:
    """What a proposal takes, from benchmarks/search/proposals.py."""
    rows = document["rows"]
    least, most = min(row["median_ms"] for row in rows), max(row["median_ms"] for row in rows)
    points = [row["valid_points"] for row in rows]
    longest = max(row["longest_ms"] for row in rows)
    return (
        f"In spaces of {min(points):,} to {max(points):,} points a proposal takes {least:.1f} to {most:.1f} ms by the"
        f" median, and {longest:.0f} ms at most. Made by `{document['command']}`: {document['cpu']}."
    )
