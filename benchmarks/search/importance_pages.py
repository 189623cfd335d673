"""What docs/reference/optuna.md shows of importances.json."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table
from benchmarks.provenance import made


def importances(document: dict[str, Any]) -> str:
    """Who is how far from the truth, and what became of a value that always fails."""
    most = max(each["trials"] for each in document["summary"])
    shown = [each for each in document["summary"] if each["trials"] == most]
    failing = {(each["who"], each["sampler"]): each for each in shown if each["fails"]}
    rows = [
        [
            each["who"],
            each["sampler"],
            f"{each['off_by']:.1%}",
            f"{each['right_first']:.0%}",
            f"{failing[each['who'], each['sampler']]['said_share']:.1%}",
        ]
        for each in shown
        if not each["fails"]
    ]
    true = next(iter(failing.values()))["true_share"]
    of, slices = document["landscapes"], document["slice_plot"]
    head = ["who", "sampler", "a share is off by", "right most important", f"said of a share of {true:.1%}"]
    return "\n\n".join(
        [
            table(head, rows),
            f"Means over {len(of)} landscapes with {document['seeds']} searches of {most} trials each. The last column"
            " is of a parameter of which one value always fails. In"
            f" {slices['studies']} studies with such a value Optuna's slice plot drew {slices['drawn']:,} of"
            f" {slices['trials']:,} trials, and had the value on its axis {slices['value_is_shown']} times."
            f" {made(document)}",
        ]
    )
