"""The parts of pages that show what `python -m benchmarks.tuned` found: problems tuned as a user tunes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from benchmarks.markdown import table
from benchmarks.tuned import share

NONE = "Not measured yet."
NOTHING = "nothing was written"
CUDNN = "cudnn"
"""The baseline that a cell does not name."""


def tuned(document: dict[str, Any] | None, apart: Sequence[str] = (), shown: str = "") -> str:
    """A row a problem, a column a device, or only the one that is shown. Without a confirmed ratio stands what the
    search says, and that nothing was confirmed. Problems of `apart` come first, and have a geometric mean of their own
    on a device on which all are confirmed."""
    if document is None:
        return NONE
    rows = [row for row in document["rows"] if "error" not in row]
    devices = list(dict.fromkeys(row["device"] for row in rows))
    of = {(row["problem"], row["device"]): row for row in rows}
    columns = [each for each in devices if each == (shown or each)]
    lines = [
        [problem, *(_confirmed(of.get((problem, device))) for device in columns)]
        for problem in dict.fromkeys([*apart, *(row["problem"] for row in rows)])
    ]
    means = [f"On {each} {said}" for each in devices if (said := _means(each, rows, apart))]
    made = (
        "Confirmed in fresh processes, with the 95 % interval, against cuDNN or what is named; * crowned. Made by"
        f" `{document['command']}` and its like: torch {rows[-1]['environment']['torch']}; the last row on"
        f" {document['when'][:10]}."
    )
    return "\n\n".join([table(["problem", *columns], lines), " ".join([*means, made])])


def one_line(document: dict[str, Any] | None) -> str:
    """What the one-line command came to: a row a problem and the minutes that it had, a column a seed."""
    if document is None:
        return NONE
    runs = {
        (row["problem"], row["minutes"], row.get("first_points", "all"), row["seed"]): row for row in document["rows"]
    }
    columns = sorted({(of, seed) for _, _, of, seed in runs})
    names = [f"seed {seed}" if of == "all" else f"without its class, seed {seed}" for of, seed in columns]
    lines = [
        [problem, str(minutes), *(_ran(runs.get((problem, minutes, *column))) for column in columns)]
        for problem, minutes in dict.fromkeys((problem, minutes) for problem, minutes, _, _ in runs)
    ]
    first = next(row for row in document["rows"] if "us" in row)
    made = f"{first['device']}, torch {first['environment']['torch']}, {document['when'][:10]}"
    return (
        f"{table(['problem', 'minutes', *names], lines)}\n\n{made}: seconds of all, and what was confirmed,"
        f" each from an empty store and cache; * crowned. Made by `{first.get('command', document['command'])}` and its"
        " like."
    )


def drawn(*documents: dict[str, Any], again: dict[str, Any] | None = None) -> str:
    """What problems that seeds have drawn came to, in words; a document for each seed. `again`: what is later than a
    change that the worst of them led to."""
    rows = [row for document in documents for row in document["rows"] if "confirmed" in row]
    if not rows:
        return NONE
    rows.sort(key=lambda row: float(row["confirmed"]["mean"]))
    first, ratios = rows[0], [row["confirmed"]["mean"] for row in rows]
    later = next((row for row in again["rows"] if row["problem"] == first["problem"]), None) if again else None
    missing = sum(len(document["missing"]) for document in documents)
    seeds = ", ".join(document["parts"][0].split()[0].removeprefix("drawn") for document in documents)
    return (
        f"Problems that a seed drew, without a part in any choice before: {_mean(ratios):.2f}x in the geometric mean of"
        f" {len(rows)} of {len(rows) + missing}, {_between(first)} at the worst, {first['problem']}"
        f"{f', which changed the search and is {_between(later)} since' if later else ''}; {_between(rows[1])} next,"
        f" {ratios[-1]:.2f}x at the best; {first['minutes']:g} minutes each on {first['device']}, torch"
        f" {first['environment']['torch']}. Made by `python -m benchmarks.tuned drawnSEED` of {seeds}."
    )


def _between(row: dict[str, Any]) -> str:
    return "{mean:.2f}x ({low:.2f} to {high:.2f})".format(**row["confirmed"])


def beside_own(document: dict[str, Any] | None) -> str:
    """What the default space came to beside a space of the problem's own in the same time, in words."""
    rows = [row for row in document["rows"] if share(row)] if document is not None else []
    if document is None or not rows:
        return NONE
    shares, ratios = sorted(map(share, rows)), sorted(row["confirmed"]["mean"] for row in rows)
    versions = sorted({row["environment"]["torch"] for row in rows})
    programs = sorted({" ".join(row["command"].split()[:4]) for row in rows})  # the file has each row's arguments
    return (
        f"In {len(rows)} of {len(document['rows'])} runs both were confirmed: {shares[0]:.3f} to {shares[-1]:.3f} of"
        f" what its own space reaches, {_mean(shares):.3f} in the geometric mean, at {ratios[0]:.2f}x to"
        f" {ratios[-1]:.2f}x of SDPA. {rows[0]['minutes']:g} minutes each, on two CPUs of"
        f" {rows[0]['device']}, torch {', '.join(versions)}. Made by `{', '.join(programs)}`."
    )


def _ran(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{row['seconds']:.0f}s: {_confirmed(row)}" if "us" in row else NOTHING


SHOWN = (
    "(1,8,512,64) float16 full",
    "(1,8,512,64) float16 causal",
    "(2,8,2048,64) float16 full",
    "(2,8,2048,64) float16 causal",
    "(1,32,2048,128) float16 full",
    "(1,32,2048,128) float16 causal",
    "(8192,4096) bfloat16",
    "(16384,1024) bfloat16",
)
"""The GPU's problems that README.md shows."""
GPU = "NVIDIA H200"
"""The GPU that it shows them on."""


def found(tuned: list[dict[str, Any]], cpu: dict[str, Any], beside: str) -> str:
    """The table of README.md: of each problem the implementation that was best, and what was confirmed of it. On a GPU
    from sweeps of `tuned`, on a CPU with one thread from `cpu`. `beside`: how it stands beside others."""
    head = ["problem", "device", "best implementation", "fastest of torch", "speedup", "95 % interval"]
    rows = [
        (row["problem"], GPU, row["parameters"]["IMPL"], row["baseline"], row["confirmed"]["mean"], row["confirmed"])
        for document in tuned
        for row in document["rows"]
        if row["device"] == GPU and row["problem"] in SHOWN
    ]
    rows.sort(key=lambda row: SHOWN.index(row[0]))
    rows += [
        (
            row["problem"],
            f"{cpu['device']}, 1 thread",
            row["best"]["IMPL"],
            row["baseline"],
            row["speedup"]["median"],
            row["speedup"],
        )
        for row in cpu["rows"]
        if row["threads"] == 1 and row["problem"].startswith("(1,8,512,64)")
    ]
    lines = [
        [
            problem,
            device,
            f"`{impl}`",
            baseline,
            f"**{ratio:.2f}x**" if ratio > 1 else f"{ratio:.2f}x",
            f"{interval['low']:.2f} to {interval['high']:.2f}",
        ]
        for problem, device, impl, baseline, ratio, interval in rows
    ]
    places = {
        "on GPUs": "method/kernels-cuda.md#tuned-from-nothing",
        "rmsnorm": "method/kernels-rmsnorm.md#on-cuda",
        "on a CPU": "method/kernels-cpu.md#beside-torch",
    }
    said = (
        "Cold caches; each problem was tuned by itself. `lanes` is of rmsnorm, the others of attention. All problems,"
        f" with the commands: {', '.join(f'[{name}](docs/{place})' for name, place in places.items())}. {beside}"
    )
    return f"{table(head, lines)}\n\n{said}"


def elsewhere(document: dict[str, Any] | None, tuned: dict[str, Any]) -> str:
    """What tuned variants reach where they were not tuned, in words. `tuned`: what finals confirmed of them."""
    if document is None:
        return NONE
    devices = dict.fromkeys(row["device"] for row in document["rows"])
    parts = [_elsewhere_on(each, document["rows"], tuned) for each in devices]
    made = f"An interval covers the processes of one finals, not another way of timing. torch {document['torch']}."
    return "\n\n".join([*parts, made])


def _elsewhere_on(device: str, rows: list[dict[str, Any]], tuned: dict[str, Any]) -> str:
    """The same of one kind of device."""
    here = [row for row in rows if row["device"] == device]
    timed = [row[state]["speedup"]["median"] for row in here if "cold" in row for state in ("cold", "warm")]
    refused = sum("refused" in row for row in here)
    return (
        f"{device}: the least of the {len(timed)} speedups is {min(timed):.3f}x; {refused}"
        f" of {len(here)} variants are not timed. {_beside_finals(device, here, tuned)}"
    )


def _beside_finals(device: str, rows: list[dict[str, Any]], tuned: dict[str, Any]) -> str:
    """Where the cold ratios of variants on their own problems lie, beside the finals' intervals."""
    own = {row["tuned"]: row["cold"]["speedup"]["median"] for row in rows if _is_own(row)}
    here = [row for row in tuned["rows"] if row.get("device") == device and "confirmed" in row]
    both = [(own[row["problem"]], row["confirmed"]) for row in here if row["problem"] in own]
    above, below = sum(ratio > of["high"] for ratio, of in both), sum(ratio < of["low"] for ratio, of in both)
    return (
        f"Cold, on their own problem, {above + below} of {len(both)} lie outside their finals' interval, {above} above;"
        f" {len(here) - len(both)} more of the device have no time here."
    )


def _is_own(row: dict[str, Any]) -> bool:
    return row["where"] == "itself" and "cold" in row


def _confirmed(row: dict[str, Any] | None) -> str:
    """What finals say of a row; what the search says where nothing was confirmed."""
    if row is None:
        return ""
    ratio = row["confirmed"]
    if ratio["mean"] is None:
        return f"no; {row['search_estimate']:.3f}x by the search"
    if ratio["low"] is None:
        return f"{ratio['mean']:.3f}x of {row['baseline']}, too few processes for an interval"
    crown, baseline = "*" if row["crowned"] else "", "" if row["baseline"] == CUDNN else f", {row['baseline']}"
    return f"**{ratio['mean']:.3f}x**{crown} ({ratio['low']:.3f}-{ratio['high']:.3f}{baseline})"


def _means(device: str, rows: list[dict[str, Any]], apart: Sequence[str]) -> str:
    """Geometric means in a sentence, where there is one."""
    here = [row for row in rows if row["device"] == device and row["confirmed"]["mean"] is not None]
    ratios = {row["problem"]: row["confirmed"]["mean"] for row in here}
    if not apart or not set(apart) <= set(ratios):
        return ""
    of, others = ([ratio for name, ratio in ratios.items() if (name in apart) is inside] for inside in (True, False))
    rest = f", of the {len(others)} others {_mean(others):.3f}x" if others else ""
    return f"the geometric mean of the first {len(of)} rows is {_mean(of):.3f}x{rest}."


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(fmean(map(math.log, ratios)))


def on_the_cpu(*documents: dict[str, Any] | None) -> str:
    """What benchmarks/rmsnorm/cpu.py found: a row a run, problem and number of threads."""
    kept = [each for each in documents if each is not None]
    if not kept:
        return NONE
    head = ["run", "problem", "threads", "speedup", "us", "baseline, us", "GB/s", "a copy, GB/s"]
    rows = [
        [
            str(number),
            row["problem"],
            str(row["threads"]),
            f"**{row['speedup']['median']:.2f}x** ({row['speedups'][-1]:.2f} to {row['speedups'][0]:.2f})",
            f"{row['microseconds']:.0f}",
            f"{row['baselines_us'][name]:.0f} ({name})",
            f"{row['gigabytes_a_second']:.1f}",
            f"{row['copy_gigabytes_a_second']:.1f}" if "copy_gigabytes_a_second" in row else "",
        ]
        for number, document in enumerate(kept, 1)
        for row in document["rows"]
        for name in (row["baseline"].removeprefix("the baseline "),)
    ]
    runs = "; ".join(f"{number} of {_run(document)}" for number, document in enumerate(kept, 1))
    return f"{table(head, rows)}\n\nRuns: {runs}."


def _run(document: dict[str, Any]) -> str:
    """When and where one was made, and by which command."""
    where = f"{document['device']}, torch {document['environment']['torch']}"
    return f"{document['when'][:10]}, {where}, `{document['rows'][0]['command']}`"
