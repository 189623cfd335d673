"""The dispatch table as C: what kernels/abi/dispatch.h looks problems up in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from autotuner.forge.build_inputs import compiled_lines
from autotuner.ops import OPS
from autotuner.values.problem import Problem
from autotuner.values.table import Range, Table

DERIVED = ("GROUPED",)
"""Of the compile-time part: what the sizes say already."""
OTHER_THREADS, OTHER_MODEL, ELSEWHERE = -5, -4, -3
"""Reasons that say more where the table does: their numbers in dispatch.h, and from the end places in
`OpPackage.reasons`."""


def symbol(place: int, name: str) -> str:
    """The name of a variant's identity in the export of that name: a program may be linked with several exports."""
    return f"{name}_variant_{place}"


def table_lines(table: Table, name: str) -> Iterator[str]:
    """Definitions of `entries`, `ranges`, `variants` and `why`, and of the macro AT_TABLE that initialises an
    `at_table` with them. They need the op's header and dispatch.h."""
    places = {each.artifact: place for place, each in enumerate(table.variants)}
    symbols = [symbol(place, name) for place in places.values()]
    yield from (f"extern const at_identity {each};" for each in symbols)
    yield from _array("at_identity *const", "variants", [f"&{each}" for each in symbols])
    entries = [
        f"{{{problem_in_c(each.problem)}, {-1 if each.use is None else places[each.use]}}}" for each in table.entries
    ]
    yield from _array("at_entry", "entries", entries)
    ranges = [
        f"{{{problem_in_c(each.like.sized(each.low))}, {_list(each.high)}, {_together(each)}, {places[each.use]}}}"
        for each in table.ranges
    ]
    # What was tried and is not served stands behind all that is: a range of one, which says why.
    ranges += [f"{{{problem_in_c(each.problem)}, {_list(each.problem.shape)}, 0, -1}}" for each in table.left_out]
    yield from _array("at_range", "ranges", ranges)
    yield from _array("char *const", "why", [json.dumps(each) for each in reasons(table)])
    dims = len(OPS[table.op].problem.DIMS)
    counts = f"{len(entries)}, {len(ranges)}, {len(places)}, {dims}"
    yield f"#define AT_TABLE {{entries, ranges, variants, why, {counts}}}"


def reasons(table: Table) -> list[str]:
    """Words for every reason, then for each entry and each range."""
    op = OPS[table.op]
    assert op.package is not None
    fixed = list(op.package.reasons)
    threads = table.proven_on.get("THREADS_ALLOWED")
    if threads is not None:
        fixed[OTHER_THREADS] = f"proven on a device whose THREADS_ALLOWED is {threads}, here torch uses another number"
    proven = ", ".join(f"{name} {value}" for name, value in table.proven_on.items())
    fixed[OTHER_MODEL] = f"proven on a device with {proven}, this one is another"
    fixed[ELSEWHERE] = f"the variants are for {table.device}"
    between = [f"between tuned problems, timed on {len(each.validated)} others" for each in table.ranges]
    return [*fixed, *(each.why for each in table.entries), *between, *(each.why for each in table.left_out)]


def _together(of: Range) -> int:
    """A bit for each size that is one number with the others."""
    return sum(1 << of.like.DIMS.index(name) for name in of.together)


def _array(of: str, name: str, elements: Sequence[str]) -> Iterator[str]:
    """An array of C, which has at least one element."""
    yield f"static const {of} {name}[] = {{"
    yield from (f"    {each}," for each in elements or ["{}"])
    yield "};"


def problem_in_c(problem: Problem) -> str:
    """What initialises an `at_problem`."""
    fields = {name: value for name, value in problem.compiled.items() if name not in DERIVED}
    values = [line.split(maxsplit=2)[2] for line in compiled_lines(fields)]
    return f"{{{_list(problem.shape)}, {_list(values)}}}"


def _list(values: Sequence[object]) -> str:
    return f"{{{', '.join(map(str, values))}}}"
