"""Captures of a graph, in which no garbage is collected: what an earlier gate or race left may hold memory and graphs
of the device, and a call that gives these back may end a capture. Captures of right variants did end in finals with
nothing else known to go on; that garbage ended them is not shown."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def captured(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """What is launched in the block goes into the graph. torch collects no garbage before it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            yield
    finally:
        if collects:
            gc.enable()
