"""Draws the first points of the kernel families from kept results, and writes kernels/FAMILY/first_points.toml.

    python -m benchmarks.search.first_points [--check] [--begun]

For each implementation the fastest point at each problem that docs/results has one of, the best ratio first; a problem
that is near to one that is there already is left out. Threads are written as what the machine allowed, where they were
all of them. --check writes nothing: the exit code is 1 where a file is not what the results say. --begun says at how
many kept problems on CUDA a search begins with the implementation that was the fastest there.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from autotuner.forge.family import Family
from autotuner.ops import OPS
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.spaces.first_points import FILE, nearest, read_first_points
from autotuner.values import config
from autotuner.values.problem import Problem
from benchmarks.attention.decode import common
from benchmarks.attention.peers_pages import IDEAS
from benchmarks.attention.windows import best_of, gains
from benchmarks.provenance import RESULTS
from benchmarks.search.replay_spaces import Landscape, read

APART = 1.0
"""How far the problems of one implementation are from each other at least, in doublings and changes."""
HEAD = """\
# Where a search begins: the fastest points that were found of each implementation, and at which problem. Drawn from
# docs/results by `python -m benchmarks.search.first_points`; docs/method/search.md says what a study makes of them.
"""


class Kept(NamedTuple):
    """A point that a kept result calls the fastest of its implementation at a problem."""

    kind: str
    problem: Problem
    device: str
    speedup: float
    point: dict[str, Any]


def kept() -> Iterator[Kept]:
    """All of them."""
    for row in _read("peers")["rows"]:
        if "speedup" in row:
            problem = OPS["sdpa"].problem.parse(row["problem"])
            yield Kept("cuda", problem, row["device"], row["speedup"]["cudnn"]["mid"], row["parameters"])
    for raced in map(_read, IDEAS):
        for row in raced["fastest"]:
            ratios = [each["mid"] for name, each in row["speedup"].items() if name in ("cudnn", "flex")]
            if ratios:
                point, problem = _labelled(row["point"]), SdpaProblem.parse(row["problem"])
                yield Kept("cuda", problem, raced["device"], min(ratios), point)
    for op, name in (("sdpa", "tuned_wgmma"), ("sdpa", "one_line"), ("rmsnorm", "tuned_rmsnorm")):
        for row in _read(name)["rows"]:
            if row.get("parameters") and row["confirmed"]["low"] is not None:
                problem = OPS[op].problem.parse(row["problem"])
                yield Kept("cuda", problem, row["device"], row["confirmed"]["mean"], row["parameters"])
    for op, names in (("sdpa", ["cpu_attention"]), ("rmsnorm", ["cpu_rmsnorm", "cpu_rmsnorm_avx2"])):
        for name in names:
            yield from _of_cpu(op, _read(name))
    yield from _by_implementation(_read("cuda_attention"))
    for name in ("decode_attention", "decode_attention_h100"):
        yield from _of_decode(_read(name))
    yield from _of_windows(_read("windows_attention"))
    for path in sorted((RESULTS / "landscapes").rglob("*.json.gz")):
        yield _of_landscape(path)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def _of_cpu(op: str, document: dict[str, Any]) -> Iterator[Kept]:
    """With all threads that the machine has: one thread is another machine."""
    most = max(row["threads"] for row in document["rows"])
    for row in document["rows"]:
        if row["threads"] == most:
            point = {**row["best"]}
            if most > 1 and point.get("THREADS") == most:
                # The threads that are offered beside torch's: no other policy is, and one thread would be the nearest.
                point |= {"THREADS": "THREADS_ALLOWED", "SYNC_POLICY": 4}
            problem, speedup = OPS[op].problem.parse(row["problem"]), row["speedup"]["median"]
            yield Kept("cpu", problem, document["device"], speedup, point)


def _by_implementation(document: dict[str, Any]) -> Iterator[Kept]:
    """The best of each, against the fastest backend with a cold cache."""
    for text, shape in document["shapes"].items():
        for impl, found in shape["sensitivity"].items():
            races = shape["races"].get(impl, {}).get("cold", {})
            if races:
                ratio = max(race["ln_ratio"][1] for race in races.values())
                yield Kept("cuda", OPS["sdpa"].problem.parse(text), document["device"], math.exp(-ratio), found["best"])


def _of_decode(document: dict[str, Any]) -> Iterator[Kept]:
    for shape in document["shapes"]:
        speedups = {text: found["median"] for text, found in shape["cold"]["speedup"].items()}
        text = max(speedups, key=lambda each: speedups[each])
        problem = SdpaProblem.parse(shape["problem"])
        point = _labelled(text) | {"IMPL": "decode", **common(problem)}
        yield Kept("cuda", problem, document["device"], speedups[text], point)


def _of_windows(document: dict[str, Any]) -> Iterator[Kept]:
    """Against the fastest of torch, where one of it was timed."""
    for shape in document["shapes"]:
        of_torch = [gain for name, gain in gains(shape).items() if name in ("cudnn", "efficient", "flex")]
        point = _labelled(best_of(shape)) | {"IMPL": shape["impl"]}
        if of_torch:
            yield Kept("cuda", SdpaProblem.parse(shape["problem"]), document["device"], min(of_torch), point)


def _labelled(text: str) -> dict[str, Any]:
    words = dict(word.split("=") for word in text.split())
    return {name: int(value) if value.isdecimal() else value for name, value in words.items()}


def _of_landscape(path: Path) -> Kept:
    recorded = read(path)
    place = int(min(range(len(recorded.ms)), key=lambda each: (math.isnan(recorded.ms[each]), recorded.ms[each])))
    problem = recorded.space.file.problems[0]
    speedup = (Landscape.read(path).baseline_us or math.nan) / (1e3 * float(recorded.ms[place]))
    return Kept(recorded.space.file.backend, problem, recorded.device, speedup, recorded.space.point(place))


def thinned(points: list[Kept]) -> list[Kept]:
    """Those that are worth shipping, of one implementation: the best ratios first, no two of near problems. Rows of
    another length are not near: tiles that fit them may not fit these; nor are calls that ask for more, whose ratios
    are to another baseline."""
    found: list[Kept] = []
    for each in sorted(points, key=lambda each: -each.speedup):
        distance = OPS[each.problem.op].distance
        alike = (other for other in found if _asked(other.problem) == _asked(each.problem))
        if all(distance(each.problem, other.problem) >= APART for other in alike):
            found.append(each)
    return sorted(found, key=lambda each: str(each.problem))


def _asked(problem: Problem) -> list[object]:
    return [getattr(problem, name, None) for name in ("head_dim", "windowed", "softcapped", "sinks", "bias")]


def documents() -> dict[str, str]:
    """The text of each family's file."""
    groups: dict[str, dict[tuple[str, str], list[Kept]]] = defaultdict(lambda: defaultdict(list))
    for each in kept():
        groups[each.problem.op][each.kind, each.point["IMPL"]].append(each)
    return {family: "\n".join([HEAD, *_tables(Family.find(family), found)]) for family, found in groups.items()}


def _tables(family: Family, groups: dict[tuple[str, str], list[Kept]]) -> Iterator[str]:
    """With the parameters that an implementation has today."""
    for (kind, impl), points in sorted(groups.items()):
        known = family.table(kind)[impl].parameters
        for each in thinned(points):
            values = ", ".join(f"{name} = {json.dumps(each.point[name])}" for name in sorted(known.keys() & each.point))
            yield (
                f"[[{kind}.{impl}]]\nproblem = {json.dumps(str(each.problem))}\ndevice = {json.dumps(each.device)}\n"
                f"speedup = {each.speedup:.3f}\npoint = {{ {values} }}\n"
            )


def begun(others: bool) -> Iterator[tuple[Problem, str, str]]:
    """For each problem of attention on CUDA with a kept result the implementation that was the fastest there, and the
    one that a search begins with; with `others` without the points of the problem's own class."""
    fastest: dict[Problem, Kept] = {}
    for each in kept():
        if (each.kind, each.problem.op) == ("cuda", "sdpa"):
            fastest[each.problem] = max(each, fastest.get(each.problem, each), key=lambda of: of.speedup)
    shipped = read_first_points(config.kernels_dir() / "sdpa", "cuda", "sdpa")
    for problem, found in fastest.items():
        firsts = {impl: nearest(points, [problem], others)[0].hoped([problem]) for impl, points in shipped.items()}
        yield problem, found.point["IMPL"], min(firsts, key=lambda impl: firsts[impl])


def main() -> int:
    """1 where --check finds another text."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.first_points")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--begun", action="store_true")
    options, differs = parser.parse_args(), False
    for others in (False, True) if options.begun else ():
        found = [*begun(others)]
        print(f"{'class left out' if others else 'all'}: {sum(a == b for _, a, b in found)} of {len(found)} problems")
        print(*(f"  {problem}: {first} before {best}" for problem, best, first in found if first != best), sep="\n")
    for family, text in documents().items():
        path = config.kernels_dir() / family / FILE
        differs |= not path.exists() or path.read_text() != text
        if not options.check:
            path.write_text(text)
            print(f"{path}: {text.count('[[')} points")
    return int(options.check and differs)


if __name__ == "__main__":
    raise SystemExit(main())
