"""A profile for a person: two columns of counters, in the order of reading, and what limits the variant."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from autotuner.values.profile import Counted, Profile
from autotuner.views.table import Column, Table

BOUND = 60.0
"""Per cent of its peak from which on a unit is what holds a kernel back, as Nsight Compute takes it."""
MANY_MISSES = 10.0
"""Misses of the last-level cache in a thousand instructions, from which on a CPU waits for memory."""
FEW = 1.0
"""Instructions a cycle, below which a CPU waits for results."""
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = {
    "long_scoreboard": "for memory (long scoreboard)",
    "short_scoreboard": "for shared memory or a special function (short scoreboard)",
    "wait": "for an instruction of fixed latency (wait)",
    "barrier": "at a barrier (barrier)",
    "gmma": "for a warpgroup's matrix product (gmma)",
    "math_pipe_throttle": "for a busy pipe (math pipe throttle)",
    "mio_throttle": "for the queue of memory instructions (MIO throttle)",
    "lg_throttle": "for the queue of global memory (LG throttle)",
    "dispatch_stall": "for the dispatcher (dispatch stall)",
    "no_instruction": "for instructions (no instruction)",
    "not_selected": "",
    "selected": "",
}
"""What warps wait for; empty: they do not wait."""
LIMITS = {of: f"launch__occupancy_limit_{of}" for of in ("registers", "shared_mem", "warps", "blocks", "barriers")}
Read = Callable[[dict[str, float]], float | None]


class CounterRow(NamedTuple):
    """A counter of both sides."""

    what: str
    variant: float | str | None
    baseline: float | str | None


def _of(*names: str, factor: float = 1.0) -> Read:
    return lambda found: sum(found[each] for each in names) * factor if all(each in found for each in names) else None


def _over(name: str, under: str, factor: float = 1.0) -> Read:
    return lambda found: factor * found[name] / found[under] if name in found and found.get(under) else None


_PEAK = "{}.avg.pct_of_peak_sustained_elapsed"
FIRST: dict[str, Read] = {
    "profiled, us": _of("gpu__time_duration.sum", factor=1e-3),
    "SM clock, GHz": _of("gpc__cycles_elapsed.avg.per_second", factor=1e-9),
    "memory clock, GHz": _of("dram__cycles_elapsed.avg.per_second", factor=1e-9),
    "SM, % of peak": _of(_PEAK.format("sm__throughput")),
    "memory, % of peak": _of(_PEAK.format("gpu__compute_memory_throughput")),
    "DRAM, % of peak": _of(_PEAK.format("gpu__dram_throughput")),
    "tensor, % of peak": _of(_PEAK.format("sm__pipe_tensor_cycles_active")),
    "XU pipe, % of peak": _of(_PEAK.format("sm__inst_executed_pipe_xu")),
    "occupancy, %": _of("sm__warps_active.avg.pct_of_peak_sustained_active"),
    "most occupancy, %": _of("sm__maximum_warps_per_active_cycle_pct"),
    "waves": _of("launch__waves_per_multiprocessor"),
}
LAST: dict[str, Read] = {
    "L2 hit rate, %": _of("lts__t_sector_hit_rate.pct"),
    "DRAM, MB": _of("dram__bytes_read.sum", "dram__bytes_write.sum", factor=1e-6),
    "bank conflicts": _of("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
    "spills": _of("smsp__sass_inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_st.sum"),
    "registers a thread": _of("launch__registers_per_thread"),
    "shared, KB a block": _of("launch__shared_mem_per_block_dynamic", factor=1e-3),
    "warp instructions, M": _of("smsp__inst_executed.sum", factor=1e-6),
    "cycles, M": _of("cycles", factor=1e-6),
    "instructions, M": _of("instructions", factor=1e-6),
    "instructions a cycle": _over("instructions", "cycles"),
    "cache misses, %": _over("cache-misses", "cache-references", 100),
    "misses of 1,000": _over("cache-misses", "instructions", 1000),
    "branches of 1,000": _over("branch-misses", "instructions", 1000),
}


def profile_table(found: Profile) -> Table:
    """Both sides and their difference, with what they mean."""
    columns: list[Column[CounterRow]] = [
        Column("what", str, head=""),
        Column("variant", float, reads=number, right=True),
        Column("baseline", float, head=found.baseline, reads=number, right=True),
        Column(
            "difference",
            float,
            "of the variant over the baseline, less 1",
            _difference,
            reads="{:+.0%}".format,
            none="-",
        ),
    ]
    head = (
        f"{found.problem}: the variant beside {found.baseline}, counted by {found.variant.tool}, {found.cache} caches"
    )
    return Table.of(columns, rows(found), lines(found), above=[f"{head}, on {where(found)}."])


def where(found: Profile) -> str:
    """The device, with what its counters depend on."""
    around, named = found.device.environment, {"driver": "driver_module", "torch": "torch"}
    versions = (f"{name} {around[key]}" for name, key in named.items() if around.get(key))
    return ", ".join([found.device.name, *versions])


def rows(found: Profile) -> list[CounterRow]:
    """What is read, in its order; what neither side has is left out."""
    sides = found.variant.counters, found.beside.counters
    first = [CounterRow(what, *map(read, sides)) for what, read in FIRST.items()]
    limits = CounterRow("limited by", *map(limiter, sides))
    last = [CounterRow(what, *map(read, sides)) for what, read in LAST.items()]
    every = [*first, limits, *_stalled(found), *last]
    return [each for each in every if each.variant is not None or each.baseline is not None]


def _stalled(found: Profile) -> Iterator[CounterRow]:
    """The three reasons for which the variant's warps wait most, and the baseline's first one where it is another."""
    sides = found.variant.counters, found.beside.counters
    for name in dict.fromkeys([*stalls(found.variant)[:3], *stalls(found.beside)[:1]]):
        yield CounterRow(f"stalled: {name.replace('_', ' ')}", *(each.get(STALL.format(name)) for each in sides))


def stalls(side: Counted) -> list[str]:
    """Reasons for which warps wait, the one of most warps first."""
    before, after = STALL.split("{}")
    found = {
        name.removeprefix(before).removesuffix(after): number
        for name, number in side.counters.items()
        if name.startswith(before) and name.endswith(after) and number > 0
    }
    return sorted((name for name in found if STALLS.get(name, "other")), key=lambda name: -found[name])


def limiter(counters: dict[str, float]) -> str | None:
    """What keeps more blocks from a multiprocessor."""
    there = {name: counters[key] for name, key in LIMITS.items() if key in counters}
    least = min(there.values(), default=math.inf)
    return ", ".join(name.replace("_mem", "") for name, blocks in there.items() if blocks == least) or None


def lines(found: Profile) -> list[str]:
    """What the counters mean, in sentences."""
    said = [holds_back(found)]
    if found.acts:
        said.append(f"By the study's beliefs these parameters act on its time most: {', '.join(found.acts)}.")
    us, beside = found.us
    timed = f"Timed in the search, without a profiler: {us:,.1f} us"
    said.append(f"{timed}{'' if beside is None else f' against {beside:,.1f} us of {found.baseline}'}.")
    if found.variant.kernels:
        said.append(
            "Counters are no timings: each kernel was replayed many times, with its memory restored; clocks were left"
            " alone. Durations are of all kernels of a forward"
            f" ({found.variant.kernels} and {found.beside.kernels}), the rest of the longest."
        )
    else:
        said.append(
            "Counters are no timings. They are of user code, and of forwards on one set of inputs: warm caches."
        )
    return said


def holds_back(found: Profile) -> str:
    """The one sentence: what holds the variant back, in the field's words."""
    counters = found.variant.counters
    return (_on_gpu if found.variant.kernels else _on_cpu)(counters, found)


def _on_gpu(counters: dict[str, float], found: Profile) -> str:
    units = "gpu__dram_throughput", "sm__throughput", "gpu__compute_memory_throughput", "sm__pipe_tensor_cycles_active"
    dram, sm, memory, tensor = (counters.get(_PEAK.format(unit), 0.0) for unit in units)
    if max(dram, sm, memory) >= BOUND:
        if dram >= max(sm, BOUND):
            return f"The variant is memory-bound: DRAM is at {dram:.0f} % of its peak."
        if memory > sm:
            return (
                f"The variant is memory-bound within the chip: a cache or shared memory is at {memory:.0f} % of peak."
            )
        pipe = "the tensor pipe" if tensor >= sm - 1 else "the SM"
        return f"The variant is compute-bound: {pipe} is at {sm:.0f} % of its peak."
    why = stalls(found.variant)
    waits = f"; its warps wait most {STALLS.get(why[0]) or why[0]}" if why else ""
    waves = counters.get("launch__waves_per_multiprocessor", 1.0)
    few = f"; its grid fills {waves:.2f} of a wave" if waves < 1 else ""
    occupancy = counters.get("sm__warps_active.avg.pct_of_peak_sustained_active", math.nan)
    said = f"SM at {sm:.0f} %, memory at {memory:.0f} % of peak, occupancy {occupancy:.0f} %"
    return f"The variant is latency-bound: {said}{waits}{few}."


def _on_cpu(counters: dict[str, float], found: Profile) -> str:
    misses = _over("cache-misses", "instructions", 1000)(counters) or 0.0
    each = _over("instructions", "cycles")(counters) or 0.0
    if misses >= MANY_MISSES:
        return f"The variant is memory-bound: {misses:.1f} cache misses in 1,000 instructions."
    if each < FEW:
        return f"The variant is latency-bound: {each:.2f} instructions a cycle, with few cache misses."
    return f"The variant is compute-bound: {each:.2f} instructions a cycle, with few cache misses."


def _difference(row: CounterRow) -> float | None:
    if isinstance(row.variant, int | float) and isinstance(row.baseline, int | float) and row.baseline:
        return row.variant / row.baseline - 1
    return None


def number(value: float | str) -> str:
    """A counter as it is shown."""
    return value if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
