"""What counts as a package that holds under a version of torch."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.inference.torch_versions import holds

RIGHT: dict[str, Any] = {
    "torch": "2.14.1+cpu",
    "refused": None,
    "served": 1.0,
    "worst_difference": 1e-6,
    "opcheck": True,
}


@pytest.mark.parametrize(
    ("found", "right"),
    [
        ({}, True),
        ({"served": 0.5}, False),
        ({"worst_difference": 0.1}, False),
        ({"opcheck": False}, False),
        ({"refused": "it needs another torch"}, False),
        ({"torch": "2.9.1", "refused": "it needs another torch"}, True),
        ({"torch": "2.9.1", "refused": "it needs\nanother torch"}, False),
        ({"torch": "2.9.1"}, False),
    ],
)
def test_a_package_holds_where_all_is_served_or_an_old_torch_is_refused(found: dict[str, Any], right: bool) -> None:
    assert holds(RIGHT | found, 1e-4) is right
