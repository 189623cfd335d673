"""Captures of a graph, in which no garbage is collected: an earlier gate or race may have left other graphs, and one
that is given back meanwhile ends a capture (github.com/pytorch/pytorch/pull/161037)."""

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
