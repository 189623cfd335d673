"""What is held of the launches of the variant to use, and what pages say of them."""

from __future__ import annotations

from typing import Any

from benchmarks.gate.gate_pages import soak as drawn
from benchmarks.gate.soak import unmet


def row(every: int, found: str, launches: int) -> dict[str, Any]:
    return {
        "kernel": f"wrong once in {every}" if every else "never wrong",
        "every": every,
        "problems": ["(1,2,8x16,64) float16 full"],
        "found": found,
        "detail": "what was found",
        "launches": launches,
        "could_miss": 3 / launches if found == "pass" else None,
    }


def test_a_right_kernel_has_to_pass_and_a_frequent_error_to_be_found() -> None:
    assert unmet(row(0, "pass", 1000)) is None
    assert unmet(row(0, "G6.many", 1000)) == "never wrong: G6.many, what was found"
    assert unmet(row(1000, "G6.many", 700)) is None
    assert unmet(row(1000, "G6.soak", 0)) is None
    assert unmet(row(1000, "pass", 9000)) is None  # that happens once in 8,000 times
    assert unmet(row(1000, "pass", 10_000)) == "wrong once in 1000: not found in 10,000 launches"


def test_the_page_has_a_row_for_each_kernel_on_each_device() -> None:
    rows = [row(0, "pass", 300_000), row(0, "pass", 150_000), row(5000, "G6.many", 9000), row(5000, "pass", 10_000)]
    kept = {"device": "a GPU", "rows": rows, "command": "x", "when": "2026-11-26T15", "environment": {"torch": "2"}}
    never, planted = drawn([kept]).split("\n")[4:6]
    assert never.endswith("| 0 of 2 | 150,000 to 300,000 | fewer than one of 50,000 |")
    assert planted.endswith("| 1 of 2, 1 by `G6.many` | 9,000 to 10,000 | fewer than one of 3,333 |")
