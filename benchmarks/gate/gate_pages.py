"""The tables of docs/believe-it.md and docs/results/gate.md, from docs/results; benchmarks/pages.py writes them."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table
from tests.mutants.warpgroups import mutants as warpgroup_mutants

BACKENDS = {"cpu": "CPU", "cuda": "CUDA"}


def made_by(part: dict[str, Any]) -> str:
    """Where figures come from, in a sentence."""
    environment = part["environment"]
    driver = f", CUDA driver {environment['driver']}" if "driver" in environment else ""
    return (
        f"Made by `{part['command']}` on {part['when'][:10]}: {part['device']}, torch {environment['torch']}{driver}."
    )


def missing_barrier(document: dict[str, Any]) -> str:
    """One kernel after different predecessors."""
    head = ["what ran before", "out of tolerance", "worst error", "bits unlike those of the right version"]
    rows = [
        [
            each["predecessor"],
            f"**{each['out_of_tolerance']}** of {each['launches']}",
            "NaN" if each["worst_error"] is None else f"{each['worst_error']:.2g}",
            f"{each['differs_from_right_version']} of {each['launches']}",
        ]
        for each in document["rows"]
    ]
    gate = document["gate"]
    said = (
        f"The tolerance on this input is {document['tolerance']:.2g}. The gate on the version with the barrier: "
        f"{gate['none']}; on the one without: {gate['missing_barrier_before_max']}."
    )
    return f"{table(head, rows)}\n\n{said} {made_by(document)}"


def gate_cost(documents: list[dict[str, Any]]) -> str:
    """Milliseconds a variant."""
    head = ["device", "problem", "implementation", "G1 to G5, ms a variant", "launches"]
    rows = []
    for document in documents:
        for impl, row in document["implementations"].items():
            total = row["g1_to_g5_ms"]
            rows.append(
                [
                    document["device"],
                    document["problem"],
                    impl,
                    f"**{total['median']:.0f}** ({total['least']:.0f} to {total['most']:.0f})",
                    f"{row['launches']:.0f}",
                ]
            )
    said = "Medians over random variants that pass, with the least and the most."
    return f"{table(head, rows)}\n\n{said} {' '.join(made_by(document) for document in documents)}"


def cost_brief(documents: list[dict[str, Any]]) -> str:
    """The least and the most that an implementation's gate takes by the median, for each device."""
    said = []
    for document in documents:
        medians = [row["g1_to_g5_ms"]["median"] for row in document["implementations"].values()]
        least_and_most = f"{min(medians):.0f} to {max(medians):.0f} ms"
        said.append(f"{least_and_most} a variant on {document['device']} at {document['problem']}")
    return f"G1 to G5 take, by the median and depending on the implementation, {'; '.join(said)}."


def mutants(documents: list[dict[str, Any]]) -> str:
    """How many of each kind were judged, and what became of them."""
    head = ["device", "kind", "judged", "rejected, with an expected code", "below the resolution, by name", "accepted"]
    rows = []
    for document in documents:
        for backend, parts in document.items():
            rows += [_kind(BACKENDS[backend], kind, part) for kind, part in parts.items()]
    parts = [part for each in documents for parts in each.values() for part in parts.values()]
    days = sorted(part["when"][:10] for part in parts)
    where = ", ".join(dict.fromkeys(f"{part['device']}, torch {part['environment']['torch']}" for part in parts))
    return f"{table(head, rows)}\n\nMade by `python -m benchmarks.gate.mutants`, {days[0]} to {days[-1]}: {where}."


def _kind(backend: str, kind: str, part: dict[str, Any]) -> list[str]:
    if kind.startswith("right"):
        sets = f"{part['judged']} gates, up to {part['seeds']} sets of four seeds"
        names = f"{len(part['implementations'])} {kind} implementations"
        return [backend, names, sets, f"{part['rejected']} rejected", "", f"{part['judged'] - part['rejected']}"]
    wrong = [each for each in part["rows"] if "pass" not in each["expected"]]
    unseen = [each for each in wrong if not each["expected"]]
    expected = sum(each["as_expected"] for each in wrong if each["expected"])
    names = f"{len({each['name'] for each in wrong})} {kind}"
    missed = sum(each["found"] == "pass" for each in wrong if each["expected"])
    return [backend, names, str(len(wrong)), f"{expected} of {len(wrong) - len(unseen)}", str(len(unseen)), str(missed)]


def mutants_brief(documents: list[dict[str, Any]]) -> str:
    """A line for each device: what became of the wrong kernels, and of the right ones."""
    head = ["device", "wrong kernels", "rejected, with an expected code", "below the resolution", "accepted"]
    head += ["right kernels", "rejected"]
    rows = [_brief(BACKENDS[backend], parts) for document in documents for backend, parts in document.items()]
    return f"{table(head, rows)}\n\nA setting is an element type, a mask and a head dimension."


def _brief(device: str, parts: dict[str, dict[str, Any]]) -> list[str]:
    right = [part for kind, part in parts.items() if kind.startswith("right")]
    judged = [(kind, each) for kind, part in parts.items() if not kind.startswith("right") for each in part["rows"]]
    wrong = [each for _, each in judged if "pass" not in each["expected"]]
    names = {(kind, each["name"]) for kind, each in judged if "pass" not in each["expected"]}
    seen = [each for each in wrong if each["expected"]]
    return [
        device,
        f"{len(names)}, in {len(wrong)} settings",
        f"{sum(each['as_expected'] for each in seen)} of {len(seen)}",
        str(len(wrong) - len(seen)),
        str(sum(each["found"] == "pass" for each in seen)),
        f"{len({name for part in right for name in part['implementations']})}, in {_sum(right, 'judged')} gates",
        str(_sum(right, "rejected")),
    ]


def _sum(parts: list[dict[str, Any]], key: str) -> int:
    return sum(part[key] for part in parts)


def clock_on_cuda(document: dict[str, Any]) -> str:
    """How many of the mutants that cheat the clock the gate rejected on a GPU."""
    part = document["cuda"]["clock"]
    rejected, judged = (sum(part[key].values()) for key in ("rejected", "judged"))
    missed = f"; not {', '.join(part['not_rejected'])}" if part["not_rejected"] else ""
    said = f"On an {part['device']} the gate rejected {rejected} of the {judged} that cheat the clock on CUDA{missed}"
    return f"{said} ([kept](docs/results/mutants_clock_cuda.json))."


def soak(documents: list[dict[str, Any]]) -> str:
    """How many launches fit in the seconds of G6.many, and which rates of error they found, by device."""
    if not documents:
        return "No measured rate is kept yet."
    names = dict.fromkeys(_kernel(each) for document in documents for each in document["rows"])
    rows = [[name, *(_soaked(document, name) for document in documents)] for name in names]
    said = (
        "A planted error comes in each launch with the probability that is named, drawn anew each time. All kernels"
        " went through G0 to G5 before. How many runs G6 or G6.many rejected; of runs that passed, the rate of errors"
        " that could still be missed:"
    )
    head = ["kernel", *(document["device"] for document in documents)]
    return f"{said}\n\n{table(head, rows)}\n\n{' '.join(made_by(document) for document in documents)}"


def _kernel(row: dict[str, Any]) -> str:
    """What a reader calls it: the default point of a space is one row, whatever the space."""
    return "the space's default point" if row["kernel"].startswith("the default of") else str(row["kernel"])


def _soaked(document: dict[str, Any], name: str) -> str:
    """What became of a kernel on a device."""
    mine = [each for each in document["rows"] if _kernel(each) == name]
    found = sum(each["found"] != "pass" for each in mine)
    missed = [each["could_miss"] for each in mine if each["could_miss"] is not None]
    return f"{found} of {len(mine)}" + (f"; one of {1 / max(missed):,.0f}" if missed else "") if mine else ""


def views(documents: dict[str, dict[str, Any]]) -> str:
    """How many mutants of views, and in Triton, the gate rejected on each device."""
    return "\n".join(f"- {_views_on(name, document)}" for name, document in documents.items())


def _views_on(name: str, document: dict[str, Any]) -> str:
    wrong = [each for each in document["mutants"] if each["expected"] != ["pass"]]
    right = [each for each in document["mutants"] if each["expected"] == ["pass"]]
    met, passed = (sum(each["as_expected"] for each in some) for some in (wrong, right))
    return (
        f"On {document['device']} it rejected {met} of {len(wrong)} with a code that is expected, and passed {passed}"
        f" of {len(right)} right ([kept](docs/results/{name}.json)). Made by `{document['command']}` on"
        f" {document['when'][:10]}."
    )


def warpgroups(documents: dict[str, dict[str, Any]]) -> str:
    """How many of the mutants of IMPL = wgmma the gate rejected on a GPU, and which it did not."""
    return "\n".join(_warpgroups_on(name, document) for name, document in documents.items())


def _warpgroups_on(name: str, document: dict[str, Any]) -> str:
    known = {each.name: each.gate or ("pass",) for each in warpgroup_mutants()}
    mutants = [each for each in document["mutants"] if each["name"] in known]  # one that was kept may be gone
    passed = [f"`{each['name']}`" for each in mutants if each["verdict"] == "measured"]
    odd = [f"`{each['name']}`" for each in mutants if _code(each) not in known[each["name"]]]
    others = f"; with another code than the table says: {', '.join(odd)}" if odd else ""
    return (
        f"On {document['device']} the gate rejected {len(mutants) - len(passed)} of {len(mutants)} and passed"
        f" {', '.join(passed)}{others} ([kept](docs/results/{name}.json)). Made by `{document['commands'][-1]}` on"
        f" {document['when'][:10]}."
    )


def _code(row: dict[str, Any]) -> str:
    """Of the first failure; "pass" where there is none."""
    return str(row.get("fault", "pass")).split()[0].rstrip(":")


def cross_version(document: dict[str, Any]) -> str:
    """The same implementations judged under two releases of torch."""
    versions = " and ".join(document["torch"])
    said = (
        f"{document['compared']} implementations and settings judged under torch {versions} on one machine: "
        f"{document['same_verdict']} with the same verdict, {document['same_code']} with the same code"
    )
    differing = [
        [each["name"], each["dtype"], *each["found"], ", ".join(each["verdict"])] for each in document["different"]
    ]
    rest = "" if not differing else "\n\n" + table(["name", "type", *document["torch"], "verdicts"], differing)
    return f"{said}.{rest}"


def verified(document: dict[str, Any]) -> str:
    """What `autotuner verify --python` said of a study under another release of torch."""
    then, now = document["torch"]
    levels = ", ".join(f"{each['level']} {each['found']}" for each in document["levels"])
    return (
        f"A study of torch {then} done again under {now} by `autotuner verify --python` on"
        f" {document['device']}: {levels} ({document['levels'][-1]['detail']})."
    )


def results_page(
    judged: list[dict[str, Any]], across: dict[str, Any], again: dict[str, Any], cost: list[dict[str, Any]]
) -> str:
    """docs/results/gate.md."""
    return (
        "\n\n".join(
            [
                "# The gate, tested",
                "Drawn by `benchmarks/pages.py` from the JSON files beside it; do not edit. What the codes mean is in"
                " [gate.md](../method/gate.md).",
                f"## Mutants\n\n{mutants(judged)}\n\nmutants_cpu.json and mutants_cuda.json have each of them, with its"
                " command and the code that rejected it. What no case shows in an element type and mask is below the"
                " resolution: there the JSON has the largest error, in units of its tolerance.",
                f"## Two releases of torch\n\n{cross_version(across)} {verified(again)}",
                f"## Cost\n\n{gate_cost(cost)}",
            ]
        )
        + "\n"
    )


def luck(document: dict[str, Any]) -> str:
    """The nearest that right variants came to a tolerance."""
    rows = document["rows"]
    outputs, rejected = sum(row["outputs"] for row in rows), sum(len(row["broken"]) for row in rows)
    nearest = max((each for row in rows for each in row["nearest"].values()), key=lambda each: float(each["share"]))
    return (
        f"Of {outputs:,} outputs of {len(rows)} problems {rejected} were rejected; the nearest came to"
        f" {100 * nearest['share']:.0f} % of a tolerance, in the case {nearest['case']}. {made_by(document)}"
    )
