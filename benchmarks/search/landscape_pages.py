"""What the kept landscapes are, in a table: for docs/results/landscapes.md and for benchmarks/search/landscapes.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import provenance
from benchmarks.markdown import table
from benchmarks.search.replay_spaces import Landscape, LandscapePoint

NEAR, FAR = 0.02, 0.1
"""How far from the best a point is that a table counts, relative."""

HEAD = [
    "space",
    "problem",
    "points",
    "verdicts",
    "SDPA us",
    "best us",
    "best against SDPA",
    "slowest to best",
    f"within {100 * NEAR:.0f} %",
    f"within {100 * FAR:.0f} %",
    f"known to, within {100 * FAR:.0f} %",
    "tie",
    "seconds",
]

SHOWN = ("space", "problem", "points", "best us", "best against SDPA", "slowest to best", HEAD[8])
"""What the page shows of them; `landscapes summary` prints all."""


def named(paths: Iterable[Path]) -> dict[str, Landscape]:
    """Landscapes by the names of their files. Raises InputError when one is none."""
    return {path.name.split(".json")[0]: Landscape.read(path) for path in paths}


def summary(landscapes: Mapping[str, Landscape], shown: Sequence[str] = HEAD) -> str:
    """A line for each, with the columns that are `shown`."""
    lines = [dict(zip(HEAD, _line(name, each), strict=True)) for name, each in landscapes.items()]
    return table([*shown], [[line[column] for column in shown] for line in lines])


def _line(name: str, landscape: Landscape) -> list[str]:
    points = landscape.points
    verdicts = Counter(each.verdict for each in points).most_common()
    head = [
        name,
        ", ".join(map(str, landscape.space.problems)),
        f"{len(points):,}",
        ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts),
    ]
    seconds = f"{sum(sum(each.seconds.values()) for each in points):,.0f}"
    times = [each.us for each in points if each.us is not None]
    if not times:
        return [*head, *["-"] * (len(HEAD) - len(head) - 1), seconds]
    best, baseline = min(times), landscape.baseline_us
    return [
        *head,
        f"{baseline:.2f}" if baseline is not None else "-",
        f"{best:.2f}",
        f"{baseline / best:.2f}x" if baseline is not None else "-",
        f"{max(times) / best:.1f}x",
        _share(len(within(landscape, NEAR)), len(points)),
        _share(len(within(landscape, FAR)), len(points)),
        _known_to(within(landscape, FAR)),
        f"{100 * landscape.tie:.2f} %" if landscape.tie is not None else "-",
        seconds,
    ]


def within(landscape: Landscape, share: float) -> list[LandscapePoint]:
    """The points that are so close to the best, relative."""
    best = min((each.us for each in landscape.points if each.us is not None), default=0.0)
    return [each for each in landscape.points if each.us is not None and each.us <= best * (1 + share)]


def _share(count: int, whole: int) -> str:
    return f"{count} ({100 * count / whole:.1f} %)"


def _known_to(points: list[LandscapePoint]) -> str:
    widths = [each.half_width for each in points if each.half_width is not None]
    return f"±{100 * median(widths):.2f} %, at worst ±{100 * max(widths):.2f} %" if widths else "-"


def part(folder: Path, floors: Mapping[str, Any] | None) -> str:
    """The body of docs/results/landscapes.md: the table, the floors, and where the figures come from."""
    found = named([*sorted(folder.glob("*.json.gz")), *sorted(folder.glob("others/*.json.gz"))])
    if not found:
        return "None is kept yet."
    commands = "Each file has the command that measured it; all are of"
    devices = " and of ".join(dict.fromkeys(where(each) for each in found.values()))
    said = [summary(found, SHOWN), f"{commands} {devices}.", *([_floors(floors)] if floors is not None else [])]
    return "\n\n".join(said)


def where(landscape: Landscape) -> str:
    """What it was measured on, with the versions."""
    environment = {**landscape.device.environment, "compiler": landscape.compiler}
    named = ("driver_module", "torch", "compiler")
    versions = [f"{name.removesuffix('_module')} {environment[name]}" for name in named if environment.get(name)]
    return ", ".join([landscape.device.name, *versions])


def _floors(document: Mapping[str, Any]) -> str:
    head = ["space", "evolution", "random", "floor", f"mean score of seeds 0 to {document['fixed_seeds'] - 1}"]
    rows = [
        [
            name,
            *(f"{each[sampler]['mean']:.3f} ± {each[sampler]['deviation']:.3f}" for sampler in ("evolution", "random")),
            f"**{each['floor']:.3f}**",
            f"{each['fixed']:.3f}",
        ]
        for name, each in document["landscapes"].items()
    ]
    said = f"Scores on the evaluations axis, mean and standard deviation over {document['seeds']} single searches each."
    return f"{table(head, rows)}\n\n{said} {provenance.made(document)}"
