"""Captures of a graph: where one forward ends and the next begins in one, and whether the two overlap.

A kernel that is launched with programmatic stream serialization begins when the kernel before it allows it, not when
that has ended. Back to back such forwards run into each other: they are timed as if they were shorter, and behind any
other kernel they are not. In a graph the edge between the two says so.
"""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from autotuner.devices.cuda.errors import CUDA_ERRORS
from autotuner.forge.loaded_variant import DEVICE_ERROR

LIBRARY = "libcuda.so.1"
ENDED = 0
"""The port of an edge which waits for all of a node."""


@contextmanager
def captured(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """What is launched in the block goes into the graph. No garbage is collected meanwhile: an earlier gate or race may
    have left other graphs, and one that is given back ends a capture (github.com/pytorch/pytorch/pull/161037). torch
    collects none before it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            yield
    finally:
        if collects:
            gc.enable()


class _Edge(ctypes.Structure):
    """CUgraphEdgeData of cuda.h."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


class CapturedForwards:
    """Those of the capture that is under way on the current stream."""

    def __init__(self) -> None:
        self._ends: set[int] = set()

    def end(self) -> None:
        """Here a forward ends. Raises RuntimeError where the capture is no more valid."""
        self._ends |= _frontier()[1]

    def overlap(self) -> bool:
        """Whether something begins before the forward that it follows has ended. Raises RuntimeError."""
        graph, _ = _frontier()
        return any(begins in self._ends and edge.from_port != ENDED for begins, edge in _edges(graph))


def _frontier() -> tuple[int, set[int]]:
    """The graph of the capture, and the nodes that what is captured next will follow."""
    status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    nodes, count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    found = (status, number, graph, nodes, ctypes.POINTER(_Edge)(), count)
    _require(_driver().cuStreamGetCaptureInfo_v3(stream, *map(ctypes.byref, found)))
    if graph.value is None:
        raise RuntimeError("nothing is being captured")
    return graph.value, {nodes[place] or 0 for place in range(count.value)}


def _edges(graph: int) -> list[tuple[int, _Edge]]:
    """The node at which each edge begins, and what the edge waits for."""
    of, count = ctypes.c_void_p(graph), ctypes.c_size_t()
    _require(_driver().cuGraphGetEdges_v2(of, None, None, None, ctypes.byref(count)))
    if not count.value:  # a graph of one node, or of none
        return []
    begins, ends = ((ctypes.c_void_p * count.value)() for _ in range(2))
    edges = (_Edge * count.value)()
    _require(_driver().cuGraphGetEdges_v2(of, begins, ends, edges, ctypes.byref(count)))
    return [(begin or 0, edge) for begin, edge in zip(begins, edges, strict=True)]


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL(LIBRARY)


def _require(status: int) -> None:
    if status:
        raise RuntimeError(f"the graph that is captured cannot be read: {CUDA_ERRORS.text(DEVICE_ERROR + status)}")
