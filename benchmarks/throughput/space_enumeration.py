"""Time and memory to enumerate a space of 1,000,000 raw points with five constraints.

    python -m benchmarks.throughput.space_enumeration [--json PATH]

The time is the best of five enumerations in this process; the peak memory is that of the whole process.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
import time
from pathlib import Path

import numpy as np

from autotuner.spaces.space import Space, SpaceFile
from benchmarks.provenance import command_line

TEXT = """
title = "A million raw points"
family = "sdpa"
backend = "cpu"

[[problems]]
batch = 1
heads = 8
seq_q = 512
seq_k = 512
head_dim = 64
dtype = "float32"

[parameters]
IMPL = ["scalar", "simd"]
BLOCK_M = [16, 32, 64, 128, 256]
BLOCK_N = [16, 32, 64, 128, 256]
STAGES = [1, 2, 3, 4, 5]
VEC_WIDTH = [1, 2, 4, 8, 16]
UNROLL = [1, 2, 4, 8, 16]
PREFETCH = [0, 1, 2, 4, 8]
THREADS = [1, 2, 4, 8]
ROWS = [1, 2, 4, 8]
PACK_V = [0, 1]

[[constraints]]
expression = "(BLOCK_M + 2 * BLOCK_N * STAGES) * HEAD_DIM * 4 <= L2_BYTES"
reason = "the tiles of Q, K and V stay in the second-level cache"
[[constraints]]
expression = "VEC_WIDTH * 4 <= CPU_VECTOR_BYTES and (IMPL == 'simd' or VEC_WIDTH == 1)"
reason = "the machine's registers are no wider, and scalar code has none"
[[constraints]]
expression = "BLOCK_N % (VEC_WIDTH * UNROLL) == 0"
reason = "the unrolled loop has no remainder"
[[constraints]]
expression = "ROWS * UNROLL <= 32 and BLOCK_M % ROWS == 0"
reason = "accumulators fit the register file"
[[constraints]]
expression = "THREADS <= min(THREADS_ALLOWED, ceil_div(SEQ_Q, BLOCK_M) * HEADS)"
reason = "a thread without work only costs"

[default]
IMPL = "simd"
BLOCK_M = 32
BLOCK_N = 64
STAGES = 1
VEC_WIDTH = 8
UNROLL = 4
PREFETCH = 0
THREADS = 1
ROWS = 4
PACK_V = 0
"""
FACTS = {"L2_BYTES": 1 << 19, "CPU_VECTOR_BYTES": 32, "THREADS_ALLOWED": 4}
REPEATS = 5


def cpu_model() -> str:
    """The CPU's name as Linux tells it, else what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def peak_rss_mb() -> float:
    """The most memory this process has held so far, in MB (10**6 bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def measure() -> dict[str, object]:
    """Enumerate a few times and say what it took."""
    before = peak_rss_mb()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        space = Space.enumerate(SpaceFile.parse(TEXT), FACTS)
        seconds.append(time.perf_counter() - start)
    return {
        "raw_points": space.raw_count,
        "valid_points": len(space),
        "removed": list(space.branches[0].removed),
        "seconds": round(min(seconds), 4),
        "seconds_worst": round(max(seconds), 4),
        "peak_rss_mb": round(peak_rss_mb(), 1),
        "rss_before_mb": round(before, 1),
        "digest": space.digest,
    }


def main() -> None:
    """Measure, print, and write JSON when asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the result, with versions and machine")
    path = parser.parse_args().json
    result = measure()
    result |= {"python": platform.python_version(), "numpy": np.__version__, "cpu": cpu_model()}
    for key, value in result.items():
        print(f"{key:14} {value}")
    if path is not None:
        command = command_line()
        path.write_text(json.dumps({"command": command, **result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
