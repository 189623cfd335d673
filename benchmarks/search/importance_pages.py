"""What docs/reference/optuna.md shows of importances.json."""

from __future__ import annotations

from typing import Any

from benchmarks.attention.cuda_pages import table
from benchmarks.provenance import made


def importances(document: dict[str, Any]) -> str:
    """Who is how far from the truth, and what became of a value that always fails."""
    rows = [
        [
            each["who"],
            each["sampler"],
            str(each["trials"]),
            f"{each['off_by']:.1%}",
            f"{each['rank_correlation']:.2f}",
            f"{each['right_first']:.0%}",
        ]
        for each in document["summary"]
        if not each["fails"]
    ]
    failing = [
        [
            each["who"],
            each["sampler"],
            str(each["trials"]),
            f"{each['true_share']:.1%}",
            f"{each['said_share']:.1%}",
            f"{each['off_by']:.1%}",
        ]
        for each in document["summary"]
        if each["fails"]
    ]
    of, slices = document["landscapes"], document["slice_plot"]
    head = ["who", "sampler", "trials", "a share is off by", "rank correlation", "right most important"]
    other = ["who", "sampler", "trials", "its share in truth", "as said", "a share is off by"]
    return "\n\n".join(
        [
            table(head, rows),
            f"Means over {len(of)} landscapes with {document['seeds']} searches each. The same where one value of a "
            "parameter always fails:",
            table(other, failing),
            f"In {slices['studies']} studies with such a value Optuna's slice plot drew {slices['drawn']:,} of "
            f"{slices['trials']:,} trials, and had the value on its axis {slices['value_is_shown']} times.",
            made(document),
        ]
    )
