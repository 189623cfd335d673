"""Captures of a graph, in which no garbage is collected: what an earlier gate or race left may hold memory and graphs
of the device, and to give these back ends a capture with an error that the variant would be blamed for."""

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
