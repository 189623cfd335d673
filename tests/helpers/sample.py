"""Which tests a run leaves out: all but a sample of those that are too many for every run, and those for a GPU where
there is none.

`@pytest.mark.rotating(COUNT, "name")` on tests of one function: of all that share the name, or of all tests of the
function without one, COUNT run. `@pytest.mark.rotating(COUNT, of="name")`: of the tests of any function that share it.
Which they are is drawn from a seed, the date unless --sample says another, so that the same command with that seed runs
them again.
"""

from __future__ import annotations

import functools
import random
from collections import defaultdict
from collections.abc import Iterable

import pytest

from autotuner.devices.cuda.probe import probe

ALL = "all"


def left_out(items: Iterable[pytest.Item], seed: str) -> list[pytest.Item]:
    """The rotating tests that this seed does not draw."""
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    counts: dict[str, int] = {}
    for item in items:
        mark = item.get_closest_marker("rotating")
        if mark is not None and seed != ALL:
            count, *name = mark.args  # without a name all tests of the function are one group
            key = mark.kwargs.get("of") or f"{item.nodeid.split('[')[0]} {name}"
            groups[key].append(item)
            counts[key] = count
    return [
        item
        for key, group in groups.items()
        for item in random.Random(f"{seed} {key}").sample(group, max(0, len(group) - counts[key]))
    ]


def without_gpu(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests that need a GPU, where there is none that this Python's torch can use."""
    wanting = [item for item in items if item.get_closest_marker("gpu") is not None]
    return wanting if wanting and not has_gpu() else []


@functools.cache
def has_gpu() -> bool:
    """True where there is a GPU and a torch built for CUDA."""
    if isinstance(probe(), str):
        return False
    import torch

    return torch.cuda.is_available()
