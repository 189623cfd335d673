"""The dispatch table as C: what kernels/abi/dispatch.h looks problems up in."""

import json
from collections.abc import Iterator, Sequence

from autotuner.forge.unit import compiled_lines
from autotuner.ops import OPS
from autotuner.ops.op import Op
from autotuner.serve.runtime.stated import Stated
from autotuner.values.problem import Problem
from autotuner.values.table import DispatchTable

REASONS = (
    "it was not tuned, and no variant is proven and timed around it",
    "the tensors differ in device or element type",
    "the variants are for {device}",
    "proven on a device with {proven}, this one is another",
    "proven on a device whose THREADS_ALLOWED is {threads}, here torch uses another number",
    "the variants take float32, bfloat16 and float16",
    "a tensor is not aligned to 16 bytes",
    "the variant refused the call",
    "the workspace is missing, too small or not aligned to 64 bytes",
)
"""Words for the reasons of dispatch.h, from -1 on; those of the op follow."""


def symbol(place: int, name: str) -> str:
    """The name of a variant's identity in the export of that name: a program may be linked with several exports."""
    return f"{name}_variant_{place}"


def table_lines(table: DispatchTable, name: str) -> Iterator[str]:
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
    ranges = []
    for each in table.ranges:
        together = sum(1 << each.like.DIMS.index(name) for name in each.together)  # a bit for each such size
        low = problem_in_c(each.like.sized(each.low))
        ranges.append(f"{{{low}, {_list(each.high)}, {together}, {places[each.use]}}}")
    # What was tried and is not served stands behind all that is: a range of one, which says why.
    ranges += [f"{{{problem_in_c(each.problem)}, {_list(each.problem.shape)}, 0, -1}}" for each in table.left_out]
    yield from _array("at_range", "ranges", ranges)
    yield from _array("char *const", "why", [json.dumps(each) for each in reasons(table)])
    dims, fixed = len(OPS[table.op].problem.DIMS), len(_fixed(table))
    counts = f"{len(entries)}, {len(ranges)}, {len(places)}, {dims}, {fixed}"
    yield f"#define AT_TABLE {{entries, ranges, variants, why, {counts}}}"


def reasons(table: DispatchTable) -> list[str]:
    """Words for every reason from the last one on, then for each entry and each range."""
    between = [f"between tuned problems, timed on {len(each.validated)} others" for each in table.ranges]
    own = [each.why for each in table.entries]
    return [*reversed(_fixed(table)), *own, *between, *(each.why for each in table.left_out)]


def _fixed(table: DispatchTable) -> list[str]:
    proven = ", ".join(f"{name} {value}" for name, value in table.proven_on.items())
    threads = table.proven_on.get("THREADS_ALLOWED")
    return [
        *(each.format(device=table.device, proven=proven, threads=threads) for each in REASONS),
        *OPS[table.op].torch.reasons,
    ]


def signature_lines(op: Op) -> Iterator[str]:
    """The macro AT_SIGNATURE that initialises an `at_signature`. It needs the op's header NAME_call.h."""
    stated = Stated(op.signature)
    for place, option in enumerate(stated.options):
        said = f"{op.name}_SAID_{option.name}".upper()
        yield f'static_assert({said} == {place}, "the options are in the order of the signature");'
    counts = [len(stated.required), len(stated.more), len(stated.beside), len(stated.options)]
    bits = [each.bits for each in stated.options]
    yield f"#define AT_SIGNATURE {{{json.dumps(stated.schema)}, {', '.join(map(str, counts))}, {_list(bits)}}}"


def _array(of: str, name: str, elements: Sequence[str]) -> Iterator[str]:
    """An array of C, which has at least one element."""
    yield f"static const {of} {name}[] = {{"
    yield from (f"    {each}," for each in elements or ["{}"])
    yield "};"


def problem_in_c(problem: Problem) -> str:
    """What initialises an `at_problem`. What is compiled in and follows from the sizes is no part of it."""
    fields = type(problem).model_fields
    values = compiled_lines({name: each for name, each in problem.compiled.items() if name.lower() in fields})
    sides = (problem.shape, [line.split(maxsplit=2)[2] for line in values], [repr(each) for each in problem.scalars])
    return f"{{{', '.join(map(_list, sides))}}}"


def _list(values: Sequence[object]) -> str:
    return f"{{{', '.join(map(str, values))}}}"
